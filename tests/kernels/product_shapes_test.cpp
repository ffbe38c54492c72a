// Kernels of matrix products and attention at models' shapes (see kernel_shapes.h).
#include "tests/kernels/kernel_shapes.h"

namespace consist {
namespace {

using test::HostTensor;
using test::HostTensors;
using test::KernelShapes;
using test::Repeated;
using test::Samples;

/// Attention of a case, element by element in fp64, from the lse and o that the gradient was given.
struct AttentionReference {
  const HostTensor &q, &k, &v, &dout, &o, &lse;
  std::int64_t sequence, heads, kv_heads, dim;
  double scale = 1 / std::sqrt(static_cast<double>(dim));

  std::int64_t query(std::int64_t b, std::int64_t p, std::int64_t h) const { return ((b * sequence + p) * heads + h) * dim; }
  /// The first element of key t of kv head `h`.
  std::int64_t key(std::int64_t b, std::int64_t t, std::int64_t h) const { return ((b * sequence + t) * kv_heads + h) * dim; }
  /// The key that head h sees at t.
  std::int64_t key_of(std::int64_t b, std::int64_t t, std::int64_t h) const { return key(b, t, h / (heads / kv_heads)); }
  double dot(const HostTensor& x, std::int64_t i, const HostTensor& y, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += x[i + d] * y[j + d];
    return sum;
  }
  double score(std::int64_t b, std::int64_t p, std::int64_t h, std::int64_t t) const {
    return scale * dot(q, query(b, p, h), k, key_of(b, t, h));
  }
  /// Probability of key t for query p.
  double probability(std::int64_t b, std::int64_t p, std::int64_t h, std::int64_t t) const {
    return std::exp(score(b, p, h, t) - lse[(b * heads + h) * sequence + p]);
  }
  /// Gradient of its score before scaling.
  double score_gradient(std::int64_t b, std::int64_t p, std::int64_t h, std::int64_t t) const {
    const std::int64_t at_q = query(b, p, h);
    return scale * probability(b, p, h, t) * (dot(dout, at_q, v, key_of(b, t, h)) - dot(dout, at_q, o, at_q));
  }
};

TEST_P(KernelShapes, Attention) {
  if (gradient() != dtype()) GTEST_SKIP() << "no gradient of a parameter here: the same as the other case";
  const std::int64_t dim = e().dim, heads = e().heads, kv_heads = e().kv_heads, group = heads / kv_heads, s = e().sequence;
  const HostTensor q = random(rows_of(heads * dim)), k = random(rows_of(kv_heads * dim)), v = random(k.shape),
                   dout = random(q.shape);
  const Attributes attributes{{"head_dim", dim}};
  const HostTensors made = run("attention", {q, k, v}, attributes);
  const HostTensor &o = *made[0], &lse = *made[1];
  const HostTensors gradients = run("attention_grad", {dout, q, k, v, o, lse}, attributes,
                                    narrow() ? Repeated::within_rounding : Repeated::same_bits);  // cuDNN's dq uses atomics
  const AttentionReference reference{q, k, v, dout, o, lse, s, heads, kv_heads, dim};
  const std::int64_t b = below(e().batch);
  Samples lse_samples;
  for (const std::int64_t p : some(s, 5)) {
    const std::int64_t h = below(heads);
    std::vector<double> scores;
    for (std::int64_t t = 0; t <= p; ++t) scores.push_back(reference.score(b, p, h, t));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double x : scores) sum += std::exp(x - largest);
    lse_samples.add(lse[(b * heads + h) * s + p], largest + std::log(sum));
    std::vector<double> expected_o(static_cast<std::size_t>(dim)), expected_dq(static_cast<std::size_t>(dim));
    for (std::int64_t t = 0; t <= p; ++t) {
      const double weight = std::exp(scores[static_cast<std::size_t>(t)] - largest) / sum,
                   ds = reference.score_gradient(b, p, h, t);
      for (std::int64_t d = 0; d < dim; ++d) {
        expected_o[static_cast<std::size_t>(d)] += weight * v[reference.key_of(b, t, h) + d];
        expected_dq[static_cast<std::size_t>(d)] += ds * k[reference.key_of(b, t, h) + d];
      }
    }
    Samples o_samples, dq_samples;
    for (std::int64_t d = 0; d < dim; ++d) {
      o_samples.add(o[reference.query(b, p, h) + d], expected_o[static_cast<std::size_t>(d)]);
      dq_samples.add((*gradients[0])[reference.query(b, p, h) + d], expected_dq[static_cast<std::size_t>(d)]);
    }
    o_samples.expect_close(narrow() ? 1.5e-2 : 1e-5, "o of query " + std::to_string(p));
    if (p > 0) dq_samples.expect_close(narrow() ? 3e-2 : 2e-5, "dq of query " + std::to_string(p));  // one key: dq is 0
  }
  lse_samples.expect_close(narrow() ? 1e-4 : 1e-5, "lse");
  for (const std::int64_t t : some(s, 4)) {
    const std::int64_t kv = below(kv_heads);
    std::vector<double> dk(static_cast<std::size_t>(dim)), dv(static_cast<std::size_t>(dim));
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      for (std::int64_t p = t; p < s; ++p) {
        const double weight = reference.probability(b, p, h, t), ds = reference.score_gradient(b, p, h, t);
        for (std::int64_t d = 0; d < dim; ++d) {
          dv[static_cast<std::size_t>(d)] += weight * dout[reference.query(b, p, h) + d];
          dk[static_cast<std::size_t>(d)] += ds * q[reference.query(b, p, h) + d];
        }
      }
    }
    Samples dk_samples, dv_samples;
    for (std::int64_t d = 0; d < dim; ++d) {
      dk_samples.add((*gradients[1])[reference.key(b, t, kv) + d], dk[static_cast<std::size_t>(d)]);
      dv_samples.add((*gradients[2])[reference.key(b, t, kv) + d], dv[static_cast<std::size_t>(d)]);
    }
    if (s > 1) dk_samples.expect_close(narrow() ? 3e-2 : 2e-5, "dk of key " + std::to_string(t));
    dv_samples.expect_close(narrow() ? 1.5e-2 : 1e-5, "dv of key " + std::to_string(t));
  }
}

