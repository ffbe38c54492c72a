#include "core/reference/gradients.h"

#include <cmath>

namespace consist::reference {

namespace {

void add_multiple(double* sums, double factor, const double* of, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += factor * of[i];
}

}  // namespace

Value linear_input_grad(const Value& dy, const Value& w) {
  const std::int64_t out = w.shape[0], k = w.shape[1];
  Value dx = zeros(dy.dtype, {dy.shape[0], dy.shape[1], k});
  for (std::int64_t row = 0; row < dy.shape.rows(); ++row) {
    for (std::int64_t o = 0; o < out; ++o) add_multiple(dx.data.data() + row * k, dy.at(row * out + o), w.data.data() + o * k, k);
  }
  return dx;
}

Value linear_weight_grad(const Value& x, const Value& dy) {
  const std::int64_t out = dy.shape.last(), k = x.shape.last();
  Value dw = zeros(DType::f32, {out, k});
  for (std::int64_t row = 0; row < x.shape.rows(); ++row) {
    for (std::int64_t o = 0; o < out; ++o) add_multiple(dw.data.data() + o * k, dy.at(row * out + o), x.data.data() + row * k, k);
  }
  return dw;
}

Value linear_bias_grad(const Value& dy) {
  Value db = zeros(DType::f32, {dy.shape.last()});
  for (std::int64_t i = 0; i < dy.shape.elements(); ++i) db.at(i % dy.shape.last()) += dy.at(i);
  return db;
}

Value embedding_grad(const Value& ids, const Value& dy, std::int64_t rows, std::int64_t first, std::int64_t padding_id) {
  const std::int64_t c = dy.shape.last();
  Value table = zeros(DType::f32, {rows, c});
  for (std::int64_t t = 0; t < ids.shape.elements(); ++t) {
    const auto id = static_cast<std::int64_t>(ids.at(t));
    if (id < first || id >= first + rows || id == padding_id) continue;
    for (std::int64_t i = 0; i < c; ++i) table.at((id - first) * c + i) += dy.at(t * c + i);
  }
  return table;
}

namespace {

/// The gradients of a normed row y = x·rstd·w, `rstd` from x: into `dx` (overwritten) and `dw` (added to).
void normed_row_grad(const double* dy, const double* x, const double* w, double rstd, std::int64_t c, double* dx, double* dw) {
  double mean = 0;
  for (std::int64_t i = 0; i < c; ++i) mean += dy[i] * w[i] * x[i] / static_cast<double>(c);
  for (std::int64_t i = 0; i < c; ++i) {
    dx[i] = rstd * (dy[i] * w[i] - x[i] * rstd * rstd * mean);
    dw[i] += dy[i] * x[i] * rstd;
  }
}

}  // namespace

Values rms_norm_grad(const Value& dy, const Value& x, const Value& rstd, const Value& w) {
  const std::int64_t c = w.shape[0];
  Value dx = zeros(x.dtype, x.shape), dw = zeros(DType::f32, {c});
  for (std::int64_t row = 0; row < x.shape.rows(); ++row)
    normed_row_grad(&dy.data[static_cast<std::size_t>(row * c)], &x.data[static_cast<std::size_t>(row * c)], w.data.data(),
                    rstd.at(row), c, &dx.data[static_cast<std::size_t>(row * c)], dw.data.data());
  return {dx, dw};
}

Values rope_grad(const Value& dy, const Value& table, const Value* x, const Value* rstd, const Value* w, std::int64_t head_dim) {
  const std::int64_t heads = dy.shape[2] / head_dim, half = head_dim / 2;
  Value dx = zeros(dy.dtype, dy.shape), dw = zeros(DType::f32, {head_dim});
  std::vector<double> turned(static_cast<std::size_t>(head_dim));
  for (std::int64_t token = 0; token < dy.shape.rows(); ++token) {
    const std::int64_t row = token % dy.shape[1] * head_dim;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t base = (token * heads + head) * head_dim;
      for (std::int64_t i = 0; i < half; ++i) {  // the rotation's transpose
        const double cosine = table.at(row + i), sine = table.at(row + half + i);
        turned[static_cast<std::size_t>(i)] = dy.at(base + i) * cosine + dy.at(base + half + i) * sine;
        turned[static_cast<std::size_t>(half + i)] = dy.at(base + half + i) * cosine - dy.at(base + i) * sine;
      }
      double* const to = &dx.data[static_cast<std::size_t>(base)];
      if (x == nullptr) {
        std::copy(turned.begin(), turned.end(), to);
      } else {
        normed_row_grad(turned.data(), &x->data[static_cast<std::size_t>(base)], w->data.data(), rstd->at(token * heads + head),
                        head_dim, to, dw.data.data());
      }
    }
  }
  if (x == nullptr) return {dx, std::nullopt};
  return {dx, dw};
}

