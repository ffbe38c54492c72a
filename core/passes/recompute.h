// Recomputation of activations (Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost"): less memory for more work.
#pragma once

#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// The author of the repeated instructions, in their tags.
inline constexpr const char* recompute_name = "recompute";

/// Outputs that backward recomputes rather than keeps.
struct RecomputeRequest {
  bool full = false;             ///< all of a layer but its input
  std::vector<std::string> ops;  ///< otherwise the outputs of these ops; none: nothing
  int first_layer = 0;           ///< of these transformer layers, both ends included; last_layer -1: to the last one
  int last_layer = -1;

  bool any() const noexcept { return full || !ops.empty(); }
  bool operator==(const RecomputeRequest&) const = default;
};

/// "none", "full" or "swiglu,rms_norm", and layers as "4-11" or "4"; empty: all. Throws UsageError.
CONSIST_API RecomputeRequest parse_recompute(const std::string& what, const std::string& layers);
/// The two texts again, for records.
CONSIST_API std::string what_text(const RecomputeRequest& request);
CONSIST_API std::string layers_text(const RecomputeRequest& request);

/// Works on the step of one micro-batch, behind differentiate(). Forward instructions whose outputs backward reads are emitted
/// once more right before the first reader (phase backward, inserted by "recompute"), on tensors of their own, so that the
/// originals die in forward. The copies run the same kernels on the same values: losses do not change by a bit. Collectives
/// between activations are repeated too; instructions on weights alone are not, nor those that write a state. Where all of a
/// layer is recomputed, one tensor of it is kept: the residual stream that enters it (an rms_norm whose sum is kept is repeated
/// on the sum). Ops with Op::remade_in_backward are repeated whatever is asked for. Throws UsageError for layers that the model
/// lacks and for ops that none of the layers has.
CONSIST_API void recompute(Program& program, const RecomputeRequest& request);

}  // namespace consist
