// Every kernel of every device against fp64, on odd shapes: on the CPU for each instruction set, number of threads and way of
// bf16.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using reference::random_ids;
using reference::random_value;
using reference::zeros;
using test::DeviceKernel;
using test::DeviceKernels;
using test::expect_close;
using test::kWithAndWithout;
using test::Setup;
using test::Value;
using test::Values;

TEST_P(DeviceKernel, Embedding) {
  const Value ids = random_ids(engine_, {3, 7}, 0, 13), table = random({13, 19}), dy = random({3, 7, 19});
  expect_close(run("embedding", {ids, table})[0], *reference::embedding({ids, table})[0], 0, "y");
  for (const bool add : kWithAndWithout) {
    Value dtable = reference::gradient("embedding", {ids, table}, {}, 1, dy);
    const auto acc = accumulator(add, gradient(), dtable);
    expect_close(run("embedding_grad", {ids, dy, acc}, with_gradient({{"vocabulary", std::int64_t{13}}}))[0], dtable, tolerance(),
                 "dtable");
  }
  for (const std::int64_t padding : {0, 5, 12}) {
    // As nn.Embedding's padding_idx: the row is read like any other, and gets nothing.
    const Attributes forward{{"padding_id", padding}};
    expect_close(run("embedding", {ids, table}, forward)[0], *reference::embedding({ids, table})[0], 0, "y with padding");
    for (const bool add : kWithAndWithout) {
      Value dtable = reference::gradient("embedding", {ids, table}, {}, 1, dy);
      std::fill_n(dtable.data.begin() + padding * 19, 19, 0.0);
      const auto acc = accumulator(add, gradient(), dtable);
      const Attributes backward = with_gradient({{"vocabulary", std::int64_t{13}}, {"padding_id", padding}});
      // A processor rounds a row to the gradient's dtype after each of its tokens.
      expect_close(run("embedding_grad", {ids, dy, acc}, backward)[0], dtable, 2 * tolerance(), "dtable with padding");
    }
  }
  for (const double bad : {-1.0, 13.0}) {
    Value wrong = ids;
    wrong.data[5] = bad;
    EXPECT_THROW(run("embedding", {wrong, table}), DataError);
  }
}

TEST_P(DeviceKernel, Linear) {
  for (const auto& [tokens, k, n] : {std::array<std::int64_t, 3>{1, 1, 1}, {5, 33, 17}, {35, 7, 66}, {64, 32, 16}}) {
    const Value x = random({1, tokens, k}), w = random({n, k}), bias = random({n}), dy = random({1, tokens, n});
    expect_close(run("linear", {x, w, std::nullopt})[0], *reference::linear({x, w})[0], tolerance(), "y");
    // In bf16 the product is rounded before the bias is added: two roundings.
    expect_close(run("linear", {x, w, bias})[0], *reference::linear({x, w, bias})[0], 2 * tolerance(), "y with bias");
    for (const bool add : kWithAndWithout) {
      Value dx = reference::gradient("linear", {x, w}, {}, 0, dy), dw = reference::gradient("linear", {x, w}, {}, 1, dy);
      Value db = reference::gradient("linear", {x, w, bias}, {}, 2, dy);
      Value y = *reference::linear({x, w})[0], y_bias = *reference::linear({x, w, bias})[0];
      const auto acc_y = accumulator(add, dtype(), y), acc_y_bias = accumulator(add, dtype(), y_bias);
      expect_close(run("linear", {x, w, std::nullopt, acc_y})[0], y, 2 * tolerance(), "y with sum");
      expect_close(run("linear", {x, w, bias, acc_y_bias})[0], y_bias, 3 * tolerance(), "y with bias and sum");
      const auto acc_dx = accumulator(add, dtype(), dx), acc_dw = accumulator(add, gradient(), dw),
                 acc_db = accumulator(add, gradient(), db);
      expect_close(run("linear_input_grad", {dy, w, acc_dx})[0], dx, tolerance(), "dx");
      expect_close(run("linear_weight_grad", {x, dy, acc_dw}, with_gradient())[0], dw, tolerance(), "dw");
      expect_close(run("linear_bias_grad", {dy, acc_db}, with_gradient())[0], db, tolerance(), "db");
    }
  }
}

