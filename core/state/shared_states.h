// States that programs of one memory share.
#pragma once

#include <string>

#include "consist/program.h"

namespace consist {

/// Checks that states which two programs share by name are the same tensors, since a program finds them by address. ERRORS:
/// ProgramError that names the program `other`, `name`, and the state.
CONSIST_API void check_shared_states(const Program& first, const Program& other, const std::string& name);

}  // namespace consist
