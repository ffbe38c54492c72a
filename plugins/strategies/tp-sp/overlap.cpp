#include "plugins/strategies/tp-sp/overlap.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "consist/analysis.h"
#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/tp-sp/parts.h"
#include "plugins/strategies/tp-sp/token_messages.h"

namespace consist::tensor_parallel {
namespace {

constexpr int batch_dim = 0;
constexpr int sequence_dim = 1;

/// Forward around one norm, as indices of instructions.
struct Block {
  std::optional<std::size_t> product;  ///< whose sums are scattered; absent for the embedding
  std::size_t scatter = 0, norm = 0, gather = 0;
  std::vector<std::size_t> readers;  ///< products that read the gathered tensor and are worth cutting
  std::size_t first() const { return product.value_or(scatter); }
  std::size_t last() const { return readers.empty() ? gather : readers.back(); }
  bool contains(std::size_t i) const {
    return i == product || i == scatter || i == norm || i == gather ||
           std::find(readers.begin(), readers.end(), i) != readers.end();
  }
};

class Overlap {
 public:
  Overlap(Program& program, int axis, int parts, bool in_turns_only)
      : program_(program),
        axis_(axis),
        parts_(parts),
        in_turns_only_(in_turns_only),
        any_tokens_do_(any_tokens_do(program, axis)) {
    old_ = std::move(program_.instructions);
    program_.instructions.clear();
    find_blocks();
  }

  void run() {
    if (!in_turns_only_) refuse_quantized();
    if (!blocks_.empty()) choose_dimension();
    if (in_turns_only_) {
      for (auto block = blocks_.begin(); block != blocks_.end();) {
        const std::ptrdiff_t length = chain_length(block);
        block = length == 1 ? blocks_.erase(block) : block + length;
      }
    }
    cut_.emplace(program_, dim_, parts_);
    auto block = blocks_.begin();
    for (std::size_t i = 0; i < old_.size(); ++i) {
      if (block != blocks_.end() && i == block->scatter && chain_length(block) > 1) {
        const auto end = block + chain_length(block);
        emit_chain(block, end);
        i = (end - 1)->gather;
        block = end;
      } else if (block != blocks_.end() && i == block->first() && chain_length(block) == 1) {
        emit_block(*block);
        i = block->last();
        ++block;
      } else {
        emit_other(old_[i]);
      }
    }
  }

 private:
  bool moves_tokens(const Instruction& i) const { return tensor_parallel::moves_tokens(program_, i, axis_); }
  bool in_forward(std::size_t i) const { return old_[i].tag.phase == Phase::forward; }
  bool is_product(std::size_t i) const { return in_forward(i) && old_[i].op->linear_part() == LinearPart::product; }
  bool is(std::size_t i, Movement movement) const { return in_forward(i) && old_[i].op->movement() == movement; }
  bool is_separable(std::size_t i, Separable into) const { return in_forward(i) && old_[i].op->separable() >= into; }

  void find_blocks() {
    const DefUse def_use(program_.tensors.size(), old_);
    const auto maker = [&](TensorId id) {
      return def_use.is_made(id) ? static_cast<std::size_t>(def_use.producer(id)) : old_.size();
    };
    const auto readers = [&](TensorId id) {
      return std::vector<std::size_t>(def_use.users(id).begin(), def_use.users(id).end());
    };
    for (std::size_t i = 0; i < old_.size(); ++i) {
      const std::optional<ResidualSum> of = old_[i].op->residual_sum();
      if (!of || !is_separable(i, Separable::tokens)) continue;
      Block block{.norm = i};
      block.scatter = maker(old_[i].inputs[static_cast<std::size_t>(of->x)]);
      if (block.scatter == old_.size() || !is(block.scatter, Movement::reduce_scatter) || !moves_tokens(old_[block.scatter]))
        continue;
      const std::size_t product = maker(old_[block.scatter].inputs[0]);
      if (product < old_.size() && is_product(product)) block.product = product;
      const std::vector<std::size_t> normed = readers(old_[i].outputs[0]);
      const auto gather = std::find_if(normed.begin(), normed.end(),
                                       [&](std::size_t r) { return is(r, Movement::all_gather) && moves_tokens(old_[r]); });
      if (gather == normed.end()) continue;
      block.gather = *gather;
      block.readers = worth_cutting(readers(old_[*gather].outputs[0]));
      if (!block.product && block.readers.empty()) continue;
      if (!blocks_.empty() && block.first() <= blocks_.back().last()) continue;
      blocks_.push_back(std::move(block));
    }
  }

