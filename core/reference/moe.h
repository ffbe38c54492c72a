// The ops of mixtures of experts of docs/ops.md in fp64, and their gradients, written from their formulas and without regard to
// speed.
#pragma once

#include "core/reference/ops.h"

namespace consist::reference {

/// A stated load: ids of the tokens [batch, sequence]; upper ends of intervals and the experts that have them [orders, 2,
/// experts]; the router's number.
struct StatedLoad {
  const Value &ids, &intervals;
  std::int64_t router = 0;
};

/// A router by sigmoids: `bias` [experts], added for the choice alone, may be null; choices come from `kept_groups` of `groups`.
struct SigmoidRouter {
  const Value* bias = nullptr;
  std::int64_t groups = 1, kept_groups = 1;
};

/// weights, experts, statistics. The choice is by logits, or by `sigmoid` or `load` if it is not null.
Values moe_route(const Value& logits, std::int64_t choices, bool normalize, const StatedLoad* load = nullptr,
                 const SigmoidRouter* sigmoid = nullptr);

/// dlogits of the choices that were made; each gradient may be absent (null). `sigmoid`: of a router by sigmoids.
Value moe_route_grad(const Value& logits, const Value& experts, const Value* dweights, const Value* dstatistics, bool normalize,
                     bool sigmoid = false);

/// Adds the choices of `statistics` to row `row` of counts.
void count_choices(Value& counts, const Value& statistics, std::int64_t row);

/// `count`: of the targets that count, where that is an input.
double balance_loss(const Value& statistics, double balance, double z, double count = 1);

Value balance_loss_grad(const Value& statistics, double balance, double z, double count = 1);

/// rows, row_weights, pairs, counts, overflow: of the `held` experts from `first` on, with room for `room` rows.
Values moe_dispatch(const Value& x, const Value& experts, const Value& weights, std::int64_t room, std::int64_t first,
                    std::int64_t held);

/// Adds each row to its token: tokens of `experts` [batch, sequence, choices], or of more dimensions.
Value moe_combine(const Value& rows, const Value& pairs, const Value& experts);

Value moe_combine_grad(const Value& dy, const Value& pairs, std::int64_t choices);

/// dx, dweights
Values moe_dispatch_grad(const Value& drows, const Value& drow_weights, const Value& pairs, const Value& experts);

Value grouped_linear(const Value& x, const Value& w, const Value& counts);

Value grouped_linear_input_grad(const Value& dy, const Value& w, const Value& counts);

Value grouped_linear_weight_grad(const Value& x, const Value& dy, const Value& counts);

Value moe_swiglu(const Value& gate_up, const Value& row_weights);

/// dgate_up, drow_weights
Values moe_swiglu_grad(const Value& dh, const Value& gate_up, const Value& row_weights);

}  // namespace consist::reference