Values attention_grad(const Value& dout, const Value& q, const Value& k, const Value& v, const Value& o, const Value& lse,
                      std::int64_t head_dim, const Visibility& visibility, AttentionScores scores) {
  const std::int64_t batch = q.shape[0], queries = q.shape[1], keys = k.shape[1], heads = q.shape[2] / head_dim,
                     kv_heads = k.shape[2] / head_dim, value_dim = v.shape[2] / kv_heads;
  const auto dot = [&](const Value& a, std::int64_t of_a, const Value& b, std::int64_t of_b, std::int64_t size) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) sum += a.at(of_a * size + i) * b.at(of_b * size + i);
    return sum;
  };
  const double scale = scores.scale == 0 ? default_score_scale(head_dim) : scores.scale;
  Value dq = zeros(q.dtype, q.shape), dk = zeros(k.dtype, k.shape), dv = zeros(v.dtype, v.shape);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t kv = h / (heads / kv_heads);
      for (std::int64_t s = 0; s < queries; ++s) {
        const std::int64_t here = (b * queries + s) * heads + h;
        const double mean = dot(dout, here, o, here, value_dim);
        for (std::int64_t t = 0; t < keys; ++t) {
          if (!visibility.sees(b, s, queries, t)) continue;
          const std::int64_t there = (b * keys + t) * kv_heads + kv;
          const double score = attention_score(dot(q, here, k, there, head_dim), head_dim, scores);
          const double p = std::exp(score - lse.at((b * heads + h) * queries + s));
          const double capped = scores.cap == 0 ? 0 : score / scores.cap;  // its tanh
          const double dscore = p * (dot(dout, here, v, there, value_dim) - mean) * scale * (1 - capped * capped);
          for (std::int64_t i = 0; i < head_dim; ++i) {
            dq.at(here * head_dim + i) += dscore * k.at(there * head_dim + i);
            dk.at(there * head_dim + i) += dscore * q.at(here * head_dim + i);
          }
          for (std::int64_t i = 0; i < value_dim; ++i) dv.at(there * value_dim + i) += p * dout.at(here * value_dim + i);
        }
      }
    }
  }
  return {dq, dk, dv};
}

Values swiglu_grad(const Value& dh, const Value& gate, const Value& up) {
  Value dgate = zeros(gate.dtype, gate.shape), dup = dgate;
  for (std::int64_t i = 0; i < gate.shape.elements(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-gate.at(i)));
    dup.at(i) = dh.at(i) * gate.at(i) * sigmoid;
    dgate.at(i) = dh.at(i) * up.at(i) * sigmoid * (1 + gate.at(i) * (1 - sigmoid));
  }
  return {dgate, dup};
}

std::pair<Value, Value> logits_grad(const Value& dlogits, const Value& x, const Value& w) {
  return {linear_input_grad(dlogits, w), linear_weight_grad(x, dlogits)};
}

Values lm_head_log_probability_grad(const Values& in) {
  const Value &x = *in[0], &w = *in[1], &targets = *in[2];
  const std::int64_t vocabulary = w.shape[0];
  Value dlogits = *linear({x, w})[0];
  for (std::int64_t token = 0; token < x.shape.rows(); ++token) {
    double* const row = &dlogits.data[static_cast<std::size_t>(token * vocabulary)];
    const auto target = static_cast<std::int64_t>(targets.at(token));
    const double of_target = in[3] && target >= 0 ? in[3]->at(token) : 0, of_denominator = in[4] ? in[4]->at(token) : 0;
    double largest = -INFINITY, sum = 0;
    for (std::int64_t word = 0; word < vocabulary; ++word) largest = std::max(largest, row[word]);
    for (std::int64_t word = 0; word < vocabulary; ++word) sum += std::exp(row[word] - largest);
    for (std::int64_t word = 0; word < vocabulary; ++word)
      row[word] = (of_denominator - of_target) * std::exp(row[word] - largest) / sum + (word == target ? of_target : 0);
  }
  auto [dx, dw] = logits_grad(dlogits, x, w);
  return {dx, dw};
}

Values lm_head_loss_grad(const Values& in, double scale) {
  Value seeds = zeros(DType::f32, in[2]->shape);
  for (double& seed : seeds.data) seed = -scale;
  const Values made = lm_head_log_probability_grad({in[0], in[1], in[2], seeds, std::nullopt});
  return {lm_head_loss(in, scale)[0], made[0], made[1]};
}

}  // namespace consist::reference
