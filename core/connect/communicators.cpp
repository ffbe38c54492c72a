#include "core/connect/communicators.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/op.h"
#include "core/connect/communicator_proof.h"

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

Communicators::Communicators(const Mesh& mesh, Job& job, Device& device, const TransportMaker& make,
                             std::span<const Program* const> programs)
    : mesh_(mesh) {
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
  Request request{job, device, make, costs_of(*programs.front()), used};
  // Those between nodes first: a library below may have to be set up for its network before it connects anything.
  for (const bool several_nodes : {true, false}) {
    for (const AxisSet axes : sets()) {
      if (request.costs.crosses_nodes(axes) == several_nodes) connect_group(request, axes);
    }
  }
}

void Communicators::connect_group(Request& request, AxisSet axes) {
  const std::string device_kind = request.device.info().kind;
  const std::vector<int> group = mesh_.group(request.job.rank(), axes);
  const int at = mesh_.coordinate(request.job.rank(), axes), n = mesh_.size_of(axes);
  const std::string name = mesh_.text(axes) + "." + std::to_string(group.front());
  connect(request, {.name = name, .ranks = group, .index = at, .device_kind = device_kind}, Queue::communication(axes));

  // Links one after the other in the same order on all ranks, since both ends of one wait for each other.
  for (const bool next : {true, false}) {
    const Queue sending = Queue::communication(axes, next ? Lane::to_next : Lane::to_previous);
    const Queue receiving = Queue::communication(axes, next ? Lane::from_previous : Lane::from_next);
    for (int from = 0; from < n; ++from) {
      const int to = (from + (next ? 1 : n - 1)) % n;
      const bool sends = at == from && request.used.contains(sending), receives = at == to && request.used.contains(receiving);
      if (!sends && !receives) continue;
      connect(request,
              {.name = name + (next ? ".next." : ".previous.") + std::to_string(from),
               .ranks = {group[static_cast<std::size_t>(from)], group[static_cast<std::size_t>(to)]},
               .index = sends ? 0 : 1,
               .device_kind = device_kind,
               .link = true},
              sends ? sending : receiving);
    }
  }
}

void Communicators::connect(Request& request, const GroupRequest& group, Queue queue) {
  const std::string& name = request.costs.transport(queue.axes(), group.ranks);
  std::shared_ptr<Transport>& transport = request.made[name];
  if (transport == nullptr) transport = request.make(name);
  std::unique_ptr<Communicator> made = transport->connect(request.job, group);
  const std::string who = "transport '" + name + "' in group '" + group.name + "'";
  if (!made) throw UnavailableError(who + " cannot be used: it made no communicator");
  prove_communicator(*made, group.link, request.device, queue, who);
  by_queue_[queue] = made.get();
  const std::int64_t sent = made->bytes_sent();
  owned_.at(queue.axes()).push_back({std::move(made), name, sent});
}

std::vector<AxisSet> Communicators::sets() const {
  std::vector<AxisSet> sets;
  for (const auto& [axes, owned] : owned_) sets.push_back(axes);
  return sets;
}

const Communicators::Owned& Communicators::group_over(AxisSet axes) const {
  const Owned* found = nullptr;
  for (const auto& [set, owned] : owned_) {
    if (set == axes || (found == nullptr && set.contains(axes))) found = &owned.front();
  }
  if (found == nullptr) throw ProgramError("nothing is connected over '" + mesh_.text(axes) + "'");
  return *found;
}

std::string Communicators::verified_path(AxisSet axes) const {
  return group_over(axes).communicator->verified_path();
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
  for (const Owned& owned : owned_.at(axes)) bytes += owned.communicator->bytes_sent() - owned.sent_before;
  return bytes;
}

}  // namespace consist
