// Kernels of mixtures of experts on the GPU where they take several blocks and tiles: uneven counts, experts without rows,
// padding that holds no numbers, sizes that no tile divides, and sizes that take the plain product.
#include "core/reference/moe.h"
#include "tests/kernels/kernel_shapes.h"

namespace consist {
namespace {

using reference::Value;
using reference::Values;
using test::DTypes;
using test::expect_close;
using test::HostTensor;
using test::HostTensors;
using test::LocalParts;
using test::Repeated;
using test::run_kernel;
using test::Samples;

struct NamedGroups {
  const char* name;
  std::vector<int> counts;
  std::int64_t padding, in, out;
};
void PrintTo(const NamedGroups& groups, std::ostream* out) {
  *out << groups.name;
}

class MoeShapes : public test::DeviceTest<std::tuple<NamedGroups, DTypes>> {
 protected:
  void SetUp() override { open_or_skip("cuda", test::kCudaOptions); }
  const NamedGroups& groups() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()).dtype; }
  DType gradient() const { return std::get<1>(GetParam()).gradient; }
  static double rounding(DType type) { return type == DType::bf16 ? 4.5e-3 : 1e-5; }

  HostTensor random(DType type, const Shape& shape) { return test::to_host(reference::random_value(engine_, type, shape)); }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint32_t>(n)); }
  /// The first, the last and some others of n.
  std::vector<std::int64_t> some(std::int64_t n, int count) {
    std::vector<std::int64_t> chosen = {0, n - 1};
    while (static_cast<int>(chosen.size()) < count) chosen.push_back(below(n));
    return chosen;
  }

  std::mt19937 engine_{31};
};

TEST_P(MoeShapes, GroupedProducts) {
  const NamedGroups& g = groups();
  const auto experts = static_cast<std::int64_t>(g.counts.size());
  std::int64_t used = 0;
  HostTensor counts(DType::i32, {experts});
  for (std::int64_t e = 0; e < experts; ++e) {
    const int count = g.counts[static_cast<std::size_t>(e)];
    counts.set(e, count);
    used += count;
  }
  const std::int64_t rows = used + g.padding;
  HostTensor x = random(dtype(), {1, rows, g.in}), dy = random(dtype(), {1, rows, g.out});
  for (HostTensor* tensor : {&x, &dy}) {
    for (std::int64_t i = used * tensor->shape.last(); i < tensor->shape.elements(); ++i) tensor->set(i, std::nan(""));
  }
  const HostTensor w = random(dtype(), {experts, g.out, g.in});
  const HostTensor y = *run_kernel(*device_, "grouped_linear", {x, w, counts}, {})[0],
                   dx = *run_kernel(*device_, "grouped_linear_input_grad", {dy, w, counts}, {})[0];
  Samples y_samples, dx_samples;
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    for (int i = 0; i < g.counts[static_cast<std::size_t>(e)]; ++i, ++row) {
      for (const std::int64_t o : some(g.out, 6)) {
        double sum = 0;
        for (std::int64_t k = 0; k < g.in; ++k) sum += x[row * g.in + k] * w[(e * g.out + o) * g.in + k];
        y_samples.add(y[row * g.out + o], sum);
      }
      for (const std::int64_t k : some(g.in, 6)) {
        double sum = 0;
        for (std::int64_t o = 0; o < g.out; ++o) sum += dy[row * g.out + o] * w[(e * g.out + o) * g.in + k];
        dx_samples.add(dx[row * g.in + k], sum);
      }
    }
  }
  for (const HostTensor* tensor : {&y, &dx}) {
    const std::int64_t all = tensor->shape.elements(), width = tensor->shape.last();
    for (std::int64_t i = 0; i < all; ++i) {
      const double value = (*tensor)[i];
      ASSERT_TRUE(i < used * width ? std::isfinite(value) : value == 0) << "element " << i << " of " << tensor->shape.text();
    }
  }
  y_samples.expect_close(rounding(dtype()), "y");
  dx_samples.expect_close(rounding(dtype()), "dx");

  for (const bool add : test::kWithAndWithout) {
    const std::optional<HostTensor> acc = add ? std::optional(random(gradient(), w.shape)) : std::nullopt;
    const Attributes attributes{{"dtype", std::string(name_of(gradient()))}};
    const HostTensor dw = *run_kernel(*device_, "grouped_linear_weight_grad", {x, dy, counts, acc}, attributes)[0];
    for (std::int64_t i = 0; i < dw.shape.elements(); ++i) ASSERT_TRUE(std::isfinite(dw[i])) << "element " << i << " of dw";
    Samples dw_samples;
    std::int64_t begin = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t end = begin + g.counts[static_cast<std::size_t>(e)];
      for (const std::int64_t o : some(g.out, 30)) {
        for (const std::int64_t k : some(g.in, 6)) {
          const std::int64_t at = (e * g.out + o) * g.in + k;
          double sum = acc ? (*acc)[at] : 0;
          for (std::int64_t r = begin; r < end; ++r) sum += dy[r * g.out + o] * x[r * g.in + k];
          dw_samples.add(dw[at], sum);
        }
      }
      begin = end;
    }
    dw_samples.expect_close(rounding(gradient()), add ? "dw, added" : "dw");
  }
}

