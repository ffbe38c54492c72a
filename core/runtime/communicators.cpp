#include "core/runtime/communicators.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/op.h"
#include "core/plan/links.h"
#include "core/runtime/communicator_proof.h"

namespace consist {
namespace {

QueueTable queues_of(std::span<const Program* const> programs) {
  std::vector<Queue> queues;
  for (const Program* program : programs) {
    const QueueTable own(*program);
    queues.insert(queues.end(), own.begin(), own.end());
  }
  return QueueTable(std::move(queues));
}

}  // namespace

Communicators::Communicators(const Mesh& mesh, Job& job, Device& device, std::vector<NamedTransport> transports,
                             std::span<const Program* const> programs)
    : transports_(std::move(transports)), mesh_(mesh) {
  for (const NamedTransport& transport : transports_) names_.push_back(transport.name);
  const QueueTable used = queues_of(programs);
  AxisSet reached;
  for (const Queue queue : used) {
    if (!queue.is_communication()) continue;
    owned_.try_emplace(queue.axes());
    reached |= queue.axes();
  }
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (!reached.contains(axis)) owned_.try_emplace(axis);
  }
  for (const AxisSet axes : sets()) connect_group(job, device, axes, used);
}

void Communicators::connect_group(Job& job, Device& device, AxisSet axes, const QueueTable& used) {
  const std::string device_kind = device.info().kind;
  const std::vector<int> group = mesh_.group(job.rank(), axes);
  const int at = mesh_.coordinate(job.rank(), axes), n = mesh_.size_of(axes);
  const std::string name = mesh_.text(axes) + "." + std::to_string(group.front());
  connect(job, device, {.name = name, .ranks = group, .index = at, .device_kind = device_kind}, Queue::communication(axes));

  // Links one after the other in the same order on all ranks, since both ends of one wait for each other.
  for (const bool next : {true, false}) {
    const Queue sending = Queue::communication(axes, next ? Lane::to_next : Lane::to_previous);
    const Queue receiving = Queue::communication(axes, next ? Lane::from_previous : Lane::from_next);
    for (int from = 0; from < n; ++from) {
      const int to = (from + (next ? 1 : n - 1)) % n;
      const bool sends = at == from && used.contains(sending), receives = at == to && used.contains(receiving);
      if (!sends && !receives) continue;
      connect(job, device,
              {.name = name + (next ? ".next." : ".previous.") + std::to_string(from),
               .ranks = {group[static_cast<std::size_t>(from)], group[static_cast<std::size_t>(to)]},
               .index = sends ? 0 : 1,
               .device_kind = device_kind,
               .link = true},
              sends ? sending : receiving);
    }
  }
}

const NamedTransport& Communicators::transport_of(AxisSet axes) const {
  return transports_.at(transport_over(axes, mesh_, names_));
}

void Communicators::connect(Job& job, Device& device, const GroupRequest& group, Queue queue) {
  const auto& [name, transport] = transport_of(queue.axes());
  std::unique_ptr<Communicator> made = transport->connect(job, group);
  const std::string who = "transport '" + name + "' in group '" + group.name + "'";
  if (!made) throw UnavailableError(who + " cannot be used: it made no communicator");
  prove_communicator(*made, group.link, device, queue, who);
  by_queue_[queue] = made.get();
  const std::int64_t sent = made->bytes_sent();
  owned_.at(queue.axes()).push_back({std::move(made), sent});
}

std::vector<AxisSet> Communicators::sets() const {
  std::vector<AxisSet> sets;
  for (const auto& [axes, owned] : owned_) sets.push_back(axes);
  return sets;
}

std::string Communicators::verified_path(AxisSet axes) const {
  const Owned* found = nullptr;
  for (const auto& [set, owned] : owned_) {
    if (set == axes || (found == nullptr && set.contains(axes))) found = &owned.front();
  }
  if (found == nullptr) throw ProgramError("nothing is connected over '" + mesh_.text(axes) + "'");
  return found->communicator->verified_path();
}

std::map<std::string, std::string> Communicators::versions() const {
  std::map<std::string, std::string> all;
  for (const auto& [axes, of_axes] : owned_) {
    for (const Owned& owned : of_axes) all.merge(owned.communicator->versions());
  }
  return all;
}

std::int64_t Communicators::bytes_sent(AxisSet axes) const {
  std::int64_t bytes = 0;
  for (const auto& [communicator, before] : owned_.at(axes)) bytes += communicator->bytes_sent() - before;
  return bytes;
}

}  // namespace consist
