// The communicators of one rank: a group per set of mesh axes, and a link per lane, that its programs use.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/job.h"
#include "consist/program.h"
#include "consist/transport.h"
#include "core/plan/prepared_program.h"

namespace consist {

/// A transport, and the name of the plugin that it is from.
struct NamedTransport {
  std::string name;
  std::shared_ptr<Transport> transport;
};

class CONSIST_API Communicators {
 public:
  /// Connects `job.rank()` with the others of its groups on `mesh`; every rank of the job calls this. `transports` has one per
  /// axis; over several axes moves the one that they share. `programs` are what this rank will run: connected are the groups over
  /// the sets of axes on which they have collectives, and the lanes (see Lane) that they use; over an axis that is in none of
  /// these sets, too. Sets must be the same on all ranks. Every communicator is tried with known values on `device`. Throws
  /// UsageError where the axes of a set have different transports, and what Transport::connect and prove_communicator throw. The
  /// job must outlive the object.
  Communicators(const Mesh& mesh, Job& job, Device& device, std::vector<NamedTransport> transports,
                std::span<const Program* const> programs);

  /// For PreparedProgram.
  const CommunicatorOfQueue& by_queue() const noexcept { return by_queue_; }
  /// The sets of axes that are connected, in the order of AxisSet.
  std::vector<AxisSet> sets() const;
  /// Of the group over `axes`; of an axis that is only in larger sets, that of the first of these.
  std::string verified_path(AxisSet axes) const;
  const std::string& transport(AxisSet axes) const { return transport_of(axes).name; }
  /// Of the libraries below all axes.
  std::map<std::string, std::string> versions() const;
  /// Over `axes`, lanes included, since connecting and trying, by this rank: what the transport counts (see
  /// Communicator::bytes_sent).
  std::int64_t bytes_sent(AxisSet axes) const;

 private:
  void connect_group(Job& job, Device& device, AxisSet axes, const QueueTable& used);
  void connect(Job& job, Device& device, const GroupRequest& group, Queue queue);
  const NamedTransport& transport_of(AxisSet axes) const;

  struct Owned {
    std::unique_ptr<Communicator> communicator;
    std::int64_t sent_before = 0;  // bytes that its proof took
  };
  std::vector<NamedTransport> transports_;
  std::vector<std::string> names_;  // of them
  Mesh mesh_;
  std::map<AxisSet, std::vector<Owned>> owned_;
  CommunicatorOfQueue by_queue_;
};

}  // namespace consist
