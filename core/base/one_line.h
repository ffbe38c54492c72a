// Text from plugins and archives that belongs on one line.
#pragma once

#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// printable() with newlines and tabs escaped as well: what somebody else says cannot begin a line of its own.
CONSIST_API std::string one_line(std::string_view text);

}  // namespace consist
