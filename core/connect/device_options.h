// Options that a device settles by measuring, agreed on by all ranks of a job and by the runs that go on from its checkpoints.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "consist/job.h"
#include "core/config/run_config.h"
#include "core/plan/parts.h"

namespace consist {

/// Makes and opens the run's device (add_device, Device::open), called by every rank. What the options of the device leave open
/// or give as "auto" rank 0 decides: by the newest checkpoint, where the run resumes from one whose run settled it or was told
/// it; otherwise by measuring (Device::choose_options). The values stand in config.chosen_options on every rank. Other ranks wait
/// for them (at most Job::timeout()). Returns lines for people about what was settled, on rank 0. Throws what making and opening
/// the device throw.
CONSIST_API std::vector<std::string> open_device(Parts& parts, RunConfig& config, PluginHost& host, Job& job);

}  // namespace consist