  /// The products among `readers` that make up a quarter of their FLOPs or more: narrow ones, of a few key/value heads, do not
  /// fill a device when cut.
  std::vector<std::size_t> worth_cutting(const std::vector<std::size_t>& readers) const {
    std::vector<std::size_t> products;
    double all = 0;
    for (std::size_t r : readers) {
      if (is_product(r)) all += flops(r);
    }
    for (std::size_t r : readers) {
      if (is_product(r) && flops(r) * 4 >= all) products.push_back(r);
    }
    return products;
  }
  double flops(std::size_t i) const { return old_[i].op->cost(program_, old_[i]).flops; }

  std::string asked() const { return "--tp-sp.overlap-parts is " + std::to_string(parts_) + ", but "; }

  void refuse_quantized() const {
    for (std::size_t i = 0; i < old_.size(); ++i) {
      const bool quantized = in_forward(i) && std::any_of(old_[i].inputs.begin(), old_[i].inputs.end(), [&](TensorId id) {
                               return id != no_tensor && is_float8(program_[id].dtype);
                             });
      if (!quantized || flops(i) <= 0) continue;
      throw UsageError(asked() +
                       "products of 8-bit floats read tokens that were scaled and transposed together, so that parts would wait "
                       "for each other; leave --tp-sp.overlap-parts out, or choose another precision");
    }
  }

  /// Slices of the batch where it can be cut; of the only sequence otherwise.
  void choose_dimension() {
    const Shape stream = program_.local(input_of(blocks_.front().norm, residual_sum(blocks_.front()).x));
    if (stream[batch_dim] % parts_ == 0) {
      dim_ = batch_dim;
      return;
    }
    if (stream[batch_dim] != 1) {
      throw UsageError(asked() + "--batch is " + std::to_string(stream[batch_dim]) + "; choose a --batch that it divides, or 1");
    }
    if (stream[sequence_dim] % parts_ != 0) {
      throw UsageError(asked() + "a rank's part of the sequence is " + std::to_string(stream[sequence_dim]) +
                       " tokens, which do not divide by it");
    }
    if (!any_tokens_do_) {
      throw UsageError(asked() +
                       "ranks take stretches of the sequence as they are (the vocabulary does not divide by the ranks, an op "
                       "looks at the order of tokens, or "
                       "there is a pipeline); leave --tp-sp.overlap-parts at 1, or choose a --batch that it divides");
    }
    dim_ = sequence_dim;
  }

  /// Emits an instruction that belongs to no block. Another strategy may have cut the batch, so that blocks of its slices stand
  /// between each other's instructions.
  void emit_other(const Instruction& i) {
    if (any_tokens_do_ && !blocks_.empty() && moves_tokens(i) && moves_own_sequences(i))
      cut_->emit_in_parts(i);
    else
      cut_->emit_whole(i);
  }

  /// True if a collective that moves tokens has those of this rank's sequences alone, as the residual stream does. Experts that
  /// ranks share along another axis, too, have those of several ranks: a slice of these sequences is not contiguous, and
  /// tensors that are sent there in one message come back in one, so that they need not be cut alike.
  bool moves_own_sequences(const Instruction& i) const {
    const bool gathers = i.op->movement() == Movement::all_gather;
    const Placements &stream = program_[input_of(blocks_.front().norm, residual_sum(blocks_.front()).x)].placements,
                     &tokens = program_[gathers ? i.inputs[0] : i.outputs[0]].placements;
    return stream == tokens;
  }

