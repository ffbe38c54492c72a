// The communicators of one rank: a group per set of mesh axes, and a link per lane, that its programs use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "consist/device.h"
#include "consist/job.h"
#include "consist/program.h"
#include "consist/transport.h"
#include "core/lower/prepared_program.h"

namespace consist {

/// Gives the transport of this name; is asked once for each that connects a group of this rank.
using TransportMaker = std::function<std::shared_ptr<Transport>(const std::string& name)>;

class CONSIST_API Communicators {
 public:
  /// Connects `job.rank()` with the others of its groups on `mesh`; every rank of the job calls this. `programs`, at least one,
  /// are what this rank will run: connected are the groups over the sets of axes on which they have collectives, and the lanes
  /// (see Lane) that they use; over an axis that is in none of these sets, too. Sets must be the same on all ranks. Each group
  /// has the transport that the programs are planned with (CostModel::transport). Every communicator is tried with known values
  /// on `device`. Throws what `make`, Transport::connect and prove_communicator throw. The job must outlive the object.
  Communicators(const Mesh& mesh, Job& job, Device& device, const TransportMaker& make, std::span<const Program* const> programs);

  /// For PreparedProgram.
  const CommunicatorOfQueue& by_queue() const noexcept { return by_queue_; }
  /// The sets of axes that are connected, in the order of AxisSet.
  std::vector<AxisSet> sets() const;
  /// Returns the verified path of the group over `axes`; for an axis that is only in larger sets, that of the first of these.
  std::string verified_path(AxisSet axes) const;
  /// The name of its transport, likewise.
  const std::string& transport(AxisSet axes) const { return group_over(axes).transport; }
  /// Returns the versions of the libraries below all axes, by name.
  std::map<std::string, std::string> versions() const;
  /// Over `axes`, lanes included, since connecting and trying, by this rank: what the transport counts (see
  /// Communicator::bytes_sent).
  std::int64_t bytes_sent(AxisSet axes) const;

 private:
  struct Owned {
    std::unique_ptr<Communicator> communicator;
    std::string transport;
    std::int64_t sent_before = 0;  // bytes that its proof took
  };
  /// Inputs for connecting the groups, and the transports made so far.
  struct Request {
    Job& job;
    Device& device;
    const TransportMaker& make;
    const CostModel& costs;
    const QueueTable& used;
    std::map<std::string, std::shared_ptr<Transport>> made = {};
  };
  void connect_group(Request& request, AxisSet axes);
  void connect(Request& request, const GroupRequest& group, Queue queue);
  const Owned& group_over(AxisSet axes) const;

  Mesh mesh_;
  std::map<AxisSet, std::vector<Owned>> owned_;
  CommunicatorOfQueue by_queue_;
};

}  // namespace consist
