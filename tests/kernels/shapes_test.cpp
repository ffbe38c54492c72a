// Element-wise kernels, norms and the update at models' shapes (see kernel_shapes.h), and those shapes.
#include "tests/kernels/kernel_shapes.h"

namespace consist {
namespace {

using test::DTypes;
using test::Extents;
using test::HostTensor;
using test::HostTensors;
using test::KernelShapes;
using test::kWithAndWithout;
using test::Samples;

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

  const HostTensor wide = *run("cast", {a}, {{"dtype", std::string("f32")}})[0];
  const HostTensor narrow = *run("cast", {b}, {{"dtype", std::string("bf16")}})[0];
  const HostTensor mixed = *run("add", {wide, narrow})[0];
  ASSERT_EQ(mixed.dtype, DType::f32);
  for (const std::int64_t i : some(a.shape.elements(), 3000))
    ASSERT_EQ(mixed[i], reference::rounded(wide[i] + narrow[i], DType::f32));
}

TEST_P(KernelShapes, Optimizer) {
  // More tensors than one launch takes, of sizes around packs and blocks; one that many blocks share.
  std::vector<std::int64_t> sizes = {e().channels * e().hidden + 3};
  for (std::int64_t i = 0; i < 1400; ++i) sizes.push_back(i % 7 == 0 ? 8192 + i % 5 : i % 40);
  const float beta1 = 0.9F, beta2 = 0.95F, rate = 1e-2F, epsilon = 1e-8F, decay = 0.1F;
  HostTensor scalars(DType::f32, {4}), clip(DType::f32, {});
  const std::array<double, 4> values = {rate, 1 - std::pow(beta1, 3), 1 - std::pow(beta2, 3), 3};
  for (std::int64_t i = 0; i < 4; ++i) scalars.set(i, values[static_cast<std::size_t>(i)]);
  clip.set(0, 0.5);
  HostTensors squares;
  for (const bool with_master : kWithAndWithout) {
    HostTensors in = {scalars, clip};
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
                              double{rate} / scalars[1] * m / (std::sqrt(v) / std::sqrt(scalars[2]) + double{epsilon});
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

INSTANTIATE_TEST_SUITE_P(Cuda, KernelShapes, ::testing::Combine(::testing::ValuesIn(kExtents), ::testing::ValuesIn(kTypes)),
                         [](const ::testing::TestParamInfo<std::tuple<Extents, DTypes>>& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace consist