  /// In slots: while a slice's collective runs, the compute queue works on the next instructions of its neighbours.
  void emit_block(const Block& block) {
    std::vector<std::size_t> after;
    std::set<TensorId> made;  // in the block or from it
    for (std::size_t i = block.first(); i <= block.last(); ++i) {
      const Instruction& instruction = old_[i];
      const bool inside = block.contains(i);
      const bool depends =
          std::any_of(instruction.inputs.begin(), instruction.inputs.end(), [&](TensorId id) { return made.contains(id); });
      if (inside || depends) made.insert(instruction.outputs.begin(), instruction.outputs.end());
      if (inside) continue;
      if (depends)
        after.push_back(i);
      else
        emit_other(instruction);
    }
    constexpr int apart = 2;  // slots between a slice's product and its norm, and its norm and the products that read it
    for (int slot = 0; slot < parts_ + 2 * apart; ++slot) {
      if (slot < parts_) {
        if (block.product) emit_part(*block.product, 1, slot);
        emit_part(block.scatter, 1, slot);
      }
      if (const int k = slot - apart; k >= 0 && k < parts_) {
        emit_norm(block, k);
      }
      if (const int k = slot - 2 * apart; k >= 0 && k < parts_) {
        for (std::size_t reader : block.readers) emit_part(reader, 1, k);
      }
    }
    for (std::size_t i : after) emit_other(old_[i]);
  }

  using BlockAt = std::vector<Block>::const_iterator;

  /// Instructions strictly between two positions that follow from the block's gathers, and the others.
  struct Segment {
    std::vector<std::size_t> following, others;
  };
  Segment segment_behind(const Block& block, std::size_t end) const {
    Segment segment;
    std::set<TensorId> made(old_[block.gather].outputs.begin(), old_[block.gather].outputs.end());
    for (std::size_t i = block.gather + 1; i < end; ++i) {
      const bool follows =
          std::any_of(old_[i].inputs.begin(), old_[i].inputs.end(), [&](TensorId id) { return made.contains(id); });
      if (follows) made.insert(old_[i].outputs.begin(), old_[i].outputs.end());
      (follows ? segment.following : segment.others).push_back(i);
    }
    return segment;
  }

  /// True if forward from `block` to the next one's norm may be done slice by slice: sequences do not depend on each other there.
  bool linked(const Block& block, const Block& next) const {
    if (dim_ != batch_dim || parts_ != 2 || next.scatter < block.gather) return false;
    const Segment segment = segment_behind(block, next.scatter);
    const auto is_input = [&](TensorId id) { return id != no_tensor && program_[id].role == Role::input && !program_[id].state; };
    const bool cuttable = std::all_of(segment.following.begin(), segment.following.end(), [&](std::size_t i) {
      const std::vector<TensorId>& read = old_[i].inputs;  // inputs of the step, such as documents, are not cut
      return is_separable(i, Separable::sequences) && std::none_of(read.begin(), read.end(), is_input);
    });
    const bool reads_norm = std::any_of(segment.others.begin(), segment.others.end(), [&](std::size_t i) {
      return reads_any(old_[i], old_[block.norm].outputs);  // beside the gather, as an adapter does, before all slices are there
    });
    return cuttable && !reads_norm && segment.following.size() > 1 && next.product == segment.following.back() &&
           next.norm == next.scatter + 1 && next.gather == next.norm + 1 &&
           input_of(next.norm, residual_sum(next).residual) == residual_of(block);
  }
  static bool reads_any(const Instruction& i, const std::vector<TensorId>& tensors) {
    return std::any_of(i.inputs.begin(), i.inputs.end(), [&](TensorId id) {
      return id != no_tensor && std::find(tensors.begin(), tensors.end(), id) != tensors.end();
    });
  }
  /// The residual that a block's norm passes on beside its output.
  TensorId residual_of(const Block& block) const {
    const std::vector<TensorId>& made = old_[block.norm].outputs;
    const auto sum = static_cast<std::size_t>(residual_sum(block).sum);
    return made.size() > sum && made[sum] != no_tensor ? made[sum] : input_of(block.norm, residual_sum(block).x);
  }
  ResidualSum residual_sum(const Block& block) const { return *old_[block.norm].op->residual_sum(); }
  TensorId input_of(std::size_t i, int k) const {
    const auto at = static_cast<std::size_t>(k);
    return at < old_[i].inputs.size() ? old_[i].inputs[at] : no_tensor;
  }
  std::ptrdiff_t chain_length(BlockAt block) const {
    std::ptrdiff_t length = 1;
    if (block->norm != block->scatter + 1 || block->gather != block->norm + 1) return length;
    while (block + length != blocks_.end() && linked(*(block + length - 1), *(block + length))) ++length;
    return length;
  }

