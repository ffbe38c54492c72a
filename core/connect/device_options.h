// Options that a device settles by measuring, agreed on by all ranks of a job and by the runs that go on from its checkpoints.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/job.h"
#include "core/config/run_config.h"
#include "core/plan/parts.h"

namespace consist {

/// A run's device, open, and what was settled for it.
struct OpenDevice {
  std::shared_ptr<Device> device;
  /// The options that were left open and their values, by plugin name: RunConfig::chosen_options. The same on every rank.
  std::map<std::string, std::map<std::string, std::string>> options;
  std::vector<std::string> notes;  ///< lines for people about what was settled, on rank 0
};

/// Makes and opens the run's device (make_device, Device::open), called by every rank. What the options of the device leave open
/// or give as "auto" rank 0 decides: by the newest checkpoint, where the run resumes from one whose run settled it or was told
/// it; otherwise by measuring (Device::choose_options). Other ranks wait for it (at most Job::timeout()). Throws what making and
/// opening the device throw.
CONSIST_API OpenDevice open_device(const Parts& parts, const RunConfig& config, PluginHost& host, Job& job);

}  // namespace consist
