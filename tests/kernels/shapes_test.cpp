// Kernels of the GPU at the shapes of models and at odd ones, against fp64 on sampled elements: each sample is written out from
// docs/ops.md here. All other elements must at least be numbers; memory is poisoned with NaN before.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "consist/error.h"
#include "tests/kernels/devices.h"
#include "tests/kernels/run_kernel.h"

namespace consist {
namespace {

using test::HostTensor;
using test::HostTensors;
using test::Repeated;

struct Extents {
  const char* name;
  std::int64_t batch, sequence, channels, heads, kv_heads, dim, hidden, vocabulary;
};
struct DTypes {
  const char* name;
  DType dtype, gradient;
};

void PrintTo(const Extents& extents, std::ostream* out) {
  *out << extents.name;
}
void PrintTo(const DTypes& types, std::ostream* out) {
  *out << types.name;
}

/// What a kernel made at some elements, and what it should have made.
class Samples {
 public:
  void add(double found, double expected) {
    found_.push_back(found);
    expected_.push_back(expected);
  }
  void expect_close(double tolerance, const std::string& what) const {
    const Shape shape{static_cast<std::int64_t>(found_.size())};
    test::expect_close(reference::Value{DType::f32, shape, found_}, reference::Value{DType::f32, shape, expected_}, tolerance,
                       what);
  }

 private:
  std::vector<double> found_, expected_;
};

class KernelShapes : public testing::TestWithParam<std::tuple<Extents, DTypes>> {
 protected:
  void SetUp() override {
    try {
      device_ = test::device("cuda", test::kCudaOptions);
    } catch (const UnavailableError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  const Extents& e() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()).dtype; }
  DType gradient() const { return std::get<1>(GetParam()).gradient; }
  bool narrow() const { return dtype() == DType::bf16; }
  std::int64_t tokens() const { return e().batch * e().sequence; }
  Shape rows_of(std::int64_t width) const { return {e().batch, e().sequence, width}; }

  /// One rounding of an f32 calculation to `type`, at most; sums of tens of thousands of f32 terms.
  static double rounding(DType type) { return type == DType::bf16 ? 4.5e-3 : 1e-5; }

  /// Uniform around `mean` with standard deviation `scale`: quick, since there are hundreds of millions.
  HostTensor random(DType type, const Shape& shape, double scale = 1, double mean = 0) {
    HostTensor tensor(type, shape);
    const double width = scale * std::sqrt(12.0) / 65536;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      tensor.set(i, mean + width * (static_cast<double>(bits() >> 48) - 32767.5));
    return tensor;
  }
  HostTensor random(const Shape& shape, double scale = 1, double mean = 0) { return random(dtype(), shape, scale, mean); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() >> 11) % n; }
  /// The first, the last and some others of n.
  std::vector<std::int64_t> some(std::int64_t n, int count = 6) {
    std::vector<std::int64_t> chosen = {0, n - 1};
    while (static_cast<int>(chosen.size()) < count) chosen.push_back(below(n));
    return chosen;
  }

  /// Elements that are not finite: their exponents have all bits.
  static std::int64_t numbers_missing(const HostTensor& tensor) {
    const auto count = [&]<typename Bits>(Bits exponent) {
      std::int64_t missing = 0;
      for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof(Bits)) {
        Bits bits;
        std::memcpy(&bits, tensor.bytes.data() + i, sizeof bits);
        missing += (bits & exponent) == exponent;
      }
      return missing;
    };
    return tensor.dtype == DType::f32 ? count(std::uint32_t{0x7f800000}) : count(std::uint16_t{0x7f80});
  }