TEST_P(DeviceKernel, RmsNorm) {
  const Attributes attributes{{"epsilon", 1e-3}};
  for (const std::int64_t c : {1, 16, 37}) {
    const Value x = random({2, 9, c}), residual = random({2, 9, c}), w = random({c}, 0.3, 1), dy = random({2, 9, c});
    for (const bool with_residual : kWithAndWithout) {
      const Values in = {x, with_residual ? std::optional(residual) : std::nullopt, w};
      const Values made = run("rms_norm", in, attributes), expected = reference::forward("rms_norm", in, attributes);
      expect_close(made[0], *expected[0], tolerance(), "y");
      ASSERT_EQ(made[1].has_value(), with_residual);
      if (with_residual) expect_close(made[1], *expected[1], narrow() ? 0 : 1e-7, "sum");
      expect_close(made[2], *expected[2], 1e-6, "rstd");
    }
    Value rstd = *reference::rms_norm({x, std::nullopt, w}, 1e-3)[2];
    for (const bool add : kWithAndWithout) {
      Value dx = reference::gradient("rms_norm", {x, std::nullopt, w}, attributes, 0, dy);
      Value dw = reference::gradient("rms_norm", {x, std::nullopt, w}, attributes, 2, dy);
      const auto acc_dx = accumulator(add, dtype(), dx), acc_dw = accumulator(add, gradient(), dw);
      for (double& scale : rstd.data) scale = static_cast<float>(scale);
      const Values made = run("rms_norm_grad", {dy, x, rstd, w, acc_dx, acc_dw}, with_gradient());
      // With one channel, dx is a difference of nearly equal numbers.
      expect_close(made[0], dx, c == 1 && !narrow() ? 1e-4 : tolerance(), "dx");
      expect_close(made[1], dw, tolerance(), "dw");
    }
  }
}

TEST_P(DeviceKernel, Rope) {
  for (const std::int64_t dim : {2, 10, 32}) {
    const Attributes attributes{{"head_dim", dim}, {"epsilon", 1e-5}};
    const Value x = random({2, 5, 3 * dim}), w = random({dim}, 0.3, 1), dy = random({2, 5, 3 * dim});
    Value table = zeros(DType::f32, {5, dim});
    for (std::int64_t p = 0; p < 5; ++p) {
      for (std::int64_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        table.at(p * dim + i) = static_cast<float>(std::cos(angle));
        table.at(p * dim + dim / 2 + i) = static_cast<float>(std::sin(angle));
      }
    }
    const Values plain = run("rope", {x, table, std::nullopt}, attributes);
    expect_close(plain[0], *reference::forward("rope", {x, table, std::nullopt}, attributes)[0], tolerance(), "y");
    const Value dplain = reference::gradient("rope", {x, table, std::nullopt}, attributes, 0, dy);
    expect_close(run("rope_grad", {dy, table}, Attributes{{"head_dim", dim}})[0], dplain, tolerance(), "dx");

    const Values expected = reference::forward("rope", {x, table, w}, attributes),
                 normed = run("rope", {x, table, w}, attributes);
    expect_close(normed[0], *expected[0], tolerance(), "normed y");
    expect_close(normed[1], *expected[1], 1e-6, "rstd");
    Value rstd = *expected[1];
    for (double& scale : rstd.data) scale = static_cast<float>(scale);
    for (const bool add : kWithAndWithout) {
      const Value dx = reference::gradient("rope", {x, table, w}, attributes, 0, dy);
      Value dw = reference::gradient("rope", {x, table, w}, attributes, 2, dy);
      const auto acc = accumulator(add, gradient(), dw);
      const Values made = run("rope_grad", {dy, table, x, rstd, w, acc}, with_gradient({{"head_dim", dim}}));
      expect_close(made[0], dx, 2 * tolerance(), "normed dx");
      expect_close(made[1], dw, tolerance(), "normed dw");
    }
  }
}

