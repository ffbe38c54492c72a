#include "tests/conformance/parts/trained_example.h"

#include <algorithm>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/rewrite.h"
#include "tests/conformance/parts/trial.h"

namespace consist::testing {
namespace {

constexpr const char* weighted_sum_name = "conformance_weighted_sum";

/// The sum over pairs of inputs of their product, element by element, which is read by the host: it has no kernel. Second ones of
/// a pair are constants.
class WeightedSum final : public Op {
 public:
  std::string_view name() const noexcept override { return weighted_sum_name; }
  Types infer(const Types& /*inputs*/, const Attributes& /*attributes*/) const override { return {TensorType{DType::f32, {}}}; }
  void shard(AxisSharding& axis, const Types& /*inputs*/, const Attributes& /*attributes*/) const override {
    axis.outputs = {Placement::replicate()};
  }
  void differentiate(Differentiator& d, const Instruction& forward) const override {
    for (std::size_t i = 0; i < forward.inputs.size(); i += 2) d.accumulate_grad(forward.inputs[i], forward.inputs[i + 1]);
  }
};

const Op& weighted_sum() {
  static const Op& op = registry().add(std::make_unique<WeightedSum>());
  return op;
}

/// The example's instruction in a program, without its loss.
struct Written {
  Program program;
  std::vector<TensorId> parameters, outputs;
  std::vector<std::pair<TensorId, Operand>> values;
};

Written write_forward(const KernelExample& example, Numbers numbers) {
  Written made;
  Builder b(made.program);
  std::vector<TensorId> inputs;
  const Operands operands = filled(example.inputs, 0, numbers);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    made.parameters.push_back(no_tensor);
    if (!operands[i]) {
      inputs.push_back(no_tensor);
      continue;
    }
    const TensorType& type = operands[i]->type;
    const std::string name = "example.input." + std::to_string(i);
    if (!is_float(type.dtype)) {
      inputs.push_back(b.input(name, type.dtype, type.shape));
      made.values.emplace_back(inputs.back(), *operands[i]);
      continue;
    }
    // An activation in the example's dtype, whose gradient ends in an f32 parameter.
    made.parameters.back() = b.parameter(name, type.shape, 0, 0, false);
    inputs.push_back(b.emit_one("cast", {made.parameters.back()}, {{"dtype", std::string(name_of(type.dtype))}}, name));
    Operand value = filled({DType::f32, type.shape}, static_cast<int>(i), numbers);
    for (std::int64_t e = 0; e < type.shape.elements(); ++e) set_number(value, e, number_at(*operands[i], e));
    made.values.emplace_back(made.parameters.back(), std::move(value));
  }
  made.outputs = b.emit(example.op, inputs, example.attributes);
  return made;
}

/// Adds up the outputs of float types, each element with a weight of its own.
void add_loss(Written& made) {
  Builder b(made.program);
  std::vector<TensorId> terms;
  for (std::size_t k = 0; k < made.outputs.size(); ++k) {
    const TensorId output = made.outputs[k];
    if (output == no_tensor || !is_float(b[output].dtype)) continue;
    const TensorType type{b[output].dtype, b[output].shape};
    const TensorId weight = b.input("example.weight." + std::to_string(k), type.dtype, type.shape);
    made.values.emplace_back(weight, filled(type, static_cast<int>(k) + 2, Numbers::of_both_signs));
    terms.insert(terms.end(), {output, weight});
  }
  made.program.loss = terms.empty() ? no_tensor : b.emit_one(std::string(weighted_sum().name()), terms, {}, "loss");
}

/// Differentiates; parameters on which the loss does not depend are frozen. False: the op has no gradient.
bool differentiate_what_can_be(Written& made, const std::string& op) {
  for (;;) {
    Program trial = made.program;
    std::string problem;
    try {
      differentiate(trial, DType::f32);
      made.program = std::move(trial);
      return true;
    } catch (const ProgramError& error) {
      problem = error.what();
    }
    if (problem == "op '" + op + "' has no gradient") return false;
    const auto frozen = std::ranges::find_if(made.program.parameters, [&](const Parameter& p) {
      return p.trainable && problem == "the loss does not depend on parameter '" + p.name + "'";
    });
    if (frozen == made.program.parameters.end()) throw ProgramError(problem);
    frozen->trainable = false;
  }
}

}  // namespace

