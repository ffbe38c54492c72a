#include "launch/view/show/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "consist/text.h"
#include "core/base/lower.h"

namespace consist::launch {
namespace {

/// "3.142", "1.2e-05": four digits.
std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// Dots of a terminal's area, (0, 0) at its upper left.
class Area {
 public:
  Area(int columns, int rows, Dots kind)
      : kind_(kind),
        across_(kind == Dots::braille ? 2 : 1),
        down_(kind == Dots::braille ? 4 : 1),
        columns_(columns),
        rows_(rows),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows), 0) {}

  int width() const { return columns_ * across_; }
  int height() const { return rows_ * down_; }
  void set(int x, int y) {
    // The dots of a braille character by their bits: three rows of two, then the row below, which was added later.
    constexpr std::array<std::array<std::uint8_t, 2>, 4> bits{{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    std::uint8_t& cell =
        cells_[static_cast<std::size_t>(y / down_) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(x / across_)];
    cell = static_cast<std::uint8_t>(cell | bits[static_cast<std::size_t>(y % down_)][static_cast<std::size_t>(x % across_)]);
  }
  std::string row(int row) const {
    std::string text;
    for (int c = 0; c < columns_; ++c) {
      const std::uint8_t cell =
          cells_[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(c)];
      if (cell == 0) {
        text += ' ';
      } else if (kind_ == Dots::ascii) {
        text += '*';
      } else {  // U+2800 + cell in UTF-8
        text += '\xe2';
        text += static_cast<char>(0xa0 | (cell >> 6));
        text += static_cast<char>(0x80 | (cell & 0x3f));
      }
    }
    return text;
  }

 private:
  Dots kind_;
  int across_, down_, columns_, rows_;
  std::vector<std::uint8_t> cells_;
};

/// Means of the finite values that fall on each column of dots; NaN where none does.
std::vector<double> means_of(std::span<const double> x, std::span<const double> y, int width) {
  std::vector<double> sums(static_cast<std::size_t>(width), 0);
  std::vector<int> counts(static_cast<std::size_t>(width), 0);
  const double first = x.front(), range = x.back() - x.front();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    const double place = range > 0 ? (x[i] - first) / range * (width - 1) : 0;
    const auto at = static_cast<std::size_t>(std::clamp(std::lround(place), 0L, static_cast<long>(width - 1)));
    sums[at] += y[i];
    ++counts[at];
  }
  for (std::size_t c = 0; c < sums.size(); ++c)
    sums[c] = counts[c] == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[c] / counts[c];
  return sums;
}

/// True if a value between the two places is not finite: the curve has a gap there.
bool gap_between(std::span<const double> x, std::span<const double> y, double from, double to) {
  const auto begin = std::upper_bound(x.begin(), x.end(), from) - x.begin();
  for (auto i = static_cast<std::size_t>(begin); i < x.size() && x[i] < to; ++i) {
    if (!std::isfinite(y[i])) return true;
  }
  return false;
}

void draw(Area& area, std::span<const double> x, std::span<const double> y, const std::vector<double>& means, double low,
          double high) {
  const auto row_of = [&](double value) {
    const double share = high > low ? (value - low) / (high - low) : 0.5;
    return std::clamp(static_cast<int>(std::lround((1 - share) * (area.height() - 1))), 0, area.height() - 1);
  };
  const double range = x.back() - x.front();
  int before = -1;
  for (int c = 0; c < area.width(); ++c) {
    const double value = means[static_cast<std::size_t>(c)];
    if (std::isnan(value)) continue;
    const int row = row_of(value);
    area.set(c, row);
    const auto place = [&](int column) { return x.front() + range * column / std::max(1, area.width() - 1); };
    if (before >= 0 && !gap_between(x, y, place(before), place(c))) {
      const int from = row_of(means[static_cast<std::size_t>(before)]), steps = c - before;
      const int length = std::max(steps, std::abs(row - from));
      for (int i = 1; i < length; ++i)
        area.set(before + static_cast<int>(std::lround(1.0 * i * steps / length)),
                 from + static_cast<int>(std::lround(1.0 * i * (row - from) / length)));
    }
    before = c;
  }
}

std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

int width_of(const std::string& text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::string line_of(const std::string& text, int columns) {
  std::string line = printable(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (width_of(line) <= columns) return line;
  const int room = std::max(0, columns - 3);
  int shown = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool begins_character = (static_cast<unsigned char>(line[i]) & 0xc0U) != 0x80U;
    if (begins_character && ++shown > room)
      return (line.substr(0, i) + "...").substr(0, i + static_cast<std::size_t>(std::min(3, columns)));
  }
  return line;
}

Dots dots_of_terminal() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = lower(value);
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos ? Dots::braille : Dots::ascii;
  }
  return Dots::braille;
}

