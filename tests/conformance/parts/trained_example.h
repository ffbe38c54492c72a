// An example's op with its gradient, as a program that runs on a device: a loss of its outputs, and what the op emits for
// backward.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "consist/device.h"
#include "consist/kernel_registry.h"
#include "tests/conformance/parts/operands.h"

namespace consist::testing {

class TrainedExample {
 public:
  /// `program` has been differentiated; `parameters` are the tensors of the example's inputs as f32 (no_tensor: no float).
  TrainedExample(Device& device, const std::string& kind, Program program, std::vector<TensorId> parameters);
  ~TrainedExample();

  /// Sets a tensor in front of every run.
  void set(TensorId tensor, Operand value) { values_[tensor] = std::move(value); }
  bool has_bf16() const { return has_bf16_; }
  std::vector<std::size_t> inputs_with_gradient() const;

  double loss();
  /// With one element of an input moved.
  double loss_with(std::size_t input, std::int64_t element, double by);
  std::vector<double> gradient(std::size_t input);

 private:
  class Memory;
  Buffer buffer_of(TensorId tensor) const;
  void prepare(const std::string& kind);
  void run();
  Operand read(TensorId tensor) const;

  Device& device_;
  Program program_;
  std::vector<TensorId> parameters_;
  std::map<TensorId, Operand> values_;
  std::map<TensorId, std::unique_ptr<Memory>> memories_;  // by storage
  std::vector<std::unique_ptr<Memory>> workspaces_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::unique_ptr<Executable> executable_;
  bool has_bf16_ = false;
};

/// Null if the op has no gradient, or the example no input of a float type that one could have. Throws what the op and its
/// kernels throw.
std::unique_ptr<TrainedExample> trained_example(Device& device, const std::string& kind, const KernelExample& example,
                                                Numbers numbers);

}  // namespace consist::testing
