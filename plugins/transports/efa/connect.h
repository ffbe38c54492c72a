// Finds the other members of a group and proves to them who this is. Declares nothing of libfabric, so that it can stand in where
// the build has none (without_libfabric.cpp).
#pragma once

#include <memory>
#include <string>

#include "consist/host_transport.h"
#include "consist/transport.h"

namespace consist::efa {

struct HostOptions {
  std::string provider = "efa";  ///< "efa", or "tcp" for machines without the hardware
  std::string device;            ///< libfabric's domain, or for tcp an interface; empty: chosen
  std::string libfabric;         ///< file or folder of libfabric.so.1; empty: see load_libfabric
};

/// Why libfabric offers no endpoint of that provider here; empty if it does. `device_memory`: one that also takes memory of GPUs.
std::string provider_problem(const HostOptions& options, bool device_memory);

/// Called by all members at about the same time. Addresses and random numbers are exchanged through the job; the tags of all
/// messages follow from those and the job's token, and each pair proves over the new connection that both know it. Throws
/// UnavailableError and UsageError as Endpoint does, PeerError when a member does not come or cannot prove itself.
std::unique_ptr<PointToPoint> connect_members(Job& job, const GroupRequest& group, const HostOptions& options);

}  // namespace consist::efa
