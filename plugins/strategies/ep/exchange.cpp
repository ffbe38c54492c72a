#include "plugins/strategies/ep/exchange.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/room.h"

namespace consist::expert_parallel {
namespace {

/// Operands of ops that dispatch tokens, and of the sum of rows over tokens.
constexpr std::size_t x_input = 0, experts_input = 1, weights_input = 2, pairs_output = 2;

/// The share of tokens that have one of the `held` experts of a rank among their `choices` of `experts`, each equally often
/// chosen.
double share_with_rank(std::int64_t experts, std::int64_t held, std::int64_t choices) {
  double without = 1;
  for (std::int64_t choice = 0; choice < choices; ++choice)
    without *= std::max(0.0, static_cast<double>(experts - held - choice) / static_cast<double>(experts - choice));
  return 1 - without;
}

class Exchanger {
 public:
  Exchanger(Program& program, AxisSet axes, double capacity)
      : program_(program), axes_(axes), ranks_(program.mesh.size_of(axes)), capacity_(capacity) {}

  void run() {
    std::vector<Instruction> old = std::move(program_.instructions);
    program_.instructions.clear();
    for (Instruction& i : old) {
      if (i.op->dispatches_tokens())
        send(std::move(i));
      else if (const auto sent = sent_of(i); sent != sent_.end())
        bring_back(std::move(i), sent->second);
      else
        program_.instructions.push_back(std::move(i));
    }
  }

 private:
  struct Sent {
    TensorId experts = no_tensor;       ///< of the tokens
    TensorId sent_experts = no_tensor;  ///< of those that were sent
    TensorId slots = no_tensor;
  };
  using SentByPairs = std::map<TensorId, Sent>;

  /// A tensor whose type is inferred when shardings are propagated.
  TensorId add(const std::string& name, int rank) {
    const auto id = static_cast<TensorId>(program_.tensors.size());
    Tensor tensor{.name = name, .storage = id};
    for (int d = 0; d < rank; ++d) tensor.shape.push_back(1);
    program_.tensors.push_back(std::move(tensor));
    return id;
  }

  void send(Instruction dispatch) {
    const TensorId experts = dispatch.inputs[experts_input];
    const std::string name = program_[dispatch.outputs.front()].name;
    const std::int64_t count = dispatch.attributes.integer("experts");
    Instruction sends{.op = &registry().get("moe_send"), .inputs = dispatch.inputs, .attributes = {}, .tag = dispatch.tag};
    const Room room = room_for(program_[experts].shape, count);
    sends.attributes = {
        {"rows", room.rows}, {"most_rows", room.most}, {"ranks", std::int64_t{ranks_}}, {"experts", count}, {"axis", axes_}};
    for (const char* what : {".sent", ".sent_experts", ".sent_weights"}) sends.outputs.push_back(add(name + what, 4));
    sends.outputs.push_back(add(name + ".slots", 3));
    sends.outputs.push_back(add(name + ".unsent", 0));
    std::copy_n(sends.outputs.begin(), weights_input + 1, dispatch.inputs.begin() + x_input);
    sent_[dispatch.outputs[pairs_output]] = {experts, sends.outputs[experts_input], sends.outputs[weights_input + 1]};
    program_.instructions.push_back(std::move(sends));
    program_.instructions.push_back(std::move(dispatch));
  }

  /// Finds the sent tokens whose rows `i` adds up; end() if it adds up none.
  SentByPairs::const_iterator sent_of(const Instruction& i) const {
    return std::find_if(sent_.begin(), sent_.end(), [&](const auto& entry) {
      return std::ranges::count(i.inputs, entry.first) != 0 && std::ranges::count(i.inputs, entry.second.experts) != 0;
    });
  }

  void bring_back(Instruction combine, const Sent& sent) {
    const TensorId y = combine.outputs.at(0);
    std::ranges::replace(combine.inputs, sent.experts, sent.sent_experts);
    combine.outputs[0] = add(program_[y].name + ".sums", 4);
    Instruction returns{.op = &registry().get("moe_return"),
                        .inputs = {combine.outputs[0], sent.slots},
                        .outputs = {y},
                        .attributes = {},
                        .tag = combine.tag};
    returns.attributes = {{"axis", axes_}};
    program_.instructions.push_back(std::move(combine));
    program_.instructions.push_back(std::move(returns));
  }

  struct Room {
    std::int64_t rows, most;
  };
  /// Over all ranks but those of the group: for the tokens that a rank sends to another.
  Room room_for(const Shape& choices, std::int64_t experts) const {
    const std::int64_t groups = program_.mesh.ranks() / ranks_;
    const std::int64_t tokens =
        (choices.rows() + program_.mesh.ranks() - 1) / program_.mesh.ranks();  // of a rank, or of several together
    const double mean = static_cast<double>(tokens) * share_with_rank(experts, experts / ranks_, choices.last());
    const auto wanted = static_cast<std::int64_t>(std::min(std::ceil(capacity_ * mean), static_cast<double>(tokens)));
    return {std::min(rounded_room(wanted * groups, groups), tokens * groups), tokens * groups};
  }

  Program& program_;
  AxisSet axes_;
  int ranks_;
  double capacity_;
  SentByPairs sent_;
};

}  // namespace

void exchange_tokens(Program& forward, AxisSet axes, double capacity) {
  Exchanger(forward, axes, capacity).run();
}

}  // namespace consist::expert_parallel