struct AttentionCase {
  std::int64_t batch, sequence, heads, kv_heads, dim, window = 0;
  AttentionScores scores = {};
  std::int64_t value_dim = 0;  // 0: dim
};

/// Attention and its gradient against fp64.
void expect_attention(DeviceKernel& t, const AttentionCase& c) {
  Attributes attributes{{"head_dim", c.dim}};
  if (c.window > 0) attributes.set("window", c.window);
  if (c.value_dim > 0) attributes.set("value_dim", c.value_dim);
  test::set_scores(attributes, c.scores);
  const std::int64_t value_dim = c.value_dim > 0 ? c.value_dim : c.dim;
  const Value q = t.random({c.batch, c.sequence, c.heads * c.dim}, 2), k = t.random({c.batch, c.sequence, c.kv_heads * c.dim}),
              v = t.random({c.batch, c.sequence, c.kv_heads * value_dim}),
              dy = t.random({c.batch, c.sequence, c.heads * value_dim});
  const Values expected = reference::attention({q, k, v}, c.dim, {.window = c.window}, c.scores),
               made = t.run("attention", {q, k, v}, attributes);
  expect_close(made[0], *expected[0], t.tolerance(), "o");
  expect_close(made[1], *expected[1], 2e-6, "lse");
  Value o = *expected[0], lse = *expected[1];
  for (double& x : o.data) x = reference::rounded(x, t.dtype());
  for (double& x : lse.data) x = static_cast<float>(x);
  const Values gradients = t.run("attention_grad", {dy, q, k, v, o, lse}, attributes);
  for (std::size_t i = 0; i < 3; ++i) {
    const Value numerical = reference::gradient("attention", {q, k, v}, attributes, i, dy);
    if ((c.sequence == 1 || c.window == 1) && i < 2) {  // one key: its probability is 1 whatever q and k are
      for (const double x : gradients[i]->data) EXPECT_NEAR(x, 0, t.narrow() ? 0.05 : 1e-5);
      continue;
    }
    // delta = Σ do·o takes o as it was rounded; with few keys or a large scale its error weighs more beside gradients that are
    // smaller.
    const double rounded = c.window > 0 || c.scores.scale > 0 || c.value_dim > 0 ? 6 * t.tolerance() : 4 * t.tolerance();
    expect_close(gradients[i], numerical, t.narrow() ? rounded : 2 * t.tolerance(), std::string("d") + "qkv"[i]);
  }
}

TEST_P(DeviceKernel, Attention) {
  using Case = AttentionCase;
  // Around the 64 queries and keys of a tile, head sizes that do not fill vectors, groups of 1, 2 and 7.
  for (const Case& c :
       {Case{2, 1, 2, 1, 4}, Case{1, 5, 7, 1, 6}, Case{2, 13, 2, 2, 20}, Case{1, 64, 2, 1, 4}, Case{1, 67, 1, 1, 3},
        // Windows of one key, within a tile, over a tile's border, of a whole tile and beyond, and as wide as all.
        Case{1, 70, 2, 1, 4, 1}, Case{2, 13, 2, 2, 6, 5}, Case{1, 130, 1, 1, 4, 3}, Case{1, 131, 1, 1, 4, 64},
        Case{1, 140, 2, 1, 3, 77}, Case{1, 9, 1, 1, 4, 9},
        // Scales of scores, also of kernels for heads of whole vectors; soft-caps that scores reach and that they do not;
        // windows.
        Case{1, 67, 2, 1, 4, 0, {.scale = 0.3}}, Case{1, 40, 2, 1, 16, 0, {.scale = 0.4}}, Case{2, 13, 2, 1, 4, 0, {.cap = 1.5}},
        Case{1, 70, 2, 2, 16, 0, {.scale = 0.4, .cap = 30}}, Case{1, 70, 2, 1, 6, 20, {.scale = 0.7, .cap = 2}},
        Case{1, 66, 1, 1, 72, 0, {.cap = 3}}})
    expect_attention(*this, c);
}