  HostTensors run(const std::string& op, const HostTensors& in, const Attributes& attributes = {},
                  Repeated repeated = Repeated::same_bits) {
    HostTensors out = test::run_kernel(*device_, op, in, attributes, repeated);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!out[i]) continue;
      const std::int64_t strange = numbers_missing(*out[i]);
      EXPECT_EQ(strange, 0) << "elements of output " << i << " of " << op << " that are not numbers, of "
                            << out[i]->shape.elements();
    }
    return out;
  }
  Attributes with_gradient(Attributes attributes = {}) const {
    attributes.set("dtype", std::string(name_of(gradient())));
    return attributes;
  }
  /// Present or absent by chance, so that both occur over the cases; zero in the formulas when absent.
  std::optional<HostTensor> accumulator(bool present, DType type, const Shape& shape) {
    return present ? std::optional(random(type, shape)) : std::nullopt;
  }
  static double at(const std::optional<HostTensor>& tensor, std::int64_t i) { return tensor ? (*tensor)[i] : 0; }

  /// [sequence, dim]: cosines, then sines.
  HostTensor rope_table() const {
    HostTensor table(DType::f32, {e().sequence, e().dim});
    for (std::int64_t p = 0; p < e().sequence; ++p) {
      for (std::int64_t i = 0; i < e().dim / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(e().dim));
        table.set(p * e().dim + i, std::cos(angle));
        table.set(p * e().dim + e().dim / 2 + i, std::sin(angle));
      }
    }
    return table;
  }

  std::shared_ptr<Device> device_;

 private:
  std::uint64_t bits() {  // splitmix64
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 29;
};

constexpr bool kWithAndWithout[] = {false, true};

TEST_P(KernelShapes, Embedding) {
  const std::int64_t v = e().vocabulary, c = e().channels;
  HostTensor ids(DType::i32, {e().batch, e().sequence});
  // Half of the tokens are of three words: runs that are longer than what one block adds.
  for (std::int64_t t = 0; t < tokens(); ++t) ids.set(t, static_cast<double>(t % 2 == 0 ? below(v) : (v - 1) * below(3) / 2));
  {
    const HostTensor table = random({v, c});
    const HostTensor y = *run("embedding", {ids, table})[0];
    for (const std::int64_t t : some(tokens())) {
      for (std::int64_t i = 0; i < c; ++i) ASSERT_EQ(y[t * c + i], table[static_cast<std::int64_t>(ids[t]) * c + i]);
    }
  }
  const HostTensor dy = random(rows_of(c));
  for (const bool add : kWithAndWithout) {
    const auto acc = accumulator(add, gradient(), {v, c});
    const HostTensor dtable = *run("embedding_grad", {ids, dy, acc}, with_gradient({{"vocabulary", v}}))[0];
    std::vector<std::int64_t> words = some(v);
    for (const std::int64_t t : some(tokens())) words.push_back(static_cast<std::int64_t>(ids[t]));
    Samples samples;
    for (const std::int64_t word : words) {
      for (const std::int64_t i : some(c)) {
        double sum = at(acc, word * c + i);
        for (std::int64_t t = 0; t < tokens(); ++t) sum += static_cast<std::int64_t>(ids[t]) == word ? dy[t * c + i] : 0;
        samples.add(dtable[word * c + i], sum);
      }
    }
    samples.expect_close(rounding(gradient()), "dtable");
  }
}

