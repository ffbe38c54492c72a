#include "consist/program.h"

#include <algorithm>

#include "consist/error.h"

namespace consist {

std::string_view name_of(Role role) noexcept {
  switch (role) {
    case Role::parameter:
      return "parameter";
    case Role::gradient:
      return "gradient";
    case Role::optimizer_state:
      return "optimizer_state";
    case Role::activation:
      return "activation";
    case Role::input:
      return "input";
    case Role::metric:
      return "metric";
    case Role::workspace:
      return "workspace";
  }
  return "?";
}

std::string_view name_of(MemorySpace space) noexcept {
  return space == MemorySpace::device ? "device" : "host";
}

std::string_view name_of(Phase phase) noexcept {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::weight_gradient:
      return "weight_gradient";
    case Phase::optimizer:
      return "optimizer";
  }
  return "?";
}

namespace {

const char* suffix_of(Lane lane) {
  switch (lane) {
    case Lane::collective:
      return "";
    case Lane::to_next:
      return ".to_next";
    case Lane::from_previous:
      return ".from_previous";
    case Lane::to_previous:
      return ".to_previous";
    case Lane::from_next:
      return ".from_next";
  }
  return "?";
}

}  // namespace

std::string text_of(Queue queue, const Mesh& mesh) {
  switch (queue.kind()) {
    case Queue::Kind::compute:
      return "compute";
    case Queue::Kind::host_to_device:
      return "h2d";
    case Queue::Kind::device_to_host:
      return "d2h";
    case Queue::Kind::communication:
      return "comm:" + mesh.text(queue.axes()) + suffix_of(queue.lane());
  }
  return "?";
}

QueueTable::QueueTable(std::vector<Queue> queues) : queues_(std::move(queues)) {
  queues_.push_back(Queue::compute());
  std::sort(queues_.begin(), queues_.end());
  queues_.erase(std::unique(queues_.begin(), queues_.end()), queues_.end());
}

namespace {

std::vector<Queue> queues_of(const Program& program) {
  std::vector<Queue> queues;
  for (const Instruction& i : program.instructions) {
    if (std::find(queues.rbegin(), queues.rend(), i.queue) == queues.rend()) queues.push_back(i.queue);
  }
  return queues;
}

}  // namespace

QueueTable::QueueTable(const Program& program) : QueueTable(queues_of(program)) {}

bool QueueTable::contains(Queue queue) const noexcept {
  return std::binary_search(queues_.begin(), queues_.end(), queue);
}

std::size_t QueueTable::number_of(Queue queue) const {
  const auto found = std::lower_bound(queues_.begin(), queues_.end(), queue);
  if (found == queues_.end() || *found != queue) throw ProgramError("a queue is asked for that is not among those of its table");
  return static_cast<std::size_t>(found - queues_.begin());
}

const AttributeValue* Attributes::find(std::string_view name) const noexcept {
  for (const auto& [key, value] : values_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, AttributeValue value) {
  for (auto& [key, old] : values_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  values_.emplace_back(std::string(name), std::move(value));
}

bool Attributes::has(std::string_view name) const noexcept {
  return find(name) != nullptr;
}

namespace {
template <typename T>
const T& typed(const AttributeValue* value, std::string_view name, const char* type) {
  const T* typed = value == nullptr ? nullptr : std::get_if<T>(value);
  if (typed == nullptr) {
    throw ProgramError("attribute '" + std::string(name) + "' is " + (value == nullptr ? "missing" : std::string("not ") + type));
  }
  return *typed;
}
}  // namespace

std::int64_t Attributes::integer(std::string_view name) const {
  return typed<std::int64_t>(find(name), name, "an integer");
}
double Attributes::real(std::string_view name) const {
  return typed<double>(find(name), name, "a real number");
}
AxisSet Attributes::axes(std::string_view name) const {
  return typed<AxisSet>(find(name), name, "a set of mesh axes");
}
const std::string& Attributes::string(std::string_view name) const {
  return typed<std::string>(find(name), name, "a string");
}

std::string Attributes::key() const {
  std::string key;
  const auto number = [&key](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto text = [&](const std::string& value) {
    number(value.size());
    key += value;
  };
  for (const auto& [name, value] : values_) {
    text(name);
    key += static_cast<char>('0' + value.index());
    if (const auto* integer = std::get_if<std::int64_t>(&value)) number(*integer);
    if (const auto* real = std::get_if<double>(&value)) number(*real);
    if (const auto* string = std::get_if<std::string>(&value)) text(*string);
    if (const auto* axes = std::get_if<AxisSet>(&value)) number(axes->bits());
  }
  return key;
}

std::int64_t Attributes::integer_or(std::string_view name, std::int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}
double Attributes::real_or(std::string_view name, double fallback) const {
  return has(name) ? real(name) : fallback;
}

void throw_no_such_tensor(TensorId id, std::size_t tensors) {
  throw ProgramError(id == no_tensor
                         ? "a tensor is absent (no_tensor) where one is needed"
                         : "there is no tensor %" + std::to_string(id) + "; the program has " + std::to_string(tensors));
}

std::int64_t Program::bytes(TensorId id) const {
  return local(id).elements() * static_cast<std::int64_t>(size_of((*this)[id].dtype));
}

std::int64_t Program::padding() const {
  std::int64_t most = 0;
  for (const Tensor& tensor : tensors) {
    const AxisSet axes = tensor.placements.flat_axes() & mesh.all_axes();
    if (axes.empty()) continue;
    Placements whole = tensor.placements;
    whole.set(axes, Placement::replicate());
    const std::int64_t parts = local_shape(tensor.shape, tensor.placements, mesh).elements() * mesh.size_of(axes);
    most = std::max(most, parts - local_shape(tensor.shape, whole, mesh).elements());
  }
  constexpr std::int64_t largest_element = 4;  // a tensor may travel in another dtype than it has here
  return most * largest_element;
}

namespace {

const char* name_of(StepOutput::Kind kind) {
  switch (kind) {
    case StepOutput::Kind::loss_count:
      return "loss_count";
    case StepOutput::Kind::auxiliary_loss:
      return "aux_loss";
    case StepOutput::Kind::overflow:
      return "overflow";
    case StepOutput::Kind::expert_choices:
      return "expert_choices";
    case StepOutput::Kind::metric:
    case StepOutput::Kind::metric_count:
      break;
  }
  throw ProgramError("a metric has a name of its own: Builder::metric");
}

}  // namespace

TensorId Program::output(StepOutput::Kind kind) const noexcept {
  const auto found = std::ranges::find(outputs, kind, &StepOutput::kind);
  return found == outputs.end() ? no_tensor : found->tensor;
}

void Program::add_output(StepOutput::Kind kind, TensorId tensor) {
  outputs.push_back({.kind = kind, .name = name_of(kind), .tensor = tensor, .unit = "", .description = ""});
}

void Program::drop_outputs(StepOutput::Kind kind) {
  std::erase_if(outputs, [kind](const StepOutput& output) { return output.kind == kind; });
}

TensorId Program::find(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<TensorId>(i);
  }
  return no_tensor;
}

}  // namespace consist