// Latent attention has values of fewer channels than queries and keys; more are as good. A GPU has cuDNN's kernels for it or
// none.
TEST_P(DeviceKernel, AttentionWithValuesOfASizeOfTheirOwn) {
  using Case = AttentionCase;
  for (const Case& c : {Case{2, 13, 2, 1, 6, 0, {}, 4}, Case{1, 67, 2, 2, 4, 0, {}, 20}, Case{1, 70, 4, 2, 24, 9, {}, 16},
                        Case{1, 66, 1, 1, 32, 0, {.scale = 0.2, .cap = 3}, 8}, Case{1, 9, 2, 1, 48, 0, {}, 32}}) {
    if (GetParam().device != "cuda") {
      expect_attention(*this, c);
      continue;
    }
    try {
      expect_attention(*this, c);
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("values of " + std::to_string(c.value_dim)), std::string::npos) << error.what();
    }
  }
}

TEST_P(DeviceKernel, AttentionWithLargeScores) {
  // A softmax that does not subtract the largest score overflows here.
  const Value q = random({1, 70, 8}, 60), k = random({1, 70, 8}, 60), v = random({1, 70, 8});
  const Attributes attributes{{"head_dim", std::int64_t{8}}};
  const Values expected = reference::attention({q, k, v}, 8), made = run("attention", {q, k, v}, attributes);
  // Scores of thousands have an absolute error of some 1e-4 in f32, and so have the probabilities.
  expect_close(made[0], *expected[0], narrow() ? 2e-2 : 5e-3, "o");
  expect_close(made[1], *expected[1], 1e-6, "lse");
}

// A GPU has kernels with a cap for heads of up to 128 elements, and says so for others.
TEST_P(DeviceKernel, AttentionOfLongHeadsWithASoftCap) {
  const Value q = random({1, 9, 136}), k = random(q.shape), v = random(q.shape);
  const Attributes attributes{{"head_dim", std::int64_t{136}}, {"cap", 2.0}};
  if (GetParam().device == "cuda") {
    try {
      run("attention", {q, k, v}, attributes);
      FAIL() << "it ran";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("head_dim 136 and a soft-cap"), std::string::npos) << error.what();
    }
    return;
  }
  expect_close(run("attention", {q, k, v}, attributes)[0], *reference::attention({q, k, v}, 136, {}, {.cap = 2})[0], tolerance(),
               "o");
}

TEST_P(DeviceKernel, Swiglu) {
  Value gate = random({3, 5, 11}, 3);
  const Value up = random(gate.shape), dh = random(gate.shape);
  for (const double x : {-200.0, -90.0, -87.5, 87.5, 90.0, 200.0, 0.0})
    gate.data[static_cast<std::size_t>(engine_() % gate.data.size())] = x;
  for (double& x : gate.data) x = reference::rounded(x, dtype());
  expect_close(run("swiglu", {gate, up})[0], *reference::swiglu({gate, up})[0], tolerance(), "h");
  const Values gradients = run("swiglu_grad", {dh, gate, up});
  expect_close(gradients[0], reference::gradient("swiglu", {gate, up}, {}, 0, dh), tolerance(), "dgate");
  expect_close(gradients[1], reference::gradient("swiglu", {gate, up}, {}, 1, dh), tolerance(), "dup");
}

