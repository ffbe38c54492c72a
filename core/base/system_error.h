// The system's calls: texts of their error numbers, and how much one moves.
#pragma once

#include <cstddef>
#include <string>

#include "consist/export.h"

namespace consist {

/// Asked of one read() or write(); Linux moves at most 2 GiB less a page.
inline constexpr std::size_t most_bytes_a_call = std::size_t{1} << 30;

/// The system's text for an errno; where a limit of the process or the machine is reached, with the limit and what raises it.
CONSIST_API std::string system_error_text(int error);

}  // namespace consist
