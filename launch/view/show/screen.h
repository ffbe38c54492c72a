// A run on one screen.
#pragma once

#include <string>
#include <vector>

#include "launch/view/show/plot.h"
#include "launch/view/show/run_view.h"

namespace consist::launch {

struct ScreenSize {
  int columns = 80, rows = 24;
};
/// Size of the terminal `descriptor`; where it is none or does not say, the environment's COLUMNS and LINES, else 80 by 24.
ScreenSize screen_size(int descriptor);

struct ScreenSettings {
  ScreenSize size;
  Dots dots = Dots::braille;
  double now = 0;     ///< seconds since the epoch
  std::string price;  ///< --price, in place of the archive's
};

/// The run's configuration, progress, figures and curves: as many lines as the size has, or more where it has too few rows for
/// all of them; none longer than its columns.
std::vector<std::string> screen_of(const RunView& run, const ScreenSettings& settings);

/// One line: "run.h5: step 60/100  loss 2.3456  12.3 k tokens/s  1:20 left", or how it ended.
std::string summary_line(const RunView& run, double now);

/// "running", "failed: the disk is full"; of a run that goes on and has not written for long, since when.
std::string state_text(const RunView& run, double now);

}  // namespace consist::launch
