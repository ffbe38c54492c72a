#include "core/frozen/frozen_weights.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/passes/emit_anew.h"

namespace consist {
namespace {

constexpr std::size_t weight_input = 1;  // of a product

bool is_product(const Instruction& i) {
  static const Op* const of_experts = &registry().get("grouped_linear");
  return i.op->linear_part() == LinearPart::product || i.op == of_experts;
}

/// True for an op that puts parameters in another place, such as heads that ranks share.
bool repeats(const Instruction& i) {
  static const Op* const repeat = &registry().get("repeat_heads");
  return i.op == repeat;
}

/// True if products read the parameter, where it lies or in another place, and nothing else does.
bool is_read_by_products(const Program& program, const DefUse& def_use, TensorId weight) {
  const std::span<const InstructionId> users = def_use.users(weight);
  return !users.empty() && std::ranges::all_of(users, [&](InstructionId user) {
    const Instruction& i = program.instructions[static_cast<std::size_t>(user)];
    if (is_product(i)) return std::ranges::count(i.inputs, weight) == 1 && i.inputs[weight_input] == weight;
    if (!i.op->changes_placement() && !repeats(i)) return false;
    return std::ranges::all_of(i.outputs, [&](TensorId output) { return is_read_by_products(program, def_use, output); });
  });
}

/// Channels of a row of the weight that a rank holds; of a flat slice those of a whole row.
std::int64_t local_channels(const Program& program, TensorId weight) {
  Placements placements = program[weight].placements;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (placements[axis].is_flat()) placements[axis] = Placement::replicate();
  }
  return local_shape(program[weight].shape, placements, program.mesh).last();
}

void check_rows(const Program& program, TensorId weight, const WeightBlocks& blocks) {
  const Tensor& t = program[weight];
  const std::int64_t all = t.shape.last(), here = local_channels(program, weight);
  if (all % blocks.length == 0 && here % blocks.length == 0) return;
  throw UsageError("--frozen-weights " + text_of(blocks) + ": '" + t.name + "' has rows of " + std::to_string(all) +
                   (here == all ? "" : ", of which a rank holds " + std::to_string(here)) +
                   ", which are no whole blocks; choose a length that divides them, for example --frozen-weights " +
                   text_of({blocks.code, std::gcd(here, blocks.length)}));
}

/// Decodes weights where forward reads them.
class Decoder {
 public:
  Decoder(Program& forward, const WeightBlocks& blocks) : forward_(forward), blocks_(blocks) {}

  void run() {
    choose();
    forward_ = emit_anew(forward_, [this](Builder& b, const Instruction& i, std::vector<TensorId>& inputs) {
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        const auto weight = weights_.find(i.inputs[k]);
        if (weight != weights_.end()) inputs[k] = decoded(b, inputs[k], weight->second);
      }
      return std::optional<std::vector<TensorId>>();
    });
  }

 private:
  struct Weight {
    std::string name;
    DType dtype;
  };

  void choose() {
    const DefUse def_use(forward_);
    for (Parameter& p : forward_.parameters) {
      Tensor& tensor = forward_[p.tensor];
      if (p.trainable || tensor.shape.rank() < 2 || !is_read_by_products(forward_, def_use, p.tensor)) continue;
      check_rows(forward_, p.tensor, blocks_);
      weights_.emplace(p.tensor, Weight{tensor.name, tensor.dtype});
      tensor.shape = blocks_.stored(tensor.shape);
      tensor.dtype = DType::u8;
      p.blocks = blocks_;
    }
    if (weights_.empty())
      throw UsageError("--frozen-weights " + text_of(blocks_) +
                       ": no weight of a linear is frozen; it goes with --adapter, --freeze or --train-only, or a --loss with a "
                       "frozen model");
    for (const Instruction& i : forward_.instructions) {  // the same in other places
      if (!i.op->changes_placement()) continue;
      for (std::size_t k = 0; k < i.inputs.size(); ++k) {
        if (const auto weight = weights_.find(i.inputs[k]); weight != weights_.end())
          weights_.emplace(i.outputs[k], weight->second);
      }
    }
  }

  TensorId decoded(Builder& b, TensorId stored, const Weight& weight) {
    const auto [known, is_new] = made_.try_emplace({stored, b.tag.layer}, no_tensor);
    if (is_new)
      known->second = b.emit_one("decode_weights", {stored},
                                 {{"blocks", text_of(blocks_)}, {"dtype", std::string(name_of(weight.dtype))}}, weight.name);
    return known->second;
  }

  Program& forward_;
  const WeightBlocks& blocks_;
  std::map<TensorId, Weight> weights_;                          // those in blocks, as they were
  std::map<std::pair<TensorId, std::int16_t>, TensorId> made_;  // by stored weight and layer
};

void refuse_quantized(const Program& step, const Instruction& reader, TensorId decoded) {
  const bool quantizes =
      std::ranges::any_of(reader.outputs, [&](TensorId output) { return output != no_tensor && is_float8(step[output].dtype); });
  if (!quantizes) return;
  throw UsageError("--frozen-weights: the precision makes 8-bit copies of '" + step[decoded].name +
                   "', which lie beside its codes; take --precision bf16, or none");
}

}  // namespace

void keep_in_blocks(Program& forward, const WeightBlocks& blocks) {
  Decoder(forward, blocks).run();
}

void refuse_copies_of_decoded(const Program& forward) {
  static const Op* const decode = &registry().get("decode_weights");
  const DefUse def_use(forward);
  for (const Instruction& i : forward.instructions) {
    if (i.op != decode) continue;
    for (const InstructionId user : def_use.users(i.outputs[0]))
      refuse_quantized(forward, forward.instructions[static_cast<std::size_t>(user)], i.outputs[0]);
  }
}

}  // namespace consist
