#include "core/lower/prepared_program.h"

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/lower/waits.h"
#include "core/program/operands.h"
#include "core/program/printer.h"

namespace consist {
namespace {

/// Kernel of instructions that only state how long memory is kept.
class NoKernel final : public Kernel {
 public:
  void launch(std::span<const Buffer> /*inputs*/, std::span<const Buffer> /*outputs*/, void* /*workspace*/,
              NativeQueue /*queue*/) override {}
};

/// Text that is equal for instructions that can share a kernel: all that make_kernel sees, and the queue, since a kernel is
/// launched from one only.
std::string signature(const Instruction& i, std::span<const Buffer> inputs, std::span<const Buffer> outputs) {
  std::string text(i.op->name());
  auto add = [&](const Buffer& buffer) {
    (text += ' ').append(name_of(buffer.dtype)) += buffer.shape.text();
    if (buffer.row_stride != 0) text += "/" + std::to_string(buffer.row_stride);
  };
  for (const Buffer& buffer : inputs) add(buffer);
  text += " >";
  for (const Buffer& buffer : outputs) add(buffer);
  return text + " q" + std::to_string(static_cast<int>(i.queue.kind())) + "." + std::to_string(static_cast<int>(i.queue.lane())) +
         "." + std::to_string(i.queue.axes().bits()) + ";" + i.attributes.key();
}

std::string text_of(std::span<const Origin> origins) {
  std::string text;
  for (std::size_t tensor = 0; tensor < origins.size(); ++tensor) {
    if (origins[tensor] == Origin{}) continue;
    text += " o" + std::to_string(tensor);
    for (std::int64_t index : origins[tensor]) text += "," + std::to_string(index);
  }
  return text + ";";
}

}  // namespace

PreparedProgram::PreparedProgram(Program program, Device& device, const CommunicatorOfQueue& communicators)
    : program_(std::move(program)), device_(&device), device_kind_(device.info().kind) {
  make_kernels(communicators);
}

PreparedProgram::PreparedProgram(Program program) : program_(std::move(program)), device_(nullptr) {
  make_kernels({});
}

void PreparedProgram::make_kernels(const CommunicatorOfQueue& communicators) {
  kernel_of_.reserve(program_.instructions.size());
  workspace_bytes_.reserve(program_.instructions.size());
  for (const Instruction& i : program_.instructions) {
    if (device_ == nullptr && !i.op->is_collective()) {  // neither launched nor asked for its scratch
      kernel_of_.push_back(nullptr);
      workspace_bytes_.push_back(program_.costs ? program_.costs->scratch_bytes(program_, i) : 0);
      continue;
    }
    Kernel* kernel = kernel_for(i, communicators);
    kernel_of_.push_back(kernel);
    workspace_bytes_.push_back(kernel->workspace_bytes());
    if (device_ != nullptr) labels_.push_back(std::string(i.op->name()) + " " + first_output_name(program_, i));
  }
}

PreparedProgram::~PreparedProgram() = default;

Buffer PreparedProgram::buffer_of(TensorId tensor, const Shape& local) const {
  if (tensor == no_tensor) return {nullptr, DType::u8, Shape{0}};
  return {nullptr, program_[tensor].dtype, local, program_[tensor].row_stride, program_[tensor].space};
}

Kernel* PreparedProgram::kernel_for(const Instruction& i, const CommunicatorOfQueue& communicators) {
  std::vector<Buffer> inputs, outputs;
  std::vector<Origin> input_origins, output_origins;
  const auto describe_all = [this](std::span<const TensorId> tensors, std::vector<Buffer>& buffers,
                                   std::vector<Origin>& origins) {
    for (TensorId id : tensors) {
      const LocalPart part = id == no_tensor ? LocalPart{} : program_.part(id);
      buffers.push_back(buffer_of(id, part.shape));
      origins.push_back(part.origin);
    }
  };
  describe_all(i.inputs, inputs, input_origins);
  describe_all(i.outputs, outputs, output_origins);
  const std::string key = signature(i, inputs, outputs) + text_of(input_origins) + text_of(output_origins);
  if (auto known = kernel_cache_.find(key); known != kernel_cache_.end()) return known->second;

  const KernelRequest request{i.op->name(), inputs, outputs, i.attributes, input_origins, output_origins, device_kind_};
  std::unique_ptr<Kernel> kernel;
  if (i.op->is_collective()) {
    const auto found = communicators.find(i.queue);
    kernel = i.op->make_collective_kernel(request, found == communicators.end() ? nullptr : found->second,
                                          program_.mesh.size_of(i.queue.axes()));
  } else if (!i.op->touches_memory()) {
    kernel = std::make_unique<NoKernel>();
  } else {
    kernel = device_->make_kernel(request);
  }
  if (!kernel) {
    std::string types;
    for (const Buffer& buffer : inputs)
      types += " " + (buffer.absent() ? "-" : std::string(name_of(buffer.dtype)) + buffer.shape.text());
    throw UnavailableError("device '" + device_kind_ + "' has no kernel for op '" + std::string(i.op->name()) + "' with inputs" +
                           types + "; choose another device or precision, or name the plugin that brings one with --plugin");
  }
  Kernel* made = kernel.get();
  kernels_.push_back(std::move(kernel));
  kernel_cache_.emplace(key, made);
  return made;
}

const MemoryPlan& PreparedProgram::plan(const std::map<std::string, std::int64_t>* states) {
  plan_ = plan_memory(program_, workspace_bytes_, states);
  insert_waits(program_, plan_, workspace_bytes_);
  return plan_;
}

Buffer PreparedProgram::buffer(TensorId tensor) const {
  if (tensor == no_tensor) return buffer_of(tensor, {});
  Buffer buffer = buffer_of(tensor, program_.part(tensor).shape);
  const std::int64_t address = plan_.address[static_cast<std::size_t>(tensor)];
  if (address < 0) throw ProgramError("'" + program_[tensor].name + "' has no place in memory");
  buffer.data = arenas_[static_cast<std::size_t>(program_[tensor].space)] + address;
  return buffer;
}

void PreparedProgram::bind(void* device_arena, void* host_arena, bool profile) {
  arenas_[0] = static_cast<char*>(device_arena);
  arenas_[1] = static_cast<char*>(host_arena);
  of_timing_[0] = of_timing_[1] = nullptr;
  hand_over(profile);
}

void PreparedProgram::set_timing(bool timed) {
  Executable* const known = of_timing_[timed ? 1 : 0];
  if (known == nullptr) return hand_over(timed);
  executable_.store(known, std::memory_order_release);
}

void PreparedProgram::hand_over(bool profile) {
  std::vector<Launch> launches;
  launches.reserve(program_.instructions.size());
  for (std::size_t index = 0; index < program_.instructions.size(); ++index) {
    const Instruction& i = program_.instructions[index];
    Launch launch;
    launch.kernel = kernel_of_[index];
    for (TensorId id : i.inputs) launch.inputs.push_back(buffer(id));
    for (TensorId id : i.outputs) launch.outputs.push_back(buffer(id));
    if (plan_.workspace[index] >= 0) launch.workspace = arenas_[0] + plan_.workspace[index];
    launch.queue = i.queue;
    launch.waits = i.waits;
    launch.tag = i.tag;
    launch.label = labels_[index];
    if (program_.costs) launch.seconds = program_.costs->seconds(program_, i);
    launches.push_back(std::move(launch));
  }
  executables_.push_back(device_->prepare(std::move(launches), profile));
  of_timing_[profile ? 1 : 0] = executables_.back().get();
  executable_.store(executables_.back().get(), std::memory_order_release);
}

}  // namespace consist
