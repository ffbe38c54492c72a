#include "plugins/strategies/tp-sp/overlap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/tp-sp/token_messages.h"

namespace consist::tensor_parallel {
namespace {

constexpr int batch_dim = 0;
constexpr int sequence_dim = 1;

/// Forward around one norm, as indices of instructions.
struct Block {
  std::optional<std::size_t> product;  ///< whose sums are scattered; the embedding's is no product
  std::size_t scatter = 0, norm = 0, gather = 0;
  std::vector<std::size_t> readers;  ///< products that read what is gathered and are worth cutting
  std::size_t first() const { return product.value_or(scatter); }
  std::size_t last() const { return readers.empty() ? gather : readers.back(); }
  bool contains(std::size_t i) const {
    return i == product || i == scatter || i == norm || i == gather ||
           std::find(readers.begin(), readers.end(), i) != readers.end();
  }
};

class Overlap {
 public:
  Overlap(Program& program, int axis, int parts)
      : program_(program), axis_(axis), parts_(parts), any_tokens_do_(any_tokens_do(program, axis)) {
    old_ = std::move(program_.instructions);
    program_.instructions.clear();
    find_blocks();
  }

  void run() {
    if (!blocks_.empty()) choose_dimension();
    auto block = blocks_.begin();
    for (std::size_t i = 0; i < old_.size(); ++i) {
      if (block != blocks_.end() && i == block->first()) {
        emit_block(*block);
        i = block->last();
        ++block;
      } else if (any_tokens_do_ && !blocks_.empty() && moves_tokens(old_[i])) {
        emit_in_parts(old_[i]);
      } else {
        emit_whole(old_[i]);
      }
    }
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }

  bool moves_tokens(const Instruction& i) const { return tensor_parallel::moves_tokens(program_, i, axis_); }
  bool is(std::size_t i, std::string_view op) const { return old_[i].op->name() == op && old_[i].tag.phase == Phase::forward; }

  void find_blocks() {
    std::vector<std::size_t> maker(program_.tensors.size(), old_.size());
    std::vector<std::vector<std::size_t>> readers(program_.tensors.size());
    for (std::size_t i = 0; i < old_.size(); ++i) {
      for (TensorId id : old_[i].outputs) {
        if (id != no_tensor) maker[index(id)] = i;
      }
      for (TensorId id : old_[i].inputs) {
        if (id != no_tensor) readers[index(id)].push_back(i);
      }
    }
    for (std::size_t i = 0; i < old_.size(); ++i) {
      if (!is(i, "rms_norm")) continue;
      Block block{.norm = i};
      block.scatter = maker[index(old_[i].inputs[0])];
      if (block.scatter == old_.size() || !is(block.scatter, "reduce_scatter") || !moves_tokens(old_[block.scatter])) continue;
      const std::size_t product = maker[index(old_[block.scatter].inputs[0])];
      if (product < old_.size() && is(product, "linear")) block.product = product;
      const std::vector<std::size_t>& normed = readers[index(old_[i].outputs[0])];
      const auto gather =
          std::find_if(normed.begin(), normed.end(), [&](std::size_t r) { return is(r, "all_gather") && moves_tokens(old_[r]); });
      if (gather == normed.end()) continue;
      block.gather = *gather;
      block.readers = worth_cutting(readers[index(old_[*gather].outputs[0])]);
      if (!block.product && block.readers.empty()) continue;
      if (!blocks_.empty() && block.first() <= blocks_.back().last()) continue;
      blocks_.push_back(std::move(block));
    }
  }

  /// The products among `readers` that make up a quarter of their FLOPs or more: narrow ones, of a few key/value heads, do not
  /// fill a device in parts.
  std::vector<std::size_t> worth_cutting(const std::vector<std::size_t>& readers) const {
    std::vector<std::size_t> products;
    double all = 0;
    for (std::size_t r : readers) {
      if (is(r, "linear")) all += flops(r);
    }
    for (std::size_t r : readers) {
      if (is(r, "linear") && flops(r) * 4 >= all) products.push_back(r);
    }
    return products;
  }
  double flops(std::size_t i) const { return old_[i].op->cost(program_, old_[i]).flops; }

  /// Parts of the batch where it can be cut; of the only sequence otherwise.
  void choose_dimension() {
    const Shape stream = program_.local(old_[blocks_.front().norm].inputs[0]);
    const std::string asked = "--tp-sp.overlap-parts is " + std::to_string(parts_) + ", but ";
    if (stream[batch_dim] % parts_ == 0) {
      dim_ = batch_dim;
      return;
    }
    if (stream[batch_dim] != 1) {
      throw UsageError(asked + "--batch is " + std::to_string(stream[batch_dim]) + "; choose a --batch that it divides, or 1");
    }
    if (stream[sequence_dim] % parts_ != 0) {
      throw UsageError(asked + "a rank's part of the sequence is " + std::to_string(stream[sequence_dim]) +
                       " tokens, which do not divide by it");
    }
    if (!any_tokens_do_) {
      throw UsageError(asked +
                       "ranks take stretches of the sequence as they are (the vocabulary does not divide by the ranks, or "
                       "there is a pipeline); leave --tp-sp.overlap-parts at 1, or choose a --batch that it divides");
    }
    dim_ = sequence_dim;
  }

  /// The newest value of `tensor` in one piece.
  TensorId whole(TensorId tensor, const Tag& tag) {
    if (tensor == no_tensor) return tensor;
    if (auto parts = parts_of_.find(tensor); parts != parts_of_.end()) {
      const TensorId joined = add_tensor(program_[tensor], 0);
      append("join", parts->second, {joined}, tag);
      parts_of_.erase(parts);
      joined_[tensor] = joined;
    }
    const auto joined = joined_.find(tensor);
    return joined == joined_.end() ? tensor : joined->second;
  }

