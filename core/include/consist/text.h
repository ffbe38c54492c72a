// Text for terminals: quantities, and text of unknown origin made fit to print (names in files, reasons of plugins, lines of
// other processes). All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "consist/export.h"

namespace consist {

/// `text` with all characters escaped that a terminal would act on instead of showing: control characters (as "\u001b", newlines
/// and tabs excepted), the characters that reverse the direction of writing, line separators, and bytes that are no UTF-8 (as
/// "\xff"). Other text stays as it is. For whole messages, at the place where they are printed.
CONSIST_API std::string printable(std::string_view text);

/// A name or value for a message: in double quotes, on one line, escaped as above and as in JSON, and cut after `most` bytes
/// (between characters), which "..." behind the quotes tells.
CONSIST_API std::string in_quotes(std::string_view text, std::size_t most = 200);

/// "1.5 GiB", "12.0 MiB", "300 B".
CONSIST_API std::string bytes_text(std::int64_t bytes);
/// Three significant digits with an SI prefix: "12.3 k", "1.20 M", "950".
CONSIST_API std::string si_text(double value);
/// A fixed number of decimals.
CONSIST_API std::string fixed_text(double value, int decimals);
/// "1:02:03", "4:05", or "12 s".
CONSIST_API std::string duration_text(double seconds);

}  // namespace consist
