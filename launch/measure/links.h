// Measures the rates of the links between the ranks of a node, for `consist calibrate`.
#pragma once

#include <string>

#include "consist/cost.h"
#include "consist/device.h"
#include "consist/job.h"
#include "consist/transport.h"

namespace consist::launch {

/// Collective over the job, whose ranks are the members of `communicator`; `device` is open. Times collectives and messages to a
/// neighbour by size, up to `most_bytes` of the whole data, with nothing beside them. A collective that is not timed takes
/// the rates of all_gather; `beside_compute` and `compute_beside` are those of `known`. Throws what the parts throw, and
/// SystemError if a result is wrong.
LinkRates measure_links(Job& job, Device& device, Communicator& communicator, std::int64_t most_bytes, const LinkRates& known);

/// Writes measured links within a node as those of `transport`, and of the other transports that had the same ones: `efa` between
/// GPUs of one host, which goes over NVLink.
void take_links(Machine& machine, const std::string& transport, const LinkRates& node);

}  // namespace consist::launch