std::vector<std::string> plot(const std::string& title, std::span<const double> x, std::span<const double> y, int columns,
                              int rows, Dots dots) {
  constexpr int least_columns = 24, least_rows = 4;
  columns = std::max(columns, least_columns);
  rows = std::max(rows, least_rows);
  const int height = rows - 2;  // the title is above, the ends of x are below
  std::vector<std::string> lines;
  const auto finite = std::count_if(y.begin(), y.end(), [](double value) { return std::isfinite(value); });
  if (finite == 0) {
    lines.push_back(line_of(title + (y.empty() ? ": no steps yet" : ": no value is finite"), columns));
    lines.resize(static_cast<std::size_t>(rows));
    return lines;
  }
  // The labels take columns from the area, and with it the means change, and the labels of their ends.
  double low = 0, high = 0;
  std::size_t label = 4;
  std::vector<double> means;
  for (bool fits = false; !fits;) {
    means = means_of(x, y, Area(columns - static_cast<int>(label) - 1, height, dots).width());
    low = std::numeric_limits<double>::infinity();
    high = -low;
    for (const double mean : means) {
      if (std::isnan(mean)) continue;
      low = std::min(low, mean);
      high = std::max(high, mean);
    }
    const std::size_t needed =
        std::max({number_text(low).size(), number_text(high).size(), number_text((low + high) / 2).size()});
    fits = needed <= label;
    label = std::max(label, needed);
  }
  Area area(columns - static_cast<int>(label) - 1, height, dots);
  draw(area, x, y, means, low, high);

  const auto points = std::count_if(means.begin(), means.end(), [](double mean) { return !std::isnan(mean); });
  std::string caption = title;
  if (finite > 2 * points) caption += ", means of " + std::to_string((finite + points / 2) / points) + " steps";
  if (finite < static_cast<std::ptrdiff_t>(y.size()))
    caption += "; not finite: " + std::to_string(y.size() - static_cast<std::size_t>(finite));
  lines.push_back(line_of(caption, columns));
  const std::string axis = dots == Dots::braille ? "\u2502" : "|";
  for (int row = 0; row < height; ++row) {
    std::string value;
    if (high > low) {
      value = row == 0 ? number_text(high) : row == height - 1 ? number_text(low) : "";
      if (height >= 5 && height % 2 == 1 && row == height / 2) value = number_text((low + high) / 2);
    } else if (row == height / 2) {
      value = number_text(low);
    }
    lines.push_back(without_end(std::string(label - value.size(), ' ') + value + axis + area.row(row)));
  }
  const std::string first = "step " + fixed_text(x.front(), 0), last = fixed_text(x.back(), 0);
  const int between = columns - static_cast<int>(label + 1 + first.size() + last.size());
  std::string ends = std::string(label + 1, ' ') + first;
  if (x.size() > 1 && between > 0) ends += std::string(static_cast<std::size_t>(between), ' ') + last;
  lines.push_back(ends);
  return lines;
}

}  // namespace consist::launch
