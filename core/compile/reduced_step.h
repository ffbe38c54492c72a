// Less than a step, for estimates: of layers that are alike some, and no stages.
#pragma once

#include "core/compile/compile.h"

namespace consist {

/// True if activations are sent between layers along the strategy's axis, so that its ranks run different programs.
CONSIST_API bool makes_stages(const AxisRequest& request) noexcept;

/// The same mesh and orders without the strategies whose axes make stages.
CONSIST_API Layout without_stages(const Layout& layout);

/// compile_step() of rank 0 without_stages(), so that it has all layers, of which `periods` stay where they are alike
/// (core/passes/keep_layers.h).
CONSIST_API Program compile_reduced_step(const CompileRequest& request, const Layout& layout, int periods);

}  // namespace consist