  /// The newest value of `tensor` in parts.
  const std::vector<TensorId>& parts(TensorId tensor, const Tag& tag) {
    if (auto known = parts_of_.find(tensor); known != parts_of_.end()) return known->second;
    const TensorId from = whole(tensor, tag);
    append("views", {from}, make_parts(tensor), tag);
    return parts_of_[tensor];
  }

  /// Tensors for the parts of `tensor`, in its place, which hold its value from now on.
  const std::vector<TensorId>& make_parts(TensorId tensor) {
    Tensor part = program_[tensor];
    part.shape[dim_] /= parts_;
    std::vector<TensorId> made;
    std::int64_t offset = 0;
    for (int k = 0; k < parts_; ++k) {
      made.push_back(add_tensor(part, offset));
      offset += program_.bytes(made.back());
    }
    joined_.erase(tensor);
    return parts_of_[tensor] = std::move(made);
  }

  TensorId add_tensor(Tensor tensor, std::int64_t offset) {
    tensor.offset += offset;
    program_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(program_.tensors.size()) - 1;
  }

  void append(std::string_view op, std::vector<TensorId> inputs, std::vector<TensorId> outputs, Tag tag) {
    tag.inserted_by = "tp-sp";
    Instruction made{.op = &registry().get(op), .inputs = std::move(inputs), .outputs = std::move(outputs), .tag = tag};
    made.attributes.set("dim", std::int64_t{dim_});
    if (op == "views") made.attributes.set("parts", std::int64_t{parts_});
    program_.instructions.push_back(std::move(made));
  }

  void emit_whole(const Instruction& old) {
    Instruction i = old;
    for (TensorId& input : i.inputs) input = whole(input, old.tag);
    program_.instructions.push_back(std::move(i));
  }

  /// The collective over all parts at once.
  void emit_in_parts(const Instruction& old) {
    Instruction i = old;
    i.inputs.clear();
    i.outputs.clear();
    for (TensorId input : old.inputs) {
      const std::vector<TensorId>& of = parts(input, old.tag);
      i.inputs.insert(i.inputs.end(), of.begin(), of.end());
    }
    for (TensorId output : old.outputs) {
      const std::vector<TensorId>& of = make_parts(output);
      i.outputs.insert(i.outputs.end(), of.begin(), of.end());
    }
    program_.instructions.push_back(std::move(i));
  }

  /// Part k of an instruction whose first `cut` inputs and whose outputs are cut.
  void emit_part(std::size_t at, std::size_t cut, int k) {
    Instruction i = old_[at];
    for (std::size_t input = 0; input < i.inputs.size(); ++input) {
      if (i.inputs[input] == no_tensor) continue;
      i.inputs[input] = input < cut ? parts(i.inputs[input], i.tag)[static_cast<std::size_t>(k)] : whole(i.inputs[input], i.tag);
    }
    for (TensorId& output : i.outputs) {
      if (output == no_tensor) continue;
      if (!parts_of_.contains(output)) make_parts(output);
      output = parts_of_[output][static_cast<std::size_t>(k)];
    }
    program_.instructions.push_back(std::move(i));
  }

  /// In slots: while a part's collective runs, the compute queue works on what is next of the parts around it.
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
        emit_whole(instruction);
    }
    constexpr int apart = 2;  // slots between a part's product and its norm, and its norm and the products that read it
    for (int slot = 0; slot < parts_ + 2 * apart; ++slot) {
      if (slot < parts_) {
        if (block.product) emit_part(*block.product, 1, slot);
        emit_part(block.scatter, 1, slot);
      }
      if (const int k = slot - apart; k >= 0 && k < parts_) {
        emit_part(block.norm, 2, k);
        emit_part(block.gather, 1, k);
      }
      if (const int k = slot - 2 * apart; k >= 0 && k < parts_) {
        for (std::size_t reader : block.readers) emit_part(reader, 1, k);
      }
    }
    for (std::size_t i : after) emit_whole(old_[i]);
  }

  Program& program_;
  int axis_, parts_;
  bool any_tokens_do_;  // collectives outside of blocks are cut like those inside
  int dim_ = batch_dim;
  std::vector<Instruction> old_;
  std::vector<Block> blocks_;
  std::map<TensorId, std::vector<TensorId>> parts_of_;  // tensors of the old program whose newest value is in parts
  std::map<TensorId, TensorId> joined_;                 // those that were joined again, under which name
};

/// Two parts where each has tokens enough for products that fill a device, else none.
int parts_that_pay(const Program& program, int axis) {
  constexpr std::int64_t least_tokens = 4096;  // of a part
  for (const Instruction& i : program.instructions) {
    if (i.op->name() != "rms_norm" || i.tag.phase != Phase::forward) continue;
    const Shape stream = program.local(i.inputs[0]);
    const bool divides = stream[batch_dim] % 2 == 0 || (stream[batch_dim] == 1 && stream[sequence_dim] % 2 == 0);
    return divides && stream[batch_dim] * stream[sequence_dim] * program.mesh.size_of(axis) >= 2 * least_tokens ? 2 : 1;
  }
  return 1;
}

}  // namespace

void overlap_forward(Program& step, const OverlapSettings& settings) {
  const int parts = settings.parts == 0 ? parts_that_pay(step, settings.axis) : settings.parts;
  if (parts > 1) Overlap(step, settings.axis, parts).run();
}

}  // namespace consist::tensor_parallel
