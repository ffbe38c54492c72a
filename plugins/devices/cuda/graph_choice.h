// Whether a step is replayed as a CUDA graph (--cuda.graphs).
#pragma once

#include <string>
#include <vector>

#include "consist/device.h"

namespace consist::cuda {

enum class GraphChoice { automatic, always, never };

/// "auto", "true" or "false".
GraphChoice graph_choice_of(const std::string& text);

/// A step with messages between neighbours never is one, whatever the choice: a graph's branches share a few hardware queues, in
/// which a receive that waits for another rank holds up whatever lies behind it: a collective of another axis (seen with tensor
/// and pipeline parallelism together on H200s), or, where receives are asked for ahead of time, the very message that the other
/// rank waits for. Streams have hardware queues of their own (see CudaDevice::open).
bool may_be_graph(const std::vector<Launch>& launches);

/// For GraphChoice::automatic. On one queue a graph is never slower. Beside communication it is (by up to 6% on four H200s,
/// docs/results.md): its branches overlap less than streams do. There it pays only where the host could not enqueue launches as
/// fast as the GPU runs them, by the bytes that they read and write. Alike on ranks with alike programs.
bool graph_pays(const std::vector<Launch>& launches);

/// All three.
bool becomes_graph(GraphChoice choice, const std::vector<Launch>& launches);

}  // namespace consist::cuda