TEST_P(KernelShapes, RmsNorm) {
  const std::int64_t c = e().channels;
  const HostTensor x = random(rows_of(c)), residual = random(rows_of(c)), w = random({c}, 0.3, 1), dy = random(rows_of(c));
  for (const bool with_residual : kWithAndWithout) {
    const double epsilon = 1e-5;
    const HostTensors made =
        run("rms_norm", {x, with_residual ? std::optional(residual) : std::nullopt, w}, {{"epsilon", epsilon}});
    Samples y, sums, scales, dx_samples, dw_samples;
    const HostTensor &sum = with_residual ? *made[1] : x, &rstd = *made[2];
    const HostTensors plain = run("rms_norm_grad", {dy, sum, rstd, w, std::nullopt, std::nullopt}, with_gradient());
    const auto acc_x = accumulator(true, dtype(), x.shape), acc_w = accumulator(true, gradient(), {c});
    const HostTensors added = run("rms_norm_grad", {dy, sum, rstd, w, acc_x, acc_w}, with_gradient());
    for (const std::int64_t row : some(tokens())) {
      double squares = 0, dot = 0;
      for (std::int64_t k = row * c; k < (row + 1) * c; ++k) {
        if (with_residual) sums.add(sum[k], reference::rounded(x[k] + residual[k], dtype()));
        squares += sum[k] * sum[k];
        dot += dy[k] * w[k - row * c] * sum[k];
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(c) + epsilon);
      scales.add(rstd[row], scale);
      for (std::int64_t i = 0; i < c; ++i) {
        const std::int64_t k = row * c + i;
        y.add((*made[0])[k], sum[k] * scale * w[i]);
        const double dx = rstd[row] * (dy[k] * w[i] - sum[k] * rstd[row] * rstd[row] * dot / static_cast<double>(c));
        dx_samples.add((*plain[0])[k], dx);
        dx_samples.add((*added[0])[k], dx + at(acc_x, k));
      }
    }
    for (const std::int64_t i : some(c)) {
      double dw = 0;
      for (std::int64_t row = 0; row < tokens(); ++row) dw += dy[row * c + i] * sum[row * c + i] * rstd[row];
      dw_samples.add((*plain[1])[i], dw);
      dw_samples.add((*added[1])[i], dw + at(acc_w, i));
    }
    if (with_residual) sums.expect_close(narrow() ? 0 : 1e-7, "sum");
    scales.expect_close(1e-6, "rstd");
    y.expect_close(rounding(dtype()), "y");
    dx_samples.expect_close(rounding(dtype()), "dx");
    dw_samples.expect_close(rounding(gradient()), "dw");
  }
}

