// The gradients' formulas, which all cells rest on, beside central differences of the ops themselves.
#include <gtest/gtest.h>

#include "core/reference/gradients.h"
#include "core/reference/moe.h"
#include "tests/reference/numerical.h"

namespace consist::reference {
namespace {

class Formulas : public ::testing::Test {
 protected:
  Value random(const Shape& shape) { return random_value(random_, DType::f32, shape); }

  void expect_near(const Value& found, const Value& expected) {
    ASSERT_EQ(found.data.size(), expected.data.size());
    for (std::size_t i = 0; i < found.data.size(); ++i) EXPECT_NEAR(found.data[i], expected.data[i], 1e-7) << "element " << i;
  }

  std::mt19937 random_{5};
};

TEST_F(Formulas, Linear) {
  const Value x = random({2, 3, 4}), w = random({5, 4}), bias = random({5}), dy = random({2, 3, 5});
  expect_near(linear_input_grad(dy, w), gradient("linear", {x, w, bias}, {}, 0, dy));
  expect_near(linear_weight_grad(x, dy), gradient("linear", {x, w, bias}, {}, 1, dy));
  expect_near(linear_bias_grad(dy), gradient("linear", {x, w, bias}, {}, 2, dy));
}

TEST_F(Formulas, Embedding) {
  const Value ids = random_ids(random_, {2, 3}, 0, 5), table = random({5, 4}), dy = random({2, 3, 4});
  expect_near(embedding_grad(ids, dy, 5, 0, -1), gradient("embedding", {ids, table}, {}, 1, dy));
}

TEST_F(Formulas, RmsNorm) {
  const Attributes attributes{{"epsilon", 1e-3}};
  const Values in{random({2, 3, 4}), std::nullopt, random({4})};
  const Value dy = random({2, 3, 4}), rstd = *rms_norm(in, 1e-3)[2];
  const Values found = rms_norm_grad(dy, *in[0], rstd, *in[2]);
  expect_near(*found[0], gradient("rms_norm", in, attributes, 0, dy));
  expect_near(*found[1], gradient("rms_norm", in, attributes, 2, dy));
}

TEST_F(Formulas, Rope) {
  const Attributes attributes{{"head_dim", std::int64_t{4}}, {"epsilon", 1e-3}};
  const Value x = random({2, 3, 8}), table = random({3, 4}), w = random({4}), dy = random({2, 3, 8});
  expect_near(*rope_grad(dy, table, nullptr, nullptr, nullptr, 4)[0],
              gradient("rope", {x, table, std::nullopt}, attributes, 0, dy));
  const Value rstd = *rope({x, table, w}, 4, 1e-3)[1];
  const Values found = rope_grad(dy, table, &x, &rstd, &w, 4);
  expect_near(*found[0], gradient("rope", {x, table, w}, attributes, 0, dy));
  expect_near(*found[1], gradient("rope", {x, table, w}, attributes, 2, dy));
}

TEST_F(Formulas, Attention) {
  const Values in{random({2, 3, 16}), random({2, 3, 8}), random({2, 3, 8})};
  const Value dy = random({2, 3, 16});
  for (const AttentionScores& scores :
       {AttentionScores{}, AttentionScores{.scale = 0.7}, AttentionScores{.scale = 0.7, .cap = 0.8}}) {
    Attributes attributes{{"head_dim", std::int64_t{4}}};
    if (scores.scale != 0) attributes.set("scale", scores.scale);
    if (scores.cap != 0) attributes.set("cap", scores.cap);
    const Values made = attention(in, 4, {}, scores),
                 found = attention_grad(dy, *in[0], *in[1], *in[2], *made[0], *made[1], 4, {}, scores);
    for (std::size_t k = 0; k < 3; ++k) expect_near(*found[k], gradient("attention", in, attributes, k, dy));
  }
}

// As the formula says, not as the code that both the reference and its gradient share.
TEST_F(Formulas, ScoresOfAttention) {
  EXPECT_DOUBLE_EQ(attention_score(3, 4, {}), 1.5);
  EXPECT_DOUBLE_EQ(attention_score(3, 4, {.scale = 0.1}), 0.3);
  EXPECT_DOUBLE_EQ(attention_score(3, 4, {.scale = 2, .cap = 5}), 5 * std::tanh(1.2));
}

TEST_F(Formulas, Swiglu) {
  const Values in{random({2, 3, 4}), random({2, 3, 4})};
  const Value dy = random({2, 3, 4});
  const Values found = swiglu_grad(dy, *in[0], *in[1]);
  for (std::size_t k = 0; k < 2; ++k) expect_near(*found[k], gradient("swiglu", in, {}, k, dy));
}

TEST_F(Formulas, LmHeadLoss) {
  const Attributes attributes{{"scale", 0.25}};
  Value targets = random_ids(random_, {2, 3}, 0, 5);
  targets.at(1) = -1;
  const Values in{random({2, 3, 4}), random({5, 4}), targets};
  const Value one{DType::f32, {}, {1}};
  const Values found = lm_head_loss_grad(in, 0.25);
  expect_near(*found[0], *lm_head_loss(in, 0.25)[0]);
  for (std::size_t k = 0; k < 2; ++k) expect_near(*found[k + 1], gradient("lm_head_loss", in, attributes, k, one));
}

double dot(const Value& a, const Value& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}
/// d/dx of `function`, by central differences.
Value numerical(Value& x, const std::function<double()>& function) {
  return {DType::f32, x.shape, numerical_gradient(x.data, function)};
}

TEST_F(Formulas, Routing) {
  // Logits far enough apart that the small steps of differences change no choice.
  Value logits = random({2, 3, 5});
  for (std::size_t i = 0; i < logits.data.size(); ++i)
    logits.data[i] = 0.3 * logits.data[i] + static_cast<double>(i % 5 * (i % 3));
  for (const bool normalize : {false, true}) {
    const Values made = moe_route(logits, 2, normalize);
    const Value dweights = random({2, 3, 2});
    Value dstatistics = random({11});
    for (std::int64_t e = 0; e < 5; ++e) dstatistics.at(e) = 0;  // how many choices fell on an expert has no gradient
    const Value expected = numerical(logits, [&] {
      const Values again = moe_route(logits, 2, normalize);
      return dot(*again[0], dweights) + dot(*again[2], dstatistics);
    });
    expect_near(moe_route_grad(logits, *made[1], &dweights, &dstatistics, normalize), expected);
    const SigmoidRouter sigmoid;
    const Values by_sigmoids = moe_route(logits, 2, normalize, nullptr, &sigmoid);
    const Value expected_of_sigmoids = numerical(logits, [&] {
      const Values again = moe_route(logits, 2, normalize, nullptr, &sigmoid);
      return dot(*again[0], dweights) + dot(*again[2], dstatistics);
    });
    expect_near(moe_route_grad(logits, *by_sigmoids[1], &dweights, &dstatistics, normalize, true), expected_of_sigmoids);
  }
}

TEST_F(Formulas, BalanceLoss) {
  Value statistics = random({9});
  Value expected = numerical(statistics, [&] { return balance_loss(statistics, 0.3, 0.2, 7); });
  for (std::int64_t e = 0; e < 4; ++e) expected.at(e) = 0;
  expect_near(balance_loss_grad(statistics, 0.3, 0.2, 7), expected);
}

TEST_F(Formulas, RowsOfExperts) {
  Value x = random({2, 3, 4}), weights = random({2, 3, 2});
  const Value experts{DType::i32, {2, 3, 2}, {0, 2, 1, 0, 2, 1, 1, 2, 2, 0, 2, 1}};
  for (const std::int64_t room : {12, 20}) {
    const Values made = moe_dispatch(x, experts, weights, room, 0, 3);
    Value drows = random({1, room, 4}), drow_weights = random({room});
    for (std::int64_t row = 12; row < room; ++row) {  // of padding: nothing
      drow_weights.at(row) = 0;
      for (std::int64_t i = 0; i < 4; ++i) drows.at(row * 4 + i) = 0;
    }
    const auto function = [&] {
      const Values again = moe_dispatch(x, experts, weights, room, 0, 3);
      return dot(*again[0], drows) + dot(*again[1], drow_weights);
    };
    const Values found = moe_dispatch_grad(drows, drow_weights, *made[2], experts);
    expect_near(*found[0], numerical(x, function));
    expect_near(*found[1], numerical(weights, function));
    Value rows = random({1, room, 4});
    const Value dy = random({2, 3, 4});
    expect_near(moe_combine_grad(dy, *made[2], 2),
                numerical(rows, [&] { return dot(moe_combine(rows, *made[2], experts), dy); }));
  }
}

TEST_F(Formulas, RowsWithoutRoom) {
  const Value x = random({1, 3, 2}), weights = random({1, 3, 2});
  const Value experts{DType::i32, {1, 3, 2}, {0, 2, 1, 2, 2, 1}};
  const Values made = moe_dispatch(x, experts, weights, 4, 1, 2);  // experts 1 and 2 have 2 + 3 rows
  EXPECT_EQ(made[4]->data, std::vector<double>{1});
  EXPECT_EQ(made[3]->data, (std::vector<double>{2, 2}));
  EXPECT_EQ(made[2]->data, (std::vector<double>{2, 5, 1, 3}));
}

TEST_F(Formulas, GroupedProducts) {
  Value x = random({1, 7, 4}), w = random({3, 5, 4});
  const Value dy = random({1, 7, 5}), counts{DType::i32, {3}, {2, 0, 3}};
  const auto function = [&] { return dot(grouped_linear(x, w, counts), dy); };
  expect_near(grouped_linear_input_grad(dy, w, counts), numerical(x, function));
  expect_near(grouped_linear_weight_grad(x, dy, counts), numerical(w, function));
  Value gate_up = random({1, 5, 6}), weights = random({5});
  const Value dh = random({1, 5, 3});
  const Values found = moe_swiglu_grad(dh, gate_up, weights);
  const auto activation = [&] { return dot(moe_swiglu(gate_up, weights), dh); };
  expect_near(*found[0], numerical(gate_up, activation));
  expect_near(*found[1], numerical(weights, activation));
}

}  // namespace
}  // namespace consist::reference
