// Parameters and optimizer states that lie in the host's memory, and the copies that bring them to the device in time
// (Ren et al., 2021, "ZeRO-Offload"; Rajbhandari et al., 2021, "ZeRO-Infinity").
#pragma once

#include "consist/program.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

/// Places the flat parameters of at least settings.persistence elements in the host's memory. Others are read where they lie.
void place_parameters(Program& forward, const Settings& settings);

/// Puts a copy in front of each gather, along `axes` or some of them, of a parameter that lies in the host's memory, on its own
/// queue, two gathers ahead.
void copy_before_gathers(Program& program, AxisSet axes, const Settings& settings);

/// Moves optimizer states to the host's memory (the first parameters' up to the ratio) and updates in groups of sub_group
/// elements: each group's states are copied to the device while the group before it is updated and the one before that is copied
/// back; or, with update_on_host, its gradients are copied to the host and the update runs there. States that an evaluation reads
/// are copied to the device before. Does nothing where neither states nor parameters lie there. Throws UsageError for an
/// optimizer whose update is none of single elements (Op::states_per_update()).
void stream_optimizer(Program& step, const Settings& settings);

}  // namespace consist::zero
