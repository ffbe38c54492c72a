// Gradients of the ops of docs/ops.md in fp64, written from their formulas and without regard to speed: exact where those of
// ops.h by central differences are not. tests/interpreter compares the two.
#pragma once

#include "core/reference/ops.h"

namespace consist::reference {

/// dx = dy w. x [rows, K], w [N, K], dy [rows, N].
Value linear_input_grad(const Value& dy, const Value& w);

/// dw = dyᵀ x
Value linear_weight_grad(const Value& x, const Value& dy);

Value linear_bias_grad(const Value& dy);

/// The gradient of a table of `rows` rows that begins with id `first`; ids of others and `padding_id` count nothing.
Value embedding_grad(const Value& ids, const Value& dy, std::int64_t rows, std::int64_t first, std::int64_t padding_id);

/// dx, dw
Values rms_norm_grad(const Value& dy, const Value& x, const Value& rstd, const Value& w);

/// dx, dw? of dy, table and, where heads are normed first, x, rstd and w.
Values rope_grad(const Value& dy, const Value& table, const Value* x, const Value* rstd, const Value* w, std::int64_t head_dim);

/// dq, dk, dv. The probabilities come from lse, as kernels make them again.
Values attention_grad(const Value& dout, const Value& q, const Value& k, const Value& v, const Value& o, const Value& lse,
                      std::int64_t head_dim, const Visibility& visibility = {}, AttentionScores scores = {});

/// dgate, dup
Values swiglu_grad(const Value& dh, const Value& gate, const Value& up);

/// dx and dw of the products that make logits x wᵀ.
std::pair<Value, Value> logits_grad(const Value& dlogits, const Value& x, const Value& w);

/// loss, dx, dw
Values lm_head_loss_grad(const Values& in, double scale);
/// Inputs x, w, targets; then the gradients of the log-probabilities and of the denominators, one of which may be absent. dx, dw.
Values lm_head_log_probability_grad(const Values& in);

}  // namespace consist::reference
