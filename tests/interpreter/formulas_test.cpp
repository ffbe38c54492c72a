// The gradients' formulas, which all cells rest on, beside central differences of the ops themselves.
#include <gtest/gtest.h>

#include "tests/reference/gradients.h"

namespace consist::reference {
namespace {

class Formulas : public testing::Test {
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
  const Attributes attributes{{"head_dim", std::int64_t{4}}};
  const Values in{random({2, 3, 16}), random({2, 3, 8}), random({2, 3, 8})};
  const Value dy = random({2, 3, 16});
  const Values made = attention(in, 4), found = attention_grad(dy, *in[0], *in[1], *in[2], *made[0], *made[1], 4);
  for (std::size_t k = 0; k < 3; ++k) expect_near(*found[k], gradient("attention", in, attributes, k, dy));
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

}  // namespace
}  // namespace consist::reference
