#include "plugins/strategies/cp/token_order.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::context_parallel {
namespace {

constexpr int sequence_dim = 1;  // of inputs [batch, sequence] and activations [batch, sequence, channels]

class Check {
 public:
  explicit Check(const Program& program)
      : program_(program), has_tokens_(program.tensors.size()), is_constant_(program.tensors.size()) {
    for (std::size_t id = 0; id < program.tensors.size(); ++id) {
      const Tensor& tensor = program.tensors[id];
      has_tokens_[id] = tensor.role == Role::input && !tensor.state && tensor.shape.rank() > sequence_dim;
      if (has_tokens_[id]) tokens_ = {tensor.shape[0], tensor.shape[sequence_dim]};
    }
    for (const Constant& constant : program.constants) is_constant_[index(constant.tensor)] = true;
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      if (i.tag.phase != Phase::forward) continue;
      const bool received = i.op->movement() == Movement::receive;
      const bool works_on_tokens = std::ranges::any_of(i.inputs, [&](TensorId id) { return is(has_tokens_, id); });
      const bool of_constants =
          !i.inputs.empty() && std::ranges::all_of(i.inputs, [&](TensorId id) { return is(is_constant_, id); });
      if (works_on_tokens) check(i);
      for (const TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        has_tokens_[index(output)] = works_on_tokens || received;
        is_constant_[index(output)] = of_constants;
      }
    }
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }
  static bool is(const std::vector<bool>& what, TensorId id) { return id != no_tensor && what[index(id)]; }

  void check(const Instruction& i) const {
    if (i.op->attends() || i.op->position_rows() >= 0) return;
    if (i.op->token_order() == TokenOrder::fixed) {
      refuse("nothing says whether op '" + std::string(i.op->name()) +
             "' makes the same of tokens in another order; an op that does states so (Op::token_order(), docs/plugins.md)");
    }
    for (const TensorId input : i.inputs) {
      if (!is(is_constant_, input)) continue;
      const Shape& shape = program_[input].shape;
      if (shape.rank() > sequence_dim && shape[0] == tokens_[0] && shape[sequence_dim] == tokens_[1])
        refuse("the constant '" + program_[input].name + "' lies in order of position beside them");
    }
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw UsageError("cp: --cp.attention gather and ring put tokens into zigzag order, and " + why +
                     "; take --cp.attention ulysses, which leaves them in order");
  }

  const Program& program_;
  std::vector<bool> has_tokens_, is_constant_;  // by tensor
  std::array<std::int64_t, 2> tokens_{};        // of a batch: sequences, tokens of each
};

}  // namespace

void check_token_order(const Program& program) {
  Check(program).run();
}

}  // namespace consist::context_parallel