TEST_P(KernelShapes, Rope) {
  const std::int64_t dim = e().dim, half = dim / 2;
  const HostTensor table = rope_table();
  for (const std::int64_t heads : {e().heads, e().kv_heads}) {
    const HostTensor x = random(rows_of(heads * dim)), w = random({dim}, 0.3, 1), dy = random(x.shape);
    const double epsilon = 1e-6;
    const Attributes attributes{{"head_dim", dim}, {"epsilon", epsilon}};
    const HostTensor rotated = *run("rope", {x, table, std::nullopt}, attributes)[0];
    const HostTensors normed = run("rope", {x, table, w}, attributes);
    const HostTensor back = *run("rope_grad", {dy, table}, Attributes{{"head_dim", dim}})[0], &rstd = *normed[1];
    const auto acc = accumulator(true, gradient(), {dim});
    const HostTensors plain = run("rope_grad", {dy, table, x, rstd, w, std::nullopt}, with_gradient({{"head_dim", dim}})),
                      added = run("rope_grad", {dy, table, x, rstd, w, acc}, with_gradient({{"head_dim", dim}}));
    const auto angle = [&](std::int64_t head, std::int64_t i) { return table[head / heads % e().sequence * dim + i]; };
    // The gradient before the rotation, of element i of a head.
    const auto before = [&](std::int64_t head, std::int64_t i) {
      const std::int64_t k = head * dim, j = i % half;
      const double a = dy[k + j], b = dy[k + half + j], cosine = angle(head, j), sine = angle(head, half + j);
      return i < half ? a * cosine + b * sine : b * cosine - a * sine;
    };
    Samples y, y_normed, scales, dx, dx_normed, dw;
    for (const std::int64_t head : some(tokens() * heads, 20)) {
      const std::int64_t base = head * dim;
      double squares = 0, dot = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        squares += x[base + i] * x[base + i];
        dot += before(head, i) * w[i] * x[base + i];
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon), r = rstd[head];
      scales.add(r, scale);
      for (std::int64_t i = 0; i < dim; ++i) {
        const std::int64_t j = i % half;
        const double cosine = angle(head, j), sine = angle(head, half + j);
        const auto turned = [&](double a, double b) { return i < half ? a * cosine - b * sine : b * cosine + a * sine; };
        y.add(rotated[base + i], turned(x[base + j], x[base + half + j]));
        y_normed.add((*normed[0])[base + i], scale * turned(x[base + j] * w[j], x[base + half + j] * w[half + j]));
        dx.add(back[base + i], before(head, i));
        dx_normed.add((*plain[0])[base + i], r * (before(head, i) * w[i] - x[base + i] * r * r * dot / static_cast<double>(dim)));
      }
    }
    for (const std::int64_t i : some(dim, 4)) {
      double sum = 0;
      for (std::int64_t head = 0; head < tokens() * heads; ++head) sum += before(head, i) * x[head * dim + i] * rstd[head];
      dw.add((*plain[1])[i], sum);
      dw.add((*added[1])[i], sum + at(acc, i));
    }
    y.expect_close(rounding(dtype()), "y");
    scales.expect_close(1e-6, "rstd");
    y_normed.expect_close(rounding(dtype()), "normed y");
    dx.expect_close(rounding(dtype()), "dx");
    dx_normed.expect_close(rounding(dtype()), "normed dx");
    dw.expect_close(rounding(gradient()), "dw");
  }
}

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
  const auto query = [&](std::int64_t b, std::int64_t p, std::int64_t h) { return ((b * s + p) * heads + h) * dim; };
  const auto key = [&](std::int64_t b, std::int64_t p, std::int64_t h) { return ((b * s + p) * kv_heads + h) * dim; };
  const auto dot = [&](const HostTensor& x, std::int64_t i, const HostTensor& y, std::int64_t j) {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += x[i + d] * y[j + d];
    return sum;
  };
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  // Probability of key t for query p, and the gradient of its scaled score, from the lse and o that the gradient was given.
  const auto probability = [&](std::int64_t b, std::int64_t p, std::int64_t h, std::int64_t t) {
    return std::exp(scale * dot(q, query(b, p, h), k, key(b, t, h / group)) - lse[(b * heads + h) * s + p]);
  };
  const auto score_gradient = [&](std::int64_t b, std::int64_t p, std::int64_t h, std::int64_t t) {
    const std::int64_t at_q = query(b, p, h);
    return probability(b, p, h, t) * (dot(dout, at_q, v, key(b, t, h / group)) - dot(dout, at_q, o, at_q));
  };
  const std::int64_t b = below(e().batch);
  Samples lse_samples;
  for (const std::int64_t p : some(s, 5)) {
    const std::int64_t h = below(heads);
    std::vector<double> scores;
    for (std::int64_t t = 0; t <= p; ++t) scores.push_back(scale * dot(q, query(b, p, h), k, key(b, t, h / group)));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double x : scores) sum += std::exp(x - largest);
    lse_samples.add(lse[(b * heads + h) * s + p], largest + std::log(sum));
    std::vector<double> expected_o(static_cast<std::size_t>(dim)), expected_dq(static_cast<std::size_t>(dim));
    for (std::int64_t t = 0; t <= p; ++t) {
      const double weight = std::exp(scores[static_cast<std::size_t>(t)] - largest) / sum,
                   ds = scale * score_gradient(b, p, h, t);
      for (std::int64_t d = 0; d < dim; ++d) {
        expected_o[static_cast<std::size_t>(d)] += weight * v[key(b, t, h / group) + d];
        expected_dq[static_cast<std::size_t>(d)] += ds * k[key(b, t, h / group) + d];
      }
    }
    Samples o_samples, dq_samples;
    for (std::int64_t d = 0; d < dim; ++d) {
      o_samples.add(o[query(b, p, h) + d], expected_o[static_cast<std::size_t>(d)]);
      dq_samples.add((*gradients[0])[query(b, p, h) + d], expected_dq[static_cast<std::size_t>(d)]);
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
        const double weight = probability(b, p, h, t), ds = scale * score_gradient(b, p, h, t);
        for (std::int64_t d = 0; d < dim; ++d) {
          dv[static_cast<std::size_t>(d)] += weight * dout[query(b, p, h) + d];
          dk[static_cast<std::size_t>(d)] += ds * q[query(b, p, h) + d];
        }
      }
    }
    Samples dk_samples, dv_samples;
    for (std::int64_t d = 0; d < dim; ++d) {
      dk_samples.add((*gradients[1])[key(b, t, kv) + d], dk[static_cast<std::size_t>(d)]);
      dv_samples.add((*gradients[2])[key(b, t, kv) + d], dv[static_cast<std::size_t>(d)]);
    }
    if (s > 1) dk_samples.expect_close(narrow() ? 3e-2 : 2e-5, "dk of key " + std::to_string(t));
    dv_samples.expect_close(narrow() ? 1.5e-2 : 1e-5, "dv of key " + std::to_string(t));
  }
}