std::string name_of_case(const ::testing::TestParamInfo<MoeShapes::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, MoeShapes,
                         ::testing::Combine(::testing::Values(NamedGroups{"uneven", {300, 0, 129, 1, 64, 511, 0}, 77, 328, 520},
                                                              NamedGroups{"whole_tiles", {256, 128}, 0, 64, 256},
                                                              NamedGroups{"odd_sizes", {5, 0, 200}, 9, 333, 77},
                                                              NamedGroups{"few_each", std::vector<int>(40, 3), 0, 72, 16},
                                                              NamedGroups{"one", {1500}, 300, 512, 768},
                                                              NamedGroups{"none", {0, 0, 0}, 130, 64, 64}),
                                            ::testing::Values(DTypes{"f32", DType::f32, DType::f32},
                                                              DTypes{"bf16_gradients_f32", DType::bf16, DType::f32},
                                                              DTypes{"bf16_gradients_bf16", DType::bf16, DType::bf16})),
                         name_of_case);

class MoeRows : public test::DeviceTest<DTypes> {
 protected:
  void SetUp() override { open_or_skip("cuda", test::kCudaOptions); }
  std::mt19937 engine_{37};
};

// Thousands of tokens, of which a part of the experts take more, fewer or as many choices as there is room for.
TEST_P(MoeRows, ManyTokens) {
  constexpr std::int64_t batch = 3, sequence = 1111, experts = 128, choices = 8, first = 20, held = 100, channels = 24;
  const DType type = GetParam().dtype;
  const auto random = [&](DType of, const Shape& shape) { return reference::random_value(engine_, of, shape); };
  const Value logits = random(type, {batch, sequence, experts});
  const Attributes routing{{"choices", choices}, {"normalize", std::int64_t{1}}};
  const Values routed = run_kernel(*device_, "moe_route", {logits}, routing),
               wanted = reference::moe_route(logits, choices, true);
  const Value &weights = *routed[0], &chosen = *wanted[1];
  EXPECT_EQ(routed[1]->data, chosen.data);
  expect_close(weights, *wanted[0], 4e-6, "weights");
  expect_close(routed[2], *wanted[2], 4e-6, "statistics");

  const auto taken = static_cast<std::int64_t>(
      std::count_if(chosen.data.begin(), chosen.data.end(), [](double e) { return e >= first && e < first + held; }));
  const Value x = random(type, {batch, sequence, channels});
  for (const std::int64_t room : {taken, taken + 700, taken - 900}) {
    const Values expected = reference::moe_dispatch(x, chosen, weights, room, first, held);
    LocalParts parts{.inputs = {}, .outputs = {{}, {}, {}, {first}, {}}, .output_types = {}};
    for (const auto& value : expected) parts.output_types.push_back(TensorType{value->dtype, value->shape});
    const Attributes attributes{{"rows", room}, {"experts", experts}, {"axis", AxisSet(0)}};
    const Values made = test::run_kernel(*device_, "moe_dispatch", {x, chosen, weights}, attributes, Repeated::same_bits, parts);
    for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_TRUE(made[k]->data == expected[k]->data) << "output " << k;
    const Value &pairs = *expected[2], &counts = *expected[3];
    const Value rows = random(type, {1, room, channels}), drow_weights = random(DType::f32, {room}), dy = random(type, x.shape);
    const double rounding = type == DType::bf16 ? 6e-3 : 4e-6;
    expect_close(run_kernel(*device_, "moe_combine", {rows, pairs, counts, chosen}, {})[0],
                 reference::moe_combine(rows, pairs, chosen), rounding, "y");
    expect_close(run_kernel(*device_, "moe_combine_grad", {dy, pairs, counts}, {{"choices", choices}})[0],
                 reference::moe_combine_grad(dy, pairs, choices), 0, "drows");
    const Values back = run_kernel(*device_, "moe_dispatch_grad", {rows, drow_weights, pairs, counts, chosen}, {}),
                 expected_back = reference::moe_dispatch_grad(rows, drow_weights, pairs, chosen);
    expect_close(back[0], *expected_back[0], rounding, "dx");
    expect_close(back[1], *expected_back[1], 0, "dweights");
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, MoeRows,
                         ::testing::Values(DTypes{"f32", DType::f32, DType::f32}, DTypes{"bf16", DType::bf16, DType::bf16}),
                         [](const ::testing::TestParamInfo<DTypes>& info) { return info.param.name; });

}  // namespace
}  // namespace consist
