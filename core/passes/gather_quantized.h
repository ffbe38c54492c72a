// What is gathered only to be quantized is quantized before: it travels as 8-bit values.
#pragma once

#include "consist/program.h"

namespace consist {

/// Of each all_gather whose result only an amax and a quantize with attribute "before_gathers" read, makes: the amax of the
/// rank's part, a small all_gather of the ranks' amaxes, quantize_part with the largest of them, and an all_gather of the 8-bit
/// values; the transposed copy is made of what was gathered, where it is first read. All of it is equal to the bit to what was:
/// the largest magnitude of the parts is that of the whole, and each element is rounded by itself. Parts of states are quantized
/// at the start of the step, with one gather of all their amaxes, and once per step (see hoist_step_invariants.h). After
/// differentiation, so that gradients flow as if nothing had changed. Throws UsageError for a part in the host's memory. Near
/// linear.
CONSIST_API void gather_quantized(Program& program);

/// What `consist` says then.
inline constexpr const char* no_quantized_gathers =
    "--fp8.gathers has no effect here: nothing that is quantized is gathered in this layout";

/// Whether quantizations of a program that went through gather_quantized ask for this and no collective gathers 8-bit values:
/// nothing of what is quantized is gathered in this layout.
CONSIST_API bool gathers_nothing_quantized(const Program& program);

}  // namespace consist
