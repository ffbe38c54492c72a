// The communicators of one rank: a group per mesh axis, and a link per lane that its programs use.
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

namespace consist {

/// A transport, and the name of the plugin that it is from.
struct NamedTransport {
  std::string name;
  std::shared_ptr<Transport> transport;
};

class CONSIST_API Communicators {
 public:
  /// Connects `job.rank()` with the others of its groups on `mesh`; every rank of the job calls this. `transports` has one per
  /// axis. `programs` are what this rank will run: of the lanes of an axis (see Lane) those are connected that they use. Every
  /// communicator is tried with known values on `device`. Throws what Transport::connect and prove_communicator throw. The job
  /// must outlive the object.
  Communicators(const Mesh& mesh, Job& job, Device& device, std::vector<NamedTransport> transports,
                std::span<const Program* const> programs);

  /// For PreparedProgram: by communication queue, null where a queue is not used.
  std::span<Communicator* const> by_queue() const noexcept { return by_queue_; }
  std::string verified_path(int axis) const { return by_queue_.at(static_cast<std::size_t>(axis))->verified_path(); }
  /// Of the libraries below all axes.
  std::map<std::string, std::string> versions() const;
  /// Over `axis` since connecting and trying, by this rank: what the transport counts (see Communicator::bytes_sent).
  std::int64_t bytes_sent(int axis) const;

 private:
  void connect(int axis, Job& job, Device& device, const GroupRequest& group, Queue queue);

  struct Owned {
    std::unique_ptr<Communicator> communicator;
    std::int64_t sent_before = 0;  // bytes that its proof took
  };
  std::vector<NamedTransport> transports_;
  std::vector<std::vector<Owned>> owned_;  // by axis
  std::vector<Communicator*> by_queue_;
};

}  // namespace consist
