// A text as a file.
#pragma once

#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// Makes or replaces the file as AtomicFile does: all of it or nothing. Throws SystemError.
CONSIST_API void write_text(const std::string& path, std::string_view text);

/// Makes a file that only this user can read and that was not there; on the disk when the call returns. Throws SystemError, and
/// leaves nothing then.
CONSIST_API void write_secret(const std::string& path, std::string_view text);

}  // namespace consist