/// The largest |row of a · row of b|.
double largest_product(const Value& a, const Value& b) {
  const std::int64_t k = a.shape.last();
  double largest = 0;
  for (std::int64_t i = 0; i < a.shape.rows(); ++i) {
    for (std::int64_t j = 0; j < b.shape.rows(); ++j) {
      largest = std::max(largest, std::abs(std::inner_product(a.data.begin() + i * k, a.data.begin() + (i + 1) * k,
                                                              b.data.begin() + j * k, 0.0)));
    }
  }
  return largest;
}

TEST_P(DeviceKernel, LmHeadLoss) {
  const Attributes scale{{"scale", 0.25}};
  for (const auto& [tokens, c, vocabulary] : {std::array<std::int64_t, 3>{1, 3, 2}, {21, 9, 37}}) {
    const Value x = random({1, tokens, c}), w = random({vocabulary, c});
    Value targets = random_ids(engine_, {1, tokens}, 0, static_cast<int>(vocabulary));
    if (tokens > 4) targets.data[3] = targets.data[tokens - 1] = -1;
    const Value one{DType::f32, {}, {1}};
    const Value loss = *reference::lm_head_loss({x, w, targets}, 0.25)[0];
    const bool rounded_logits = narrow() && GetParam().device != "cpu";  // docs/ops.md: GPUs may round logits to T
    const double loss_tolerance = rounded_logits ? 3e-3 : 2e-6;
    // A logit that is rounded by so much changes its probability by that fraction.
    const double gradient_tolerance = tolerance() + (rounded_logits ? 0x1p-9 * largest_product(x, w) : 0);
    expect_close(run("lm_head_loss", {x, w, targets}, scale)[0], loss, loss_tolerance, "loss");
    for (const bool add : kWithAndWithout) {
      const Value dx = reference::gradient("lm_head_loss", {x, w, targets}, scale, 0, one);
      Value dw = reference::gradient("lm_head_loss", {x, w, targets}, scale, 1, one);
      const auto acc = accumulator(add, gradient(), dw);
      const Values made = run("lm_head_loss_grad", {x, w, targets, acc}, with_gradient(scale));
      expect_close(made[0], loss, loss_tolerance, "loss of the gradient op");
      expect_close(made[1], dx, gradient_tolerance, "dx");
      expect_close(made[2], dw, gradient_tolerance, "dw");
    }
    targets.data[0] = static_cast<double>(vocabulary);
    EXPECT_THROW(run("lm_head_loss", {x, w, targets}, scale), DataError);
  }
}

TEST_P(DeviceKernel, LmHeadLossInChunks) {
  // 16 MiB of logits are made at once: these take three chunks, the last one shorter. The gradients are compared with those of
  // the same rows in separate calls, which fit one chunk.
  constexpr std::int64_t tokens = 67, c = 8, vocabulary = 150'000;
  const Attributes scale{{"scale", 1.0 / 67}};
  const Value x = random({1, tokens, c}), w = random({vocabulary, c});
  const Value targets = random_ids(engine_, {1, tokens}, 0, vocabulary);
  const Values whole = run("lm_head_loss_grad", {x, w, targets, std::nullopt}, with_gradient(scale));
  double loss = 0;
  std::optional<Value> dw;
  Value dx = zeros(dtype(), x.shape);
  for (std::int64_t first = 0; first < tokens; first += 20) {
    const std::int64_t rows = std::min<std::int64_t>(20, tokens - first);
    const auto part = [&](const Value& value, std::int64_t width, const Shape& shape) {
      return Value{value.dtype, shape, {value.data.begin() + first * width, value.data.begin() + (first + rows) * width}};
    };
    const Values made =
        run("lm_head_loss_grad", {part(x, c, {1, rows, c}), w, part(targets, 1, {1, rows}), dw}, with_gradient(scale));
    loss += made[0]->data[0];
    std::copy(made[1]->data.begin(), made[1]->data.end(), dx.data.begin() + first * c);
    dw = made[2];
  }
  EXPECT_NEAR(whole[0]->data[0], loss, 1e-5 * loss);
  expect_close(whole[1], dx, tolerance(), "dx");
  // In bf16 each chunk's sum is rounded.
  expect_close(whole[2], *dw, gradient() == DType::bf16 ? 3e-2 : tolerance(), "dw");
}