TEST_P(KernelShapes, Linear) {
  const std::int64_t k = e().channels, n = e().hidden;
  const HostTensor x = random(rows_of(k)), w = random({n, k}, 0.05), bias = random({n}), dy = random(rows_of(n));
  const HostTensor y = *run("linear", {x, w, std::nullopt})[0], y_bias = *run("linear", {x, w, bias})[0];
  const auto acc_x = accumulator(true, dtype(), x.shape), acc_w = accumulator(true, gradient(), w.shape),
             acc_b = accumulator(true, gradient(), {n});
  const HostTensor dx = *run("linear_input_grad", {dy, w, std::nullopt})[0],
                   dx_added = *run("linear_input_grad", {dy, w, acc_x})[0];
  const HostTensor dw = *run("linear_weight_grad", {x, dy, std::nullopt}, with_gradient())[0],
                   dw_added = *run("linear_weight_grad", {x, dy, acc_w}, with_gradient())[0];
  const HostTensor db = *run("linear_bias_grad", {dy, std::nullopt}, with_gradient())[0],
                   db_added = *run("linear_bias_grad", {dy, acc_b}, with_gradient())[0];
  Samples y_samples, dx_samples, dw_samples, db_samples;
  for (const std::int64_t row : some(tokens())) {
    for (const std::int64_t o : some(n, 20)) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += x[row * k + i] * w[o * k + i];
      y_samples.add(y[row * n + o], sum);
      y_samples.add(y_bias[row * n + o], sum + bias[o]);
    }
    for (const std::int64_t i : some(k, 20)) {
      double sum = 0;
      for (std::int64_t o = 0; o < n; ++o) sum += dy[row * n + o] * w[o * k + i];
      dx_samples.add(dx[row * k + i], sum);
      dx_samples.add(dx_added[row * k + i], sum + at(acc_x, row * k + i));
    }
  }
  for (const std::int64_t o : some(n)) {
    for (const std::int64_t i : some(k)) {
      double sum = 0;
      for (std::int64_t row = 0; row < tokens(); ++row) sum += dy[row * n + o] * x[row * k + i];
      dw_samples.add(dw[o * k + i], sum);
      dw_samples.add(dw_added[o * k + i], sum + at(acc_w, o * k + i));
    }
    double sum = 0;
    for (std::int64_t row = 0; row < tokens(); ++row) sum += dy[row * n + o];
    db_samples.add(db[o], sum);
    db_samples.add(db_added[o], sum + at(acc_b, o));
  }
  y_samples.expect_close(2 * rounding(dtype()), "y");
  dx_samples.expect_close(2 * rounding(dtype()), "dx");
  dw_samples.expect_close(2 * rounding(gradient()), "dw");
  db_samples.expect_close(rounding(gradient()), "db");
}

