// Draws the frame of consist watch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "launch/view/show/screen.h"

namespace consist::launch {

/// The choices that a person has made by keys.
struct WatchState {
  std::size_t selected = 0;  ///< of several runs
  bool whole = false;        ///< the selected one takes the screen
};

/// At most as many lines as `settings` has rows, of at most its columns: of one run its screen, of several a table and the curve
/// of the selected one. The last line says which keys there are.
std::vector<std::string> frame_of(std::span<const RunView> runs, std::span<const std::string> missing, const WatchState& state,
                                  const ScreenSettings& settings);

/// "q" and Ctrl-D quit: then false. Keys that mean nothing are passed over; `runs`: how many there are.
bool take_keys(const std::string& keys, std::size_t runs, WatchState& state);

}  // namespace consist::launch
