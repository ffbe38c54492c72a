// Decides whether a step is replayed as a CUDA graph (--cuda.graphs).
#pragma once

#include <string>
#include <vector>

#include "consist/device.h"

namespace consist::cuda {

enum class GraphChoice { automatic, always, never };

/// "auto", "true" or "false".
GraphChoice graph_choice_of(const std::string& text);

/// True if a step becomes a graph. One with messages between neighbours never does, whatever the choice. Automatically others do
/// on one queue, where a graph is never slower, and beside communication where the host could not enqueue launches as fast as the
/// GPU runs them, by Launch::seconds. `launch_seconds`: what one costs the host. Alike on ranks with alike programs.
bool becomes_graph(GraphChoice choice, const std::vector<Launch>& launches, double launch_seconds);

}  // namespace consist::cuda
