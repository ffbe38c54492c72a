// Curves for terminals.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace consist::launch {

/// Characters, not bytes; all are taken to be one column wide.
int width_of(const std::string& text);
/// `text` of unknown origin as one line, fit for a terminal, of at most `columns` characters; "..." at its end where it is cut.
std::string line_of(const std::string& text, int columns);

enum class Dots {
  braille,  ///< two by four dots a character, which takes UTF-8
  ascii,    ///< one
};
/// Braille unless the environment's locale (LC_ALL, LC_CTYPE, LANG) is one of another encoding.
Dots dots_of_terminal();

/// A plot of y over x (ascending; both of one length): a line with `title` and how many values a point is the mean of, the curve
/// between its axes, and a line with the ends of x. Exactly `rows` lines (at least 4) of at most `columns` characters (at least
/// 24), without spaces at their ends. Values that are not finite leave a gap, and the title says how many there are.
std::vector<std::string> plot(const std::string& title, std::span<const double> x, std::span<const double> y, int columns,
                              int rows, Dots dots);

}  // namespace consist::launch
