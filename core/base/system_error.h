// Texts that say what the system's error numbers mean.
#pragma once

#include <string>

#include "consist/export.h"

namespace consist {

/// The system's text for an errno; where a limit of the process or the machine is reached, with the limit and what raises it.
CONSIST_API std::string system_error_text(int error);

}  // namespace consist