TEST_P(KernelShapes, Swiglu) {
  const HostTensor gate = random(rows_of(e().hidden), 2), up = random(gate.shape), dh = random(gate.shape);
  const HostTensor h = *run("swiglu", {gate, up})[0];
  const HostTensors gradients = run("swiglu_grad", {dh, gate, up});
  Samples forward, dgate, dup;
  for (const std::int64_t i : some(gate.shape.elements(), 3000)) {
    const double x = gate[i], sigmoid = 1 / (1 + std::exp(-x));
    forward.add(h[i], x * sigmoid * up[i]);
    dgate.add((*gradients[0])[i], dh[i] * up[i] * sigmoid * (1 + x * (1 - sigmoid)));
    dup.add((*gradients[1])[i], dh[i] * x * sigmoid);
  }
  forward.expect_close(rounding(dtype()), "h");
  dgate.expect_close(rounding(dtype()), "dgate");
  dup.expect_close(rounding(dtype()), "dup");
}

TEST_P(KernelShapes, AddAndCast) {
  const HostTensor a = random(rows_of(e().channels)), b = random(a.shape);
  const HostTensor sum = *run("add", {a, b})[0];
  for (const DType to : {DType::f32, DType::bf16}) {
    const HostTensor made = *run("cast", {a}, {{"dtype", std::string(name_of(to))}})[0];
    for (const std::int64_t i : some(a.shape.elements(), 3000)) ASSERT_EQ(made[i], reference::rounded(a[i], to));
  }
  for (const std::int64_t i : some(a.shape.elements(), 3000)) ASSERT_EQ(sum[i], reference::rounded(a[i] + b[i], dtype()));
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

TEST_P(KernelShapes, Optimizer) {
  // More tensors than one launch takes, of sizes around packs and blocks; one that many blocks share.
  std::vector<std::int64_t> sizes = {e().channels * e().hidden + 3};
  for (std::int64_t i = 0; i < 1400; ++i) sizes.push_back(i % 7 == 0 ? 8192 + i % 5 : i % 40);
  const float beta1 = 0.9F, beta2 = 0.95F, rate = 1e-2F, epsilon = 1e-8F, decay = 0.1F;
  HostTensor hyper(DType::f32, {4}), clip(DType::f32, {});
  const std::array<double, 4> values = {rate, 1 - std::pow(beta1, 3), 1 - std::pow(beta2, 3), 3};
  for (std::int64_t i = 0; i < 4; ++i) hyper.set(i, values[static_cast<std::size_t>(i)]);
  clip.set(0, 0.5);
  HostTensors squares;
  for (const bool with_master : kWithAndWithout) {
    HostTensors in = {hyper, clip};
    for (const std::int64_t n : sizes) {
      HostTensor v = random(gradient(), {n}, 0.1);
      for (std::int64_t i = 0; i < n; ++i) v.set(i, std::abs(v[i]));
      in.emplace_back(random({n}));
      in.emplace_back(random(gradient(), {n}));
      in.push_back(with_master ? std::optional(random(DType::f32, {n})) : std::nullopt);
      in.emplace_back(random(gradient(), {n}, 0.1));
      in.emplace_back(v);
    }
    const HostTensors out = run("adamw", in,
                                {{"beta1", double{beta1}},
                                 {"beta2", double{beta2}},
                                 {"epsilon", double{epsilon}},
                                 {"weight_decay", double{decay}},
                                 {"stochastic_rounding", std::int64_t{0}},
                                 {"seed", std::int64_t{1}}});
    Samples p_samples, master_samples, m_samples, v_samples;
    for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      const std::int64_t n = sizes[tensor];
      const auto given = [&](std::size_t which, std::int64_t i) { return (*in[2 + 5 * tensor + which])[i]; };
      for (const std::int64_t i : n < 1 ? std::vector<std::int64_t>{} : some(n, n > 10'000 ? 1000 : 4)) {
        const double g = 0.5 * given(1, i), m = double{beta1} * given(3, i) + (1 - double{beta1}) * g,
                     v = double{beta2} * given(4, i) + (1 - double{beta2}) * g * g, before = given(with_master ? 2 : 0, i);
        const double weight = before * (1 - double{rate} * double{decay}) -
                              double{rate} / hyper[1] * m / (std::sqrt(v) / std::sqrt(hyper[2]) + double{epsilon});
        p_samples.add((*out[4 * tensor])[i], weight);
        if (with_master) master_samples.add((*out[4 * tensor + 1])[i], weight);
        m_samples.add((*out[4 * tensor + 2])[i], m);
        v_samples.add((*out[4 * tensor + 3])[i], v);
      }
    }
    p_samples.expect_close(narrow() ? 4.5e-3 : 1e-6, "p");
    if (with_master) master_samples.expect_close(1e-6, "master");
    m_samples.expect_close(rounding(gradient()), "m");
    v_samples.expect_close(rounding(gradient()), "v");
    for (std::size_t i = 3; squares.size() < sizes.size(); i += 5) squares.push_back(in[i]);
  }
  double sum = 0;
  for (const auto& tensor : squares) {
    for (std::int64_t i = 0; i < tensor->shape.elements(); ++i) sum += (*tensor)[i] * (*tensor)[i];
  }
  EXPECT_NEAR((*run("sum_of_squares", squares)[0])[0], sum, 1e-6 * sum);
}

constexpr Extents kExtents[] = {
    {"qwen3_06b_batch_4", 4, 4096, 1024, 16, 8, 128, 3072, 151'936},
    {"llama_3_8b", 1, 4096, 4096, 32, 8, 128, 14'336, 128'256},
    {"qwen25_05b_sequence_4095", 1, 4095, 896, 14, 2, 64, 4864, 50'257},
    {"sequence_17", 1, 17, 768, 12, 12, 64, 2048, 50'257},
    {"one_token", 1, 1, 1024, 16, 8, 128, 3072, 1009},
    {"no_packs", 3, 131, 1034, 6, 3, 20, 2731, 331},
    {"wide_rows", 2, 9, 20'480, 3, 1, 96, 16, 7},
};
constexpr DTypes kTypes[] = {{"f32", DType::f32, DType::f32},
                             {"bf16_gradients_f32", DType::bf16, DType::f32},
                             {"bf16_gradients_bf16", DType::bf16, DType::bf16}};

INSTANTIATE_TEST_SUITE_P(Cuda, KernelShapes, testing::Combine(testing::ValuesIn(kExtents), testing::ValuesIn(kTypes)),
                         [](const testing::TestParamInfo<std::tuple<Extents, DTypes>>& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace consist
