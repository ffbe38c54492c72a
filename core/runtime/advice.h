// What the owner of a run should hear before it begins: choices that cost speed for nothing.
#pragma once

#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/export.h"
#include "core/config/run_config.h"
#include "core/plan/parts.h"
#include "core/plan/program_summary.h"

namespace consist {

/// One sentence or two each, with the figures behind it; empty where nothing is to be said. For devices whose peak is known
/// (GPUs): fp32 where bf16 is several times as fast; memory that is nearly empty, with the batch that would fill it; ZeRO where
/// ddp would fit. Advice for `layout` as it is, never a change.
CONSIST_API std::vector<std::string> advise(const RunConfig& config, const DTypes& dtypes, const Layout& layout,
                                            const DeviceInfo& device, const ProgramSummary& summary);

}  // namespace consist
