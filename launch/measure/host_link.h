// Measures copies between the memories of host and device, for `consist calibrate`.
#pragma once

#include <string>

#include "consist/device.h"
#include "consist/job.h"

namespace consist::launch {

struct HostLink {
  /// Bytes/s, by direction: to the device, from it. Of rank 0 while no other rank copies; of each rank while all do, their mean.
  double alone[2] = {}, shared[2] = {};
  double both = 1;      ///< fraction of the rates that each direction keeps while both copy, all ranks at once; at most 1
  std::string problem;  ///< why it was not measured; the rest is not set then
};

/// Collective over the job; `device` is open. Copies between pinned memory of the host and the device, as steps with offload do.
/// The same on every rank.
HostLink measure_host_link(Job& job, Device& device);

}  // namespace consist::launch
