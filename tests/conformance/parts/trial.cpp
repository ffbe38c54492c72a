#include "tests/conformance/parts/trial.h"

#include <algorithm>

#include "consist/error.h"
#include "tests/allocations.h"

namespace consist::testing {

GuardedMemory::GuardedMemory(Device& device, std::int64_t bytes) : device_(device), bytes_(bytes) {
  memory_ = device.allocate(MemorySpace::device, bytes + 2 * guard);
}

GuardedMemory::~GuardedMemory() {
  device_.release(MemorySpace::device, memory_);
}

void GuardedMemory::write(const std::vector<char>& bytes) {
  device_.upload(data(), bytes.data(), static_cast<std::int64_t>(bytes.size()));
}

void GuardedMemory::fill(char byte) {
  filled_ = byte;
  const std::vector<char> bytes(static_cast<std::size_t>(bytes_ + 2 * guard), byte);
  device_.upload(memory_, bytes.data(), bytes_ + 2 * guard);
}

std::vector<char> GuardedMemory::read() const {
  std::vector<char> bytes(static_cast<std::size_t>(bytes_));
  device_.download(bytes.data(), data(), bytes_);
  return bytes;
}

std::string GuardedMemory::damage() const {
  std::vector<char> bytes(static_cast<std::size_t>(bytes_ + 2 * guard));
  device_.download(bytes.data(), memory_, bytes_ + 2 * guard);
  const auto touched = [&](char byte) { return byte != filled_; };
  const auto begin = bytes.begin(), end_of_first = begin + guard, behind = end_of_first + bytes_;
  if (const auto at = std::find_if(behind, bytes.end(), touched); at != bytes.end())
    return "byte " + std::to_string(at - behind + 1) + " behind the end";
  if (const auto at = std::find_if(begin, end_of_first, touched); at != end_of_first)
    return "byte " + std::to_string(end_of_first - at) + " in front of the beginning";
  return {};
}

/// Counts what launch() allocates.
class Trial::Counting final : public Kernel {
 public:
  explicit Counting(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  std::int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void* workspace, NativeQueue queue) override {
    const std::int64_t before = test::allocations();
    kernel_->launch(inputs, outputs, workspace, queue);
    allocations = test::allocations() - before;
  }
  void check() override { kernel_->check(); }

  std::int64_t allocations = 0;

 private:
  std::unique_ptr<Kernel> kernel_;
};

Trial::Place& Trial::place(const std::optional<TensorType>& type, std::vector<Place>& places) {
  places.push_back({type});
  if (type) {
    memories_.push_back(std::make_unique<GuardedMemory>(device_, bytes_of(*type)));
    places.back().memory = memories_.back().get();
  }
  return places.back();
}

Trial::Trial(Device& device, std::unique_ptr<Kernel> kernel, const Op& op, const Types& inputs, const Types& outputs)
    : device_(device), kernel_(std::make_unique<Counting>(std::move(kernel))) {
  for (const auto& type : inputs) place(type, inputs_);
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const int updated = op.updates_in_place(static_cast<int>(k));
    if (outputs[k] && updated >= 0 && static_cast<std::size_t>(updated) < inputs_.size() &&
        inputs_[static_cast<std::size_t>(updated)].type) {
      Place& input = inputs_[static_cast<std::size_t>(updated)];
      input.updated = true;
      outputs_.push_back({outputs[k], input.memory, true});
    } else {
      place(outputs[k], outputs_);
    }
  }
  const std::int64_t workspace = kernel_->workspace_bytes();
  memories_.push_back(std::make_unique<GuardedMemory>(device, std::max<std::int64_t>(1, workspace)));
  workspace_ = memories_.back().get();

  Launch launch{.kernel = kernel_.get(), .workspace = workspace_->data()};
  for (const bool of_inputs : {true, false}) {
    for (const Place& p : of_inputs ? inputs_ : outputs_) {
      Buffer buffer{nullptr, DType::u8, Shape{0}};
      if (p.type) buffer = {p.memory->data(), p.type->dtype, p.type->shape};
      (of_inputs ? launch.inputs : launch.outputs).push_back(buffer);
    }
  }
  launch.label = op.name();
  executable_ = device.prepare({launch}, false);
}

Trial::~Trial() = default;

Launched Trial::launch(const Operands& inputs, char before) {
  for (const auto& memory : memories_) memory->fill(before);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) inputs_[i].memory->write(inputs[i]->bytes);
  }
  executable_->run();
  executable_->wait();
  Launched done{.mischief = mischief(inputs), .allocations = kernel_->allocations};
  for (const Place& output : outputs_) {
    if (output.type) {
      done.outputs.push_back(Operand{*output.type, output.memory->read()});
    } else {
      done.outputs.emplace_back();
    }
  }
  return done;
}

std::vector<std::string> Trial::mischief(const Operands& inputs) const {
  std::vector<std::string> found;
  const auto look_around = [&](const GuardedMemory& memory, const std::string& name) {
    if (const std::string damage = memory.damage(); !damage.empty()) found.push_back("it wrote " + damage + " of " + name);
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].type) continue;
    const std::string name = "input " + std::to_string(i);
    look_around(*inputs_[i].memory, name);
    if (!inputs_[i].updated && inputs_[i].memory->read() != inputs[i]->bytes)
      found.push_back("it wrote to " + name + ", which no output updates in place (Op::updates_in_place)");
  }
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    if (outputs_[k].type && !outputs_[k].updated) look_around(*outputs_[k].memory, "output " + std::to_string(k));
  }
  look_around(*workspace_, "the workspace");
  return found;
}

std::vector<Buffer> described(const Types& types) {
  std::vector<Buffer> buffers;
  for (const auto& type : types)
    buffers.push_back(type ? Buffer{nullptr, type->dtype, type->shape} : Buffer{nullptr, DType::u8, Shape{0}});
  return buffers;
}

std::unique_ptr<Kernel> kernel_on(Device& device, const std::string& kind, const Op& op, const Types& inputs,
                                  const Types& outputs, const Attributes& attributes, std::span<const Origin> input_origins,
                                  std::span<const Origin> output_origins) {
  const std::vector<Buffer> in = described(inputs), out = described(outputs);
  const KernelRequest request{op.name(), in, out, attributes, input_origins, output_origins, kind};
  std::unique_ptr<Kernel> kernel = device.make_kernel(request);
  if (kernel != nullptr) return kernel;
  std::string operands;
  for (const auto& type : inputs)
    operands +=
        (operands.empty() ? "" : ", ") + (type ? std::string(name_of(type->dtype)) + type->shape.text() : std::string("none"));
  throw Error("the device '" + kind + "' and the sets of kernels have none for '" + std::string(op.name()) + "' of " + operands);
}

}  // namespace consist::testing
