#include "launch/measure/collective_kinds.h"

#include <algorithm>

#include "consist/error.h"

namespace consist::launch {
namespace {

/// Element i of the sum over all members.
std::int64_t sum(int members, std::int64_t i) {
  std::int64_t total = 0;
  for (int member = 0; member < members; ++member) total += collective_value(member, i);
  return total;
}

class InPlaceCollective : public Collective {
 public:
  std::int64_t input(std::int64_t total, int /*members*/) const override { return total; }
  std::int64_t output(std::int64_t /*total*/, int /*members*/) const override { return 0; }
  bool in_place() const override { return true; }
  std::int64_t count(std::int64_t total, int /*members*/) const override { return total; }
};

class AllReduce final : public InPlaceCollective {
 public:
  const char* name() const override { return "all_reduce"; }
  const char* operation() const override { return "sum"; }
  double bus_factor(int members) const override { return 2.0 * (members - 1) / members; }
  void call(Communicator& group, void* input, void* /*output*/, std::int64_t total, DType dtype,
            NativeQueue queue) const override {
    group.all_reduce(input, total, dtype, queue);
  }
  std::int64_t expected(int /*member*/, int members, std::int64_t /*total*/, std::int64_t i) const override {
    return sum(members, i);
  }
};

class AllGather final : public Collective {
 public:
  const char* name() const override { return "all_gather"; }
  std::int64_t input(std::int64_t total, int members) const override { return total / members; }
  std::int64_t output(std::int64_t total, int /*members*/) const override { return total; }
  void call(Communicator& group, void* input, void* output, std::int64_t total, DType dtype, NativeQueue queue) const override {
    group.all_gather(input, output, total / group.size(), dtype, queue);
  }
  std::int64_t piece(std::int64_t total, int members) const override { return total / members; }
  std::int64_t expected(int /*member*/, int members, std::int64_t total, std::int64_t i) const override {
    const std::int64_t part = total / members;
    return collective_value(static_cast<int>(i / part), i % part);
  }
};

class ReduceScatter final : public Collective {
 public:
  const char* name() const override { return "reduce_scatter"; }
  const char* operation() const override { return "sum"; }
  std::int64_t input(std::int64_t total, int /*members*/) const override { return total; }
  std::int64_t output(std::int64_t total, int members) const override { return total / members; }
  void call(Communicator& group, void* input, void* output, std::int64_t total, DType dtype, NativeQueue queue) const override {
    group.reduce_scatter(input, output, total / group.size(), dtype, queue);
  }
  std::int64_t expected(int member, int members, std::int64_t total, std::int64_t i) const override {
    return sum(members, member * (total / members) + i);
  }
};

class Broadcast final : public InPlaceCollective {
 public:
  const char* name() const override { return "broadcast"; }
  int root() const override { return 0; }
  double bus_factor(int /*members*/) const override { return 1; }
  void call(Communicator& group, void* input, void* /*output*/, std::int64_t total, DType dtype,
            NativeQueue queue) const override {
    group.broadcast(input, total, dtype, 0, queue);
  }
  std::int64_t expected(int /*member*/, int /*members*/, std::int64_t /*total*/, std::int64_t i) const override {
    return collective_value(0, i);
  }
};

/// One way: every even member sends to the one after it.
class SendReceive final : public InPlaceCollective {
 public:
  const char* name() const override { return "send_receive"; }
  double bus_factor(int /*members*/) const override { return 1; }
  void call(Communicator& group, void* input, void* /*output*/, std::int64_t total, DType dtype,
            NativeQueue queue) const override {
    const int rank = group.rank();
    if (rank % 2 == 1) {
      group.receive(input, total, dtype, rank - 1, queue);
    } else if (rank + 1 < group.size()) {
      group.send(input, total, dtype, rank + 1, queue);
    }
  }
  bool has_result(int member, int /*members*/) const override { return member % 2 == 1; }
  std::int64_t expected(int member, int /*members*/, std::int64_t /*total*/, std::int64_t i) const override {
    return collective_value(member - 1, i);
  }
};

}  // namespace

std::int64_t collective_value(int member, std::int64_t i) {
  return (i * 7 + member * 3) % collective_period;
}

const std::vector<std::unique_ptr<Collective>>& collectives() {
  static const auto made = [] {
    std::vector<std::unique_ptr<Collective>> all;
    all.push_back(std::make_unique<AllReduce>());
    all.push_back(std::make_unique<AllGather>());
    all.push_back(std::make_unique<ReduceScatter>());
    all.push_back(std::make_unique<Broadcast>());
    all.push_back(std::make_unique<SendReceive>());
    return all;
  }();
  return made;
}

const Collective& collective_named(const std::string& name) {
  const auto found = std::find_if(collectives().begin(), collectives().end(), [&](const auto& c) { return name == c->name(); });
  if (found == collectives().end()) throw UsageError("there is no collective '" + name + "'");
  return **found;
}

}  // namespace consist::launch
