// rows_at and write_rows: rows of a table, and of a KV cache, from a position on that is known only when the step
// runs. One program then serves every position of a sequence.
#include "core/ops/core_ops.h"

namespace consist::ops {
namespace {

const TensorType position_type{DType::i32, {1}};
constexpr int sequence_dim = 1;

class RowsAt final : public NamedOp {
 public:
  RowsAt() : NamedOp("rows_at") {}
  TokenOrder token_order() const noexcept override { return TokenOrder::fixed; }
  Types infer(const Types& in, const Attributes& attributes) const override {
    const TensorType& table = present(in, 0);
    check_present(in, 1, position_type);
    const std::int64_t rows = attributes.integer("rows");
    require(table.shape.rank() == 2, "the table must be [positions, columns]");
    require(rows >= 1 && rows <= table.shape[0], "rows must be at least 1 and no more than the table has");
    return {TensorType{table.dtype, {rows, table.shape[1]}}};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (axis.inputs[0].is_shard(0)) axis.inputs[0] = Placement::replicate();
    axis.inputs[1] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
};

/// The rows take the placement of the cache: it is a state and does not move.
class WriteRows final : public NamedOp {
 public:
  WriteRows() : NamedOp("write_rows") {}
  TokenOrder token_order() const noexcept override { return TokenOrder::fixed; }
  int updates_in_place(int /*output*/) const noexcept override { return 0; }
  bool takes_strided_view(int input) const noexcept override { return input == 1; }
  Types infer(const Types& in, const Attributes& /*attributes*/) const override {
    const TensorType& cache = present(in, 0);
    const TensorType& rows = present(in, 1);
    check_present(in, 2, position_type);
    require(cache.shape.rank() == 3 && rows.shape.rank() == 3, "cache and rows must be [batch, sequence, channels]");
    require(rows.dtype == cache.dtype && rows.shape[0] == cache.shape[0] && rows.shape[2] == cache.shape[2] &&
                rows.shape[sequence_dim] >= 1 && rows.shape[sequence_dim] <= cache.shape[sequence_dim],
            "rows must be of the cache's batch, channels and dtype, and no more than it holds");
    return {cache};
  }
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& /*attributes*/) const override {
    if (axis.inputs[0].is_shard(sequence_dim) || axis.inputs[0].is_flat()) axis.inputs[0] = Placement::replicate();
    axis.inputs[1] = axis.inputs[0];
    axis.inputs[2] = Placement::replicate();
    axis.outputs = {axis.inputs[0]};
  }
  /// The cache is not read, and only the rows are written to it.
  Cost cost(const Program& program, const Instruction& i) const override {
    return {.bytes = 2.0 * static_cast<double>(program.bytes(i.inputs[1]))};
  }
};

}  // namespace

void register_cache(OpRegistry& registry) {
  registry.add(std::make_unique<RowsAt>());
  registry.add(std::make_unique<WriteRows>());
}

}  // namespace consist::ops