TEST_P(DeviceKernel, AddScaleAndCast) {
  const Value a = random({3, 37}), b = random({3, 37});
  Value sum = a;
  for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += b.data[i];
  expect_close(run("add", {a, b})[0], sum, narrow() ? 4e-3 : 1e-7, "a + b");
  for (const Value& x : {a, random({2, 5, 16})}) {  // in packs of 16 bytes and without
    Value expected = x;
    for (double& value : expected.data) value = reference::rounded(static_cast<float>(value) * 1.7F, dtype());
    expect_close(run("scale", {x}, {{"factor", static_cast<double>(1.7F)}})[0], expected, 0, "scale");
  }
  for (const DType to : {DType::f32, DType::bf16}) {
    Value expected = a;
    for (double& x : expected.data) x = reference::rounded(x, to);
    expect_close(run("cast", {a}, {{"dtype", std::string(name_of(to))}})[0], expected, 0, "cast");
  }
}

TEST_P(DeviceKernel, CopyOfDenseTensorsAndOfRows) {
  for (const Shape& shape : {Shape{2, 5, 24}, Shape{1, 300, 7}, Shape{3, 1, 1}}) {
    const Value x = random(shape);
    expect_close(run("copy", {x})[0], x, 0, "copy of " + shape.text());
  }
}

Setup cpu(const std::string& level, const std::string& threads, const std::string& bf16, DType dtype, DType gradient) {
  std::string name = level.substr(level.size() - 2) + "_" + threads + "threads_" + std::string(name_of(dtype));
  if (dtype == DType::bf16) name += "_" + bf16 + "_gradients_" + std::string(name_of(gradient));
  return {name, "cpu", {{"level", level}, {"threads", threads}, {"bf16", bf16}}, dtype, gradient};
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceKernel,
                         ::testing::Values(cpu("x86-64-v2", "1", "auto", DType::f32, DType::f32),
                                           cpu("x86-64-v3", "3", "auto", DType::f32, DType::f32),
                                           cpu("x86-64-v4", "2", "auto", DType::f32, DType::f32),
                                           cpu("x86-64-v3", "2", "emulated", DType::bf16, DType::f32),
                                           cpu("x86-64-v4", "3", "emulated", DType::bf16, DType::bf16),
                                           cpu("x86-64-v4", "2", "native", DType::bf16, DType::f32),
                                           cpu("x86-64-v4", "1", "native", DType::bf16, DType::bf16)),
                         [](const ::testing::TestParamInfo<Setup>& info) { return info.param.name; });

#ifdef CONSIST_HAS_CUDA_DEVICE
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceKernel,
                         ::testing::Values(Setup{"f32", "cuda", test::kCudaOptions, DType::f32, DType::f32},
                                           Setup{"bf16_gradients_f32", "cuda", test::kCudaOptions, DType::bf16, DType::f32},
                                           Setup{"bf16_gradients_bf16", "cuda", test::kCudaOptions, DType::bf16, DType::bf16}),
                         [](const ::testing::TestParamInfo<Setup>& info) { return info.param.name; });
#endif

TEST_P(DeviceKernels, WhatThereIsNoKernelFor) {
  const Attributes none;
  const Buffer x{nullptr, DType::e4m3, Shape{1, 2, 4}}, w{nullptr, DType::e4m3, Shape{3, 4}},
      y{nullptr, DType::e4m3, Shape{1, 2, 3}};
  const Buffer in[] = {x, w}, out[] = {y};
  EXPECT_EQ(device_->make_kernel({"linear", in, out, none}), nullptr);
  EXPECT_EQ(device_->make_kernel({"convolution", in, out, none}), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceKernels, ::testing::ValuesIn(test::device_kinds()),
                         [](const ::testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace consist
