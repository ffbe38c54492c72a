// Text of unknown origin, fit for a terminal: names in files, reasons of plugins, lines of other processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// `text` with everything escaped that a terminal would obey instead of show: control characters (as "\u001b", newlines and tabs
/// excepted), the characters that reverse the direction of writing, line separators, and bytes that are no UTF-8 (as "\xff").
/// Other text stays as it is. For whole messages, at the place where they are printed.
CONSIST_API std::string printable(std::string_view text);

/// A name or value for a message: in double quotes, on one line, escaped as above and as in JSON, and cut after `most` bytes
/// (between characters), which "..." behind the quotes tells.
CONSIST_API std::string in_quotes(std::string_view text, std::size_t most = 200);

}  // namespace consist