  /// The instructions of a segment whose first ones, up to the one before this, take about half of its time.
  std::size_t half_of(const std::vector<std::size_t>& instructions) const {
    const auto seconds = [&](std::size_t i) { return costs_of(program_).seconds(program_, old_[i]); };
    double all = 0, first = 0;
    for (std::size_t i : instructions) all += seconds(i);
    std::size_t half = 0;
    while (half + 1 < instructions.size() && first + seconds(instructions[half]) / 2 < all / 2)
      first += seconds(instructions[half++]);
    return std::max<std::size_t>(half, 1);
  }

  void emit_norm(const Block& block, int k) {
    const auto [x, residual, sum] = residual_sum(block);
    cut_->emit_part(old_[block.norm], k, [x = x, residual = residual](std::size_t input) {
      return static_cast<int>(input) == x || static_cast<int>(input) == residual;
    });
    emit_part(block.gather, 1, k);
  }

  /// Two halves of the batch that alternate: a half's sums are scattered beside the first instructions of the other half's next
  /// products and attention, and its norm's output is gathered beside the last ones.
  void emit_chain(BlockAt begin, BlockAt end) {
    cut_->emit_in_parts(old_[begin->scatter]);
    std::set<TensorId> made;
    emit_norm(*begin, 0);
    for (BlockAt block = begin; block + 1 != end; ++block) {
      const Block& next = *(block + 1);
      const Segment segment = segment_behind(*block, next.scatter);
      for (std::size_t i : segment.others) emit_other(old_[i]);
      made.insert(old_[block->gather].outputs.begin(), old_[block->gather].outputs.end());
      for (std::size_t i : segment.following) made.insert(old_[i].outputs.begin(), old_[i].outputs.end());
      const std::size_t half = half_of(segment.following);
      for (int k = 0; k < parts_; ++k) {
        for (std::size_t n = 0; n < segment.following.size(); ++n) {
          if (n == half) emit_norm(k == 0 ? *block : next, 1 - k);
          const Instruction& instruction = old_[segment.following[n]];
          cut_->emit_part(instruction, k, [&](std::size_t input) { return made.contains(instruction.inputs[input]); });
        }
        emit_part(next.scatter, 1, k);
      }
    }
    emit_norm(*(end - 1), 1);
  }

  /// Slice k of an instruction whose first `cut` inputs are cut.
  void emit_part(std::size_t at, std::size_t cut, int k) {
    cut_->emit_part(old_[at], k, [&](std::size_t input) { return input < cut; });
  }

  Program& program_;
  int axis_, parts_;
  bool in_turns_only_;  // and nothing around single norms
  bool any_tokens_do_;  // collectives outside of blocks are cut like those inside
  int dim_ = batch_dim;
  std::vector<Instruction> old_;
  std::vector<Block> blocks_;
  std::optional<Parts> cut_;
};

/// Two halves of the batch if each has enough tokens for products that fill a device.
bool halves_pay(const Program& program, int axis) {
  constexpr std::int64_t least_tokens = 4096;  // of a half
  for (const Instruction& i : program.instructions) {
    const std::optional<ResidualSum> of = i.op->residual_sum();
    if (!of || i.tag.phase != Phase::forward) continue;
    const Shape stream = program.local(i.inputs[static_cast<std::size_t>(of->x)]);
    return stream[batch_dim] % 2 == 0 &&
           stream[batch_dim] * stream[sequence_dim] * program.mesh.size_of(axis) >= 2 * least_tokens;
  }
  return false;
}

}  // namespace

void overlap_forward(Program& step, const OverlapSettings& settings) {
  const bool automatic = settings.parts == 0;
  const int parts = automatic ? halves_pay(step, settings.axis) ? 2 : 1 : settings.parts;
  if (parts > 1) Overlap(step, settings.axis, parts, automatic).run();
}

}  // namespace consist::tensor_parallel
