#include "core/runtime/communicators.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/op.h"
#include "core/runtime/communicator_proof.h"

namespace consist {
namespace {

std::size_t slot_of(Queue queue) {
  return static_cast<std::size_t>(queue.index() - Queue::first_communication);
}

std::vector<bool> used_queues(std::span<const Program* const> programs) {
  std::vector<bool> used(Queue::count, false);
  for (const Program* program : programs) {
    for (const Instruction& i : program->instructions) used[static_cast<std::size_t>(i.queue.index())] = true;
  }
  return used;
}

}  // namespace

Communicators::Communicators(const Mesh& mesh, Job& job, Device& device, std::vector<NamedTransport> transports,
                             std::span<const Program* const> programs)
    : transports_(std::move(transports)), by_queue_(Queue::count, nullptr) {
  const std::string device_kind = device.info().kind;
  const std::vector<bool> used = used_queues(programs);
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    owned_.emplace_back();
    const std::vector<int> group = mesh.group(job.rank(), axis);
    const int at = mesh.coordinate(job.rank(), axis), n = mesh.size_of(axis);
    const std::string name = mesh.axis(axis).name + "." + std::to_string(group.front());
    connect(axis, job, device, {.name = name, .ranks = group, .index = at, .device_kind = device_kind},
            Queue::communication(axis));

    // Links one after the other in the same order on all ranks, since both ends of one wait for each other.
    for (const bool next : {true, false}) {
      const Queue sending = Queue::communication(axis, next ? Lane::to_next : Lane::to_previous);
      const Queue receiving = Queue::communication(axis, next ? Lane::from_previous : Lane::from_next);
      for (int from = 0; from < n; ++from) {
        const int to = (from + (next ? 1 : n - 1)) % n;
        const bool sends = at == from && used[static_cast<std::size_t>(sending.index())];
        const bool receives = at == to && used[static_cast<std::size_t>(receiving.index())];
        if (!sends && !receives) continue;
        connect(axis, job, device,
                {.name = name + (next ? ".next." : ".previous.") + std::to_string(from),
                 .ranks = {group[static_cast<std::size_t>(from)], group[static_cast<std::size_t>(to)]},
                 .index = sends ? 0 : 1,
                 .device_kind = device_kind,
                 .link = true},
                sends ? sending : receiving);
      }
    }
  }
}

void Communicators::connect(int axis, Job& job, Device& device, const GroupRequest& group, Queue queue) {
  const auto& [name, transport] = transports_.at(static_cast<std::size_t>(axis));
  std::unique_ptr<Communicator> made = transport->connect(job, group);
  const std::string who = "transport '" + name + "' in group '" + group.name + "'";
  if (!made) throw UnavailableError(who + " cannot be used: it made no communicator");
  prove_communicator(*made, group.link, device, queue, who);
  by_queue_[slot_of(queue)] = made.get();
  const std::int64_t sent = made->bytes_sent();
  owned_.at(static_cast<std::size_t>(axis)).push_back({std::move(made), sent});
}

std::map<std::string, std::string> Communicators::versions() const {
  std::map<std::string, std::string> all;
  for (const auto& axis : owned_) {
    for (const Owned& owned : axis) all.merge(owned.communicator->versions());
  }
  return all;
}

std::int64_t Communicators::bytes_sent(int axis) const {
  std::int64_t bytes = 0;
  for (const auto& [communicator, before] : owned_.at(static_cast<std::size_t>(axis)))
    bytes += communicator->bytes_sent() - before;
  return bytes;
}

}  // namespace consist
