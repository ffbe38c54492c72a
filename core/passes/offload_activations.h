// Activations that wait for backward in the host's memory: less memory on the device for copies beside compute.
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// The author of the copies, in their tags.
inline constexpr const char* offload_name = "offload";

/// The layers whose activations wait on the host until backward.
struct OffloadRequest {
  bool on = false;
  int first_layer = 0;  ///< of these transformer layers, both ends included; last_layer -1: to the last one
  int last_layer = -1;

  bool any() const noexcept { return on; }
  bool operator==(const OffloadRequest&) const = default;
};

/// "none", "all", or layers as "4-11" or "4". Throws UsageError.
CONSIST_API OffloadRequest parse_offload(const std::string& text);
/// The text again, for records.
CONSIST_API std::string text_of(const OffloadRequest& request);

/// Works on the whole step, all micro-batches in their order, in front of the optimizer. Activations that forward leaves for the
/// backward part of the requested layers are copied to the host behind the instruction that wrote them last, and back ahead of
/// their first reader in backward, on the queues of copies. By the cost model a copy begins as late as it can to end in time. At
/// most two layers' worth is in flight in each direction, activations that are back and not yet read included. A tensor comes
/// back to where it lay, strides included, so that the same kernels read it: values do not change by a bit. It stays on the
/// device where it is needed again at once (of the last layer), where copies would not end by then, and where it is among the
/// smallest tensors that make 1% of a layer's. Recomputed activations are not kept, so that they are not copied.
///
/// Throws UsageError where nothing is moved, unless ranks have programs of their own (Program::stage_axis).
CONSIST_API void offload_activations(Program& program, const OffloadRequest& request);

/// Bytes of activations that are copied to the host in a step of this rank.
CONSIST_API std::int64_t bytes_to_host(const Program& program);

/// Throws UsageError for layers that the model lacks. `whole` has all of them: no stage of a pipeline.
CONSIST_API void check_offloaded_layers(const Program& whole, const OffloadRequest& request);

}  // namespace consist
