// sgd, lion and muon beside their formulas in fp64.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/kernels/device_kernel.h"

namespace consist {
namespace {

using reference::random_value;
using reference::zeros;
using test::DeviceKernel;
using test::expect_close;
using test::kWithAndWithout;
using test::Value;
using test::Values;

constexpr double rate = 0.01, decay = 0.1, clip_by = 0.5;

/// The update of one element: weight, momentum, clipped gradient.
using Rule = std::function<void(double&, double&, double)>;

/// Several parameters in one instruction, with and without masters and states.
void expect_update(DeviceKernel& of, const char* op, const Attributes& attributes, bool has_state, const Rule& rule) {
  const Value scalars{DType::f32, {2}, {static_cast<float>(rate), 3}}, clip{DType::f32, {}, {clip_by}};
  for (const bool with_master : kWithAndWithout) {
    Values in{scalars, clip}, expected;
    for (const std::int64_t n : {1, 37, 1000, 20'000}) {
      const Value p = of.random({n}), g = random_value(of.engine_, of.gradient(), {n});
      const Value master = random_value(of.engine_, DType::f32, {n});
      Value m = random_value(of.engine_, DType::f32, {n}, 0.1), weight = with_master ? master : p;
      in.insert(in.end(), {p, g, with_master ? std::optional(master) : std::nullopt, has_state ? std::optional(m) : std::nullopt});
      for (std::size_t i = 0; i < weight.data.size(); ++i) {
        double none = 0;
        rule(weight.data[i], has_state ? m.data[i] : none, clip_by * g.data[i]);
      }
      Value rounded = weight;
      rounded.dtype = of.dtype();
      expected.insert(expected.end(), {rounded, with_master ? std::optional(weight) : std::nullopt, has_state ? std::optional(m) : std::nullopt});
    }
    const Values made = of.run(op, in, attributes);
    ASSERT_EQ(made.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(made[i].has_value(), expected[i].has_value());
      if (expected[i]) expect_close(made[i], *expected[i], i % 3 == 0 && of.narrow() ? 4e-3 : 1e-6, op + std::string(" output ") + std::to_string(i));
    }
  }
}

TEST_P(DeviceKernel, Sgd) {
  for (const std::int64_t nesterov : {0, 1}) {
    const double momentum = 0.9;
    expect_update(*this, "sgd", {{"momentum", momentum}, {"weight_decay", decay}, {"nesterov", nesterov}}, true,
                  [&](double& w, double& m, double g) {
                    g += decay * w;
                    m = momentum * m + g;
                    w -= rate * (nesterov != 0 ? g + momentum * m : m);
                  });
  }
  expect_update(*this, "sgd", {{"momentum", 0.0}, {"weight_decay", decay}}, false,
                [](double& w, double&, double g) { w -= rate * (g + decay * w); });
}

TEST_P(DeviceKernel, Lion) {
  const double beta1 = 0.9, beta2 = 0.99;
  expect_update(*this, "lion", {{"beta1", beta1}, {"beta2", beta2}, {"weight_decay", decay}}, true, [&](double& w, double& m, double g) {
    const double c = beta1 * m + (1 - beta1) * g;
    w -= rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + decay * w);
    m = beta2 * m + (1 - beta2) * g;
  });
}

TEST_P(DeviceKernel, AHeldUpdateChangesNothing) {
  const Value scalars{DType::f32, {4}, {static_cast<float>(rate), 0.1F, 0.05F, 3}}, clip{DType::f32, {}, {clip_by}};
  const auto held = [&](double overflow) {
    return run("hold_update", {scalars, clip, Value{DType::f32, {}, {overflow}}}, {});
  };
  const Values goes_on = held(0), holds = held(3);
  EXPECT_EQ(goes_on[0]->data, scalars.data);
  EXPECT_EQ(goes_on[1]->data, clip.data);
  EXPECT_EQ(holds[0]->data, (std::vector<double>{0, scalars.data[1], scalars.data[2], scalars.data[3]}));
  EXPECT_EQ(holds[1]->data, std::vector<double>{-1});

  const Value p = random({1000}), g = random_value(engine_, gradient(), {1000}), master = random_value(engine_, DType::f32, {1000});
  const Value m = random_value(engine_, DType::f32, {1000}, 0.1), v = random_value(engine_, DType::f32, {1000}, 0.1);
  const auto expect_same = [](const Values& made, const Values& before, const char* op) {
    ASSERT_EQ(made.size(), before.size());
    for (std::size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i]->data, before[i]->data) << op << " output " << i;
  };
  const Attributes adam{{"beta1", 0.9}, {"beta2", 0.99}, {"epsilon", 1e-8}, {"weight_decay", decay}, {"stochastic_rounding", std::int64_t{0}}, {"seed", std::int64_t{1}}};
  expect_same(run("adamw", {holds[0], holds[1], p, g, master, m, v}, adam), {p, master, m, v}, "adamw");
  const Value two{DType::f32, {2}, {0, 3}};
  expect_same(run("sgd", {two, holds[1], p, g, master, m}, {{"momentum", 0.9}, {"weight_decay", decay}}), {p, master, m}, "sgd");
  expect_same(run("lion", {two, holds[1], p, g, master, m}, {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", decay}}),
              {p, master, m}, "lion");
  const Value matrix = random_value(engine_, gradient(), {37, 53}), momentum = random_value(engine_, DType::f32, {37, 53}, 0.1);
  expect_same(run("muon_momentum", {holds[1], matrix, momentum}, {{"momentum", 0.9}, {"nesterov", std::int64_t{1}}}),
              {momentum, zeros(DType::f32, {37, 53})}, "muon_momentum");
}

TEST_P(DeviceKernel, MuonMomentum) {
  const Value clip{DType::f32, {}, {clip_by}}, g = random_value(engine_, gradient(), {37, 53});
  for (const std::int64_t nesterov : {0, 1}) {
    Value m = random_value(engine_, DType::f32, {37, 53}, 0.1), direction = m;
    const Values made = run("muon_momentum", {clip, g, m}, {{"momentum", 0.9}, {"nesterov", nesterov}});
    for (std::size_t i = 0; i < m.data.size(); ++i) {
      const double gradient = clip_by * g.data[i];
      m.data[i] = 0.9 * m.data[i] + 0.1 * gradient;
      direction.data[i] = nesterov != 0 ? 0.9 * m.data[i] + 0.1 * gradient : m.data[i];
    }
    expect_close(made[0], m, 1e-6, "momentum");
    expect_close(made[1], direction, 1e-6, "direction");
  }
}

TEST_P(DeviceKernel, Muon) {
  const Value scalars{DType::f32, {4}, {static_cast<float>(rate), 1, 1, 3}};
  for (const bool with_master : kWithAndWithout) {
    const Value p = random({37, 53}), o = random_value(engine_, DType::f32, {37, 53});
    const Value master = random_value(engine_, DType::f32, {37, 53});
    Value weight = with_master ? master : p;
    const Values made = run("muon", {scalars, p, o, with_master ? std::optional(master) : std::nullopt},
                            {{"scale", 0.2}, {"weight_decay", decay}});
    for (std::size_t i = 0; i < weight.data.size(); ++i) weight.data[i] = weight.data[i] * (1 - rate * decay) - rate * 0.2 * o.data[i];
    if (with_master) expect_close(made[1], weight, 1e-6, "master");
    weight.dtype = dtype();
    expect_close(made[0], weight, narrow() ? 4e-3 : 1e-6, "weight");
  }
}

/// a b, or a bᵀ.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, std::size_t m, std::size_t n, std::size_t k,
                            bool transposed) {
  std::vector<double> c(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * (transposed ? b[j * k + l] : b[l * n + j]);
    }
  }
  return c;
}

TEST_P(DeviceKernel, Orthogonalize) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{16, 48}, {48, 16}, {32, 32}, {1, 8}}) {
    const Value x = random_value(engine_, DType::f32, {rows, columns});
    const std::string products = narrow() ? "bf16" : "f32";
    const Value made = *run("orthogonalize", {x}, {{"iterations", std::int64_t{5}}, {"products", products}})[0];
    const auto m = static_cast<std::size_t>(std::min(rows, columns)), n = static_cast<std::size_t>(std::max(rows, columns));
    const bool tall = rows > columns;
    double squares = 0;
    for (const double e : x.data) squares += e * e;
    std::vector<double> y(m * n);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) y[i * n + j] = (tall ? x.data[j * m + i] : x.data[i * n + j]) / std::sqrt(squares);
    }
    for (int iteration = 0; iteration < 5; ++iteration) {
      const std::vector<double> gram = product(y, y, m, m, n, true), square = product(gram, gram, m, m, m, false);
      std::vector<double> polynomial(m * m);
      for (std::size_t e = 0; e < m * m; ++e) polynomial[e] = -4.7750 * gram[e] + 2.0315 * square[e];
      const std::vector<double> more = product(polynomial, y, m, n, m, false);
      for (std::size_t e = 0; e < m * n; ++e) y[e] = 3.4445 * y[e] + more[e];
    }
    Value expected = zeros(DType::f32, {rows, columns});
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) expected.data[tall ? j * m + i : i * n + j] = y[i * n + j];
    }
    // Elements are about n^-0.5; bf16 iterations, which enlarge small singular values, keep two digits.
    const double size = 1 / std::sqrt(static_cast<double>(n));
    for (std::size_t e = 0; e < expected.data.size(); ++e)
      ASSERT_NEAR(made.data[e], expected.data[e], (narrow() ? 0.15 : 1e-4) * size) << rows << " x " << columns << ", element " << e;
  }
}

}  // namespace
}  // namespace consist