TEST_P(KernelShapes, LmHeadLoss) {
  const std::int64_t v = e().vocabulary, c = e().channels, count = std::min<std::int64_t>(tokens(), v * c > 20'000'000 ? 6 : 17);
  const HostTensor x = random({1, count, c}), w = random({v, c}, 0.05);
  HostTensor targets(DType::i32, {1, count});
  for (std::int64_t t = 0; t < count; ++t) targets.set(t, static_cast<double>(t == 5 ? -1 : below(v)));
  const double scale = 0.125;
  const Attributes attributes{{"scale", scale}};
  // p [count, v] and the loss
  std::vector<double> p(static_cast<std::size_t>(count * v));
  double loss = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    double* row = p.data() + t * v;
    std::vector<double> token(static_cast<std::size_t>(c));
    for (std::int64_t i = 0; i < c; ++i) token[static_cast<std::size_t>(i)] = x[t * c + i];
    double largest = -INFINITY, sum = 0;
    for (std::int64_t word = 0; word < v; ++word) {
      double logit = 0;
      for (std::int64_t i = 0; i < c; ++i) logit += token[static_cast<std::size_t>(i)] * w[word * c + i];
      row[word] = logit;
      largest = std::max(largest, logit);
    }
    for (std::int64_t word = 0; word < v; ++word) sum += std::exp(row[word] - largest);
    const auto target = static_cast<std::int64_t>(targets[t]);
    if (target >= 0) loss += scale * (largest + std::log(sum) - row[target]);
    for (std::int64_t word = 0; word < v; ++word) {
      row[word] = target < 0 ? 0 : scale * (std::exp(row[word] - largest) / sum - (word == target ? 1 : 0));
    }
  }
  const auto acc = accumulator(true, gradient(), w.shape);
  const double tolerance = narrow() ? 1e-3 : 1e-5;  // logits may be rounded to bf16 (docs/ops.md)
  EXPECT_NEAR((*run("lm_head_loss", {x, w, targets}, attributes)[0])[0], loss, tolerance * loss);
  const HostTensors made = run("lm_head_loss_grad", {x, w, targets, acc}, with_gradient(attributes));
  EXPECT_NEAR((*made[0])[0], loss, tolerance * loss);
  Samples dx, dw;
  for (const std::int64_t t : some(count, 3)) {
    for (const std::int64_t i : some(c)) {
      double sum = 0;
      for (std::int64_t word = 0; word < v; ++word) sum += p[static_cast<std::size_t>(t * v + word)] * w[word * c + i];
      dx.add((*made[1])[t * c + i], sum);
    }
  }
  std::vector<std::int64_t> words = some(v);
  for (std::int64_t t = 0; t < count; ++t) words.push_back(std::max<std::int64_t>(0, static_cast<std::int64_t>(targets[t])));
  for (const std::int64_t word : words) {
    for (const std::int64_t i : some(c)) {
      double sum = at(acc, word * c + i);
      for (std::int64_t t = 0; t < count; ++t) sum += p[static_cast<std::size_t>(t * v + word)] * x[t * c + i];
      dw.add((*made[2])[word * c + i], sum);
    }
  }
  // dlogits are rounded to the dtype before the products.
  dx.expect_close(2 * rounding(dtype()), "dx");
  dw.expect_close(2 * std::max(rounding(dtype()), rounding(gradient())), "dw");
}

}  // namespace
}  // namespace consist
