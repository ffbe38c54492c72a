#include "launch/view/watch/frame.h"

#include <algorithm>
#include <array>

#include "consist/text.h"

namespace consist::launch {
namespace {

using Cells = std::array<std::string, 6>;

Cells cells_of(const RunView& run, double now) {
  Cells cells{run.path, run.running() ? state_text(run, now) : run.status, "", "", "", ""};
  if (run.done() == 0) return cells;
  cells[2] = std::to_string(run.done()) + (run.steps() > 0 ? "/" + std::to_string(run.steps()) : std::string());
  cells[3] = fixed_text(run.loss.back(), 4);
  cells[4] = si_text(speed_of(run).tokens_per_second);
  if (const auto left = seconds_left(run)) cells[5] = duration_text(*left);
  return cells;
}

/// The runs from `first` on, below their headers; the marked one has > before it.
std::vector<std::string> table_of(std::span<const RunView> runs, std::size_t first, std::size_t most, std::size_t marked,
                                  double now, int columns) {
  std::vector<Cells> lines{{"RUN", "STATE", "STEP", "LOSS", "TOKENS/S", "LEFT"}};
  for (std::size_t i = first; i < std::min(runs.size(), first + most); ++i) lines.push_back(cells_of(runs[i], now));
  std::array<int, 6> widths{};
  for (const Cells& line : lines) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width_of(line[c]));
  }
  // The name gets the width that the figures leave; its end tells runs apart.
  int figures = 2;
  for (std::size_t c = 1; c < widths.size(); ++c) figures += widths[c] + 2;
  widths[0] = std::clamp(widths[0], 8, std::max(8, columns - figures));
  std::vector<std::string> shown;
  for (std::size_t n = 0; n < lines.size(); ++n) {
    std::string text = n > 0 && first + n - 1 == marked ? "> " : "  ";
    for (std::size_t c = 0; c < widths.size(); ++c) {
      std::string cell = line_of(lines[n][c], 100'000);
      while (width_of(cell) > widths[c]) cell = c == 0 ? ".." + line_of(cell.substr(3), 100'000) : line_of(cell, widths[c]);
      const std::string space(static_cast<std::size_t>(widths[c] - width_of(cell)), ' ');
      text += (c < 2 ? cell + space : space + cell) + "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    shown.push_back(line_of(text, columns));
  }
  return shown;
}

}  // namespace

std::vector<std::string> frame_of(std::span<const RunView> runs, std::span<const std::string> missing, const WatchState& state,
                                  const ScreenSettings& settings) {
  const int columns = settings.size.columns - 1;
  const auto rows = static_cast<std::size_t>(std::max(2, settings.size.rows));
  std::vector<std::string> lines;
  const std::size_t selected = runs.empty() ? 0 : std::min(state.selected, runs.size() - 1);
  const bool several = runs.size() > 1;
  if (runs.size() == 1 || (several && state.whole)) {
    lines = screen_of(runs[selected], settings);
  } else if (several) {
    // A third of the screen at least is the curve's.
    const std::size_t most = std::max<std::size_t>(1, std::min(runs.size(), rows * 2 / 3 - 2));
    const std::size_t first = selected < most ? 0 : selected - most + 1;
    lines = table_of(runs, first, most, selected, settings.now, columns);
    const int height = settings.size.rows - static_cast<int>(lines.size()) - 1;
    const std::vector<std::string> curve =
        plot("loss of " + runs[selected].path, runs[selected].step, runs[selected].loss, columns, height, settings.dots);
    lines.insert(lines.end(), curve.begin(), curve.end());
  }
  for (const std::string& name : missing) lines.insert(lines.begin(), line_of(name + ": is not there yet", columns));
  if (runs.empty() && missing.empty()) lines.emplace_back("no run has begun yet");
  lines.resize(rows - 1);
  lines.push_back(line_of(several ? "q: quit, up and down: another run, return: all of it or the table" : "q: quit", columns));
  return lines;
}

bool take_keys(const std::string& keys, std::size_t runs, WatchState& state) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool escape = keys.compare(i, 2, "\033[") == 0 || keys.compare(i, 2, "\033O") == 0;
    const char key = escape && i + 2 < keys.size() ? keys[i + 2] : keys[i];
    if (escape) i += 2;
    if (!escape && (key == 'q' || key == 'Q' || key == '\004')) return false;
    const bool down = escape ? key == 'B' : key == 'j', up = escape ? key == 'A' : key == 'k';
    if (down && state.selected + 1 < runs) ++state.selected;
    if (up && state.selected > 0) --state.selected;
    if (!escape && (key == '\r' || key == '\n')) state.whole = !state.whole;
  }
  return true;
}

}  // namespace consist::launch
