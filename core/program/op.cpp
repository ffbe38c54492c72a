#include "consist/op.h"

#include <map>
#include <mutex>

#include "consist/error.h"
#include "consist/kernel.h"

namespace consist {

Op::~Op() = default;
Differentiator::~Differentiator() = default;

void Op::differentiate(Differentiator& /*d*/, const Instruction& /*forward*/) const {
  throw ProgramError("op '" + std::string(name()) + "' has no gradient");
}

TensorId Op::emit_sum(Builder& /*builder*/, const Instruction& /*a*/, const Instruction& /*b*/) const {
  return no_tensor;
}

Cost Op::cost(const Program& program, const Instruction& instruction) const {
  Cost cost;
  for (TensorId id : instruction.inputs) {
    if (id != no_tensor) cost.bytes += static_cast<double>(program.bytes(id));
  }
  for (TensorId id : instruction.outputs) {
    if (id != no_tensor) cost.bytes += static_cast<double>(program.bytes(id));
  }
  return cost;
}

std::int64_t Op::bytes_sent(std::int64_t bytes, int /*ranks*/) const noexcept {
  return bytes;
}

std::unique_ptr<Kernel> Op::make_collective_kernel(const KernelRequest& request, Communicator* /*communicator*/,
                                                   int /*ranks*/) const {
  throw ProgramError("there is no kernel for the collective '" + std::string(request.op) + "'");
}

void Op::check_places(const Program& /*program*/, const Instruction& /*instruction*/) const {}

struct OpRegistry::Impl {
  mutable std::mutex mutex;
  std::map<std::string, std::unique_ptr<Op>, std::less<>> ops;
};

OpRegistry::OpRegistry() : impl_(std::make_unique<Impl>()) {}
OpRegistry::~OpRegistry() = default;

const Op& OpRegistry::add(std::unique_ptr<Op> op) {
  std::lock_guard lock(impl_->mutex);
  std::string name(op->name());
  auto [position, added] = impl_->ops.try_emplace(name, std::move(op));
  if (!added) throw UsageError("an op named '" + name + "' is registered already; a plugin must name its ops uniquely");
  return *position->second;
}

const Op* OpRegistry::find(std::string_view name) const noexcept {
  std::lock_guard lock(impl_->mutex);
  auto position = impl_->ops.find(name);
  return position == impl_->ops.end() ? nullptr : position->second.get();
}

const Op& OpRegistry::get(std::string_view name) const {
  const Op* op = find(name);
  if (op == nullptr) throw ProgramError("there is no op named '" + std::string(name) + "'");
  return *op;
}

std::vector<const Op*> OpRegistry::all() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<const Op*> all;
  for (const auto& [name, op] : impl_->ops) all.push_back(op.get());
  return all;
}

}  // namespace consist
