#include "plugins/strategies/cp/partition.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/token_order.h"
#include "plugins/strategies/cp/exchanges.h"
#include "plugins/strategies/cp/repeated_heads.h"

namespace consist::context_parallel {
namespace {

constexpr int sequence_dim = 1;  // of activations [batch, sequence, channels]
constexpr int channel_dim = 2;
constexpr int row_dim = 0;          // of a table of positions
constexpr std::size_t operands = 3;  // of attention: queries, keys, values

class Partitioner {
 public:
  Partitioner(Program& program, int axis, Attention attention)
      : program_(program), axis_(axis), ranks_(program.mesh.size_of(axis)), attention_(attention) {}

  void run() {
    if (in_zigzag()) program_.zigzag = ranks_;
    place_inputs();
    for (const TensorId table : tables_of_positions()) place_table(table);
    std::vector<RepeatedHeads> repeated;
    for (Instruction& i : program_.instructions) {
      if (!i.op->attends()) continue;
      if (in_zigzag())
        i.attributes.set("zigzag", std::int64_t{ranks_});
      else
        share_heads(i, repeated);
      if (attention_ == Attention::ring) i.attributes.set("ring", std::int64_t{1});
    }
    repeat_heads(program_, repeated);
    if (!in_zigzag()) exchange_around_attention(program_, axis_);
  }

 private:
  bool in_zigzag() const { return attention_ != Attention::ulysses; }
  std::string name() const { return "cp=" + std::to_string(ranks_); }
  Placement& on_axis(TensorId tensor) { return program_[tensor].placements[axis_]; }

  /// Token ids, targets and fields are [batch, sequence].
  void place_inputs() {
    const std::int64_t parts = in_zigzag() ? 2 * ranks_ : ranks_;
    for (Tensor& tensor : program_.tensors) {
      if (tensor.role != Role::input || tensor.state || tensor.shape.rank() <= sequence_dim) continue;
      if (const std::int64_t sequence = tensor.shape[sequence_dim]; sequence % parts != 0) {
        throw UsageError(name() + ": --sequence is " + std::to_string(sequence) + ", which the ranks cannot share equally" +
                         (in_zigzag() ? " in two chunks each" : "") + "; choose a multiple of " + std::to_string(parts));
      }
      tensor.placements[axis_] = Placement::shard(sequence_dim);
    }
  }

  std::set<TensorId> tables_of_positions() const {
    std::set<TensorId> tables;
    for (const Instruction& i : program_.instructions) {
      if (const int input = i.op->position_rows(); input >= 0) tables.insert(i.inputs[static_cast<std::size_t>(input)]);
    }
    return tables;
  }

  /// Gives each rank the rows of its tokens. They are sliced from a table that is computed or trained, which lies in order of
  /// position.
  void place_table(TensorId table) {
    const auto constant = std::find_if(program_.constants.begin(), program_.constants.end(),
                                       [&](const Constant& c) { return c.tensor == table; });
    if (constant == program_.constants.end()) {
      if (!in_zigzag()) return;
      throw UsageError(name() + ": '" + program_[table].name +
                       "' is a table of positions that is no constant, so that its rows cannot be brought into the order of "
                       "--cp.attention gather and ring; take --cp.attention ulysses");
    }
    on_axis(table) = Placement::shard(row_dim);
    if (in_zigzag()) constant->fill = in_order(std::move(constant->fill), program_[table].shape[row_dim]);
  }

  std::function<void(std::span<float>)> in_order(std::function<void(std::span<float>)> fill, std::int64_t rows) const {
    return [fill = std::move(fill), rows, ranks = ranks_](std::span<float> out) {
      std::vector<float> by_position(out.size());
      fill(by_position);
      const std::int64_t columns = static_cast<std::int64_t>(out.size()) / rows;
      for (std::int64_t row = 0; row < rows; ++row)
        std::copy_n(by_position.begin() + position_of(row, rows, ranks) * columns, columns, out.begin() + row * columns);
    };
  }

  /// Ulysses: true if each rank can have some of the heads.
  void share_heads(const Instruction& i, std::vector<RepeatedHeads>& repeated) {
    const ChannelSplit split = *i.op->channel_split(i.attributes);
    for (std::size_t k = 0; k < operands; ++k) {
      const std::int64_t head_dim = split.unit_of(k);
      const std::int64_t heads = program_[i.inputs[k]].shape[channel_dim] / head_dim;
      if (heads % ranks_ != 0) {
        if (k == 0 || ranks_ % heads != 0) refuse_heads(k == 0, heads);
        repeated.push_back({i.inputs[k], ranks_, head_dim});
      }
    }
  }

  [[noreturn]] void refuse_heads(bool queries, std::int64_t heads) const {
    throw UsageError(name() + ": the number of " + (queries ? "attention" : "key/value") + " heads is " + std::to_string(heads) +
                     ", which " + std::to_string(ranks_) +
                     " ranks cannot share equally under --cp.attention ulysses; choose another size for cp, or --cp.attention "
                     "gather");
  }

  Program& program_;
  int axis_, ranks_;
  Attention attention_;
};

}  // namespace

void partition(Program& forward, int axis, Attention attention) {
  Partitioner(forward, axis, attention).run();
}

}  // namespace consist::context_parallel
