#include "tests/conformance/parts/kernel_suite.h"

#include <algorithm>
#include <cmath>

#include "consist/error.h"

namespace consist::testing {

std::string KernelSuite::open_device() {
  std::string reason = host().unavailable(host().find("device", device_kind_), std::chrono::seconds(20));
  if (!reason.empty()) return "the device '" + device_kind_ + "' cannot work here: " + reason;
  device_ = host().make<Device>("device", device_kind_, {});
  device_->open(0, 1);
  return {};
}

std::vector<KernelExample> KernelSuite::examples() const {
  std::vector<KernelExample> examples = set_->examples();
  std::erase_if(examples, [](const KernelExample& example) { return registry().find(example.op) == nullptr; });
  return examples;
}

Numbers KernelSuite::numbers_for(const KernelExample& example) {
  const Operands mixed = filled(example.inputs, 0, Numbers::of_both_signs);
  return all_finite(trial_of(example).launch(mixed, 0x3f).outputs) ? Numbers::of_both_signs : Numbers::positive;
}

Trial KernelSuite::trial_of(const KernelExample& example) {
  const Op& op = registry().get(example.op);
  const Types outputs = op.infer(example.inputs, example.attributes);
  const std::vector<Buffer> in = described(example.inputs), out = described(outputs);
  KernelRequest request{example.op, in, out, example.attributes};
  request.device = device_kind_;
  std::unique_ptr<Kernel> kernel = set_->make_kernel(request);
  if (kernel == nullptr) throw Error("there is no kernel for the example of '" + example.op + "'");
  return {*device_, std::move(kernel), op, example.inputs, outputs};
}

bool all_finite(const Operands& operands) {
  return std::ranges::all_of(operands, [](const std::optional<Operand>& operand) {
    if (!operand || !is_float(operand->type.dtype)) return true;
    for (std::int64_t i = 0; i < operand->type.shape.elements(); ++i) {
      if (!std::isfinite(number_at(*operand, i))) return false;
    }
    return true;
  });
}

}  // namespace consist::testing
