// Quantizes before gathering: tensors that are gathered only to be quantized are sent as 8-bit values.
#pragma once

#include "consist/program.h"

namespace consist {

/// Rewrites each all_gather whose result only an amax and a quantize with attribute "before_gathers" read. Makes the amax of the
/// rank's slice, a small all_gather of the ranks' amaxes, quantize_part with the largest of them, and an all_gather of the 8-bit
/// values. The transposed copy is made from the gathered values, where it is first read. Results are equal to the bit to those
/// before: the largest amax of the slices is that of the tensor, and each element is rounded by itself. Slices of states are
/// quantized at the start of the step, with one gather of all their amaxes, and once per step (see hoist_step_invariants.h). Runs
/// after differentiation, so that gradients flow as if nothing had changed. Throws UsageError for a slice in the host's memory.
/// Near linear.
CONSIST_API void gather_quantized(Program& program);

/// Warning that `consist` prints if gathers_nothing_quantized().
inline constexpr const char* no_quantized_gathers =
    "--fp8.gathers has no effect here: nothing that is quantized is gathered in this layout";

/// True if quantizations of a program that went through gather_quantized ask for this and no collective gathers 8-bit values:
/// no quantized tensor is gathered in this layout.
CONSIST_API bool gathers_nothing_quantized(const Program& program);

}  // namespace consist
