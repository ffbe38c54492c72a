// Errors on their way up, with what was being done before their text.
#pragma once

#include <string>

namespace consist {

/// Throws the exception that is being handled again with `done` before its text: of its type where that is one of Consist's for
/// input (DataError, SystemError, UsageError), else Error. To be called within a catch block.
[[noreturn]] void rethrow_after(const std::string& done);

}  // namespace consist