class TrainedExample::Memory {
 public:
  Memory(Device& device, std::int64_t bytes)
      : device_(device), data_(device.allocate(MemorySpace::device, std::max<std::int64_t>(1, bytes))) {}
  ~Memory() { device_.release(MemorySpace::device, data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const noexcept { return static_cast<char*>(data_); }

 private:
  Device& device_;
  void* data_;
};

TrainedExample::TrainedExample(Device& device, const std::string& kind, Program program, std::vector<TensorId> parameters)
    : device_(device), program_(std::move(program)), parameters_(std::move(parameters)) {
  prepare(kind);
}

TrainedExample::~TrainedExample() {
  executable_.reset();  // before what it works on
}

void TrainedExample::prepare(const std::string& kind) {
  for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
    const Tensor& tensor = program_.tensors[t];
    const auto id = static_cast<TensorId>(t);
    has_bf16_ = has_bf16_ || tensor.dtype == DType::bf16;
    if (tensor.storage == id) memories_[id] = std::make_unique<Memory>(device_, program_.bytes(id));
  }
  std::vector<Launch> launches;
  for (const Instruction& i : program_.instructions) {
    if (!i.op->touches_memory() || i.op == &weighted_sum()) continue;
    Types in, out;
    Launch launch;
    for (const bool of_inputs : {true, false}) {
      for (const TensorId id : of_inputs ? i.inputs : i.outputs) {
        Types& types = of_inputs ? in : out;
        if (id == no_tensor) {
          types.emplace_back();
        } else {
          types.push_back(TensorType{program_[id].dtype, program_[id].shape});
        }
        (of_inputs ? launch.inputs : launch.outputs).push_back(buffer_of(id));
      }
    }
    kernels_.push_back(kernel_on(device_, kind, *i.op, in, out, i.attributes));
    workspaces_.push_back(std::make_unique<Memory>(device_, kernels_.back()->workspace_bytes()));
    launch.kernel = kernels_.back().get();
    launch.workspace = workspaces_.back()->data();
    launch.label = i.op->name();
    launches.push_back(std::move(launch));
  }
  executable_ = device_.prepare(std::move(launches), false);
}

Buffer TrainedExample::buffer_of(TensorId id) const {
  if (id == no_tensor) return {nullptr, DType::u8, Shape{0}};
  const Tensor& tensor = program_[id];
  return {memories_.at(tensor.storage)->data() + tensor.offset, tensor.dtype, tensor.shape, tensor.row_stride};
}

void TrainedExample::run() {
  for (const auto& [tensor, value] : values_)
    device_.upload(buffer_of(tensor).data, value.bytes.data(), static_cast<std::int64_t>(value.bytes.size()));
  executable_->run();
  executable_->wait();
}

Operand TrainedExample::read(TensorId tensor) const {
  Operand operand{{program_[tensor].dtype, program_[tensor].shape}, {}};
  operand.bytes.resize(static_cast<std::size_t>(bytes_of(operand.type)));
  device_.download(operand.bytes.data(), buffer_of(tensor).data, bytes_of(operand.type));
  return operand;
}

double TrainedExample::loss() {
  run();
  const auto sum = std::ranges::find_if(program_.instructions, [](const Instruction& i) { return i.op == &weighted_sum(); });
  if (sum == program_.instructions.end()) return number_at(read(program_.loss), 0);
  double loss = 0;
  for (std::size_t i = 0; i < sum->inputs.size(); i += 2) {
    const Operand output = read(sum->inputs[i]), weight = read(sum->inputs[i + 1]);
    for (std::int64_t e = 0; e < output.type.shape.elements(); ++e) loss += number_at(output, e) * number_at(weight, e);
  }
  return loss;
}

double TrainedExample::loss_with(std::size_t input, std::int64_t element, double by) {
  Operand& value = values_.at(parameters_[input]);
  const double before = number_at(value, element);
  set_number(value, element, before + by);
  const double moved = loss();
  set_number(value, element, before);
  return moved;
}

std::vector<std::size_t> TrainedExample::inputs_with_gradient() const {
  std::vector<std::size_t> inputs;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool trained = std::ranges::any_of(program_.parameters, [&](const Parameter& p) {
      return p.tensor == parameters_[i] && p.trainable && p.gradient != no_tensor;
    });
    if (parameters_[i] != no_tensor && trained) inputs.push_back(i);
  }
  return inputs;
}

std::vector<double> TrainedExample::gradient(std::size_t input) {
  run();
  const auto p = std::ranges::find_if(program_.parameters, [&](const Parameter& q) { return q.tensor == parameters_[input]; });
  const Operand found = read(p->gradient);
  std::vector<double> gradient;
  for (std::int64_t e = 0; e < found.type.shape.elements(); ++e) gradient.push_back(number_at(found, e));
  return gradient;
}

std::unique_ptr<TrainedExample> trained_example(Device& device, const std::string& kind, const KernelExample& example,
                                                Numbers numbers) {
  const Op& op = registry().get(example.op);
  if (op.is_collective()) return nullptr;  // its kernel needs other ranks
  Written made = write_forward(example, numbers);
  const TensorId first = made.outputs.empty() ? no_tensor : made.outputs[0];
  // A loss of the op's own is differentiated as the root, anything else as something in the middle of a program.
  const bool scalar = first != no_tensor && made.program[first].dtype == DType::f32 && made.program[first].shape.rank() == 0;
  Written as_root = made;
  as_root.program.loss = first;
  add_loss(made);
  if (made.program.loss == no_tensor) return nullptr;
  bool has_gradient = false;
  try {
    has_gradient = differentiate_what_can_be(made, example.op);
  } catch (const ProgramError&) {
    if (!scalar) throw;
    made = std::move(as_root);
    has_gradient = differentiate_what_can_be(made, example.op);
  }
  if (!has_gradient) return nullptr;
  auto trained = std::make_unique<TrainedExample>(device, kind, std::move(made.program), std::move(made.parameters));
  for (auto& [tensor, value] : made.values) trained->set(tensor, std::move(value));
  return trained;
}

}  // namespace consist::testing
