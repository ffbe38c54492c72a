// Products of experts' rows in 8-bit floats on every device against fp64, and what comes before them: quantizing without a
// transposed copy, and largest magnitudes that ops of mixtures state of what they make.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/reference/moe.h"
#include "tests/kernels/fp8_kernel.h"

namespace consist {
namespace {

using test::expect_product;
using test::HostTensor;
using test::HostTensors;
using test::LocalParts;
using test::Product;
using test::product;
using test::Repeated;

struct Groups {
  std::vector<int> counts;
  std::int64_t padding, in, out;
};

constexpr float rows_descale = 0.25F, weights_descale = 0.0078125F;

class Fp8Grouped : public test::Fp8Kernel {
 protected:
  /// Rows of codes, behind which padding holds NaN.
  HostTensor rows_of(DType type, const Groups& g, std::int64_t channels) {
    const std::int64_t used = used_rows(g);
    HostTensor rows = random(type, {1, used + g.padding, channels}, 30);
    for (std::int64_t i = used * channels; i < rows.shape.elements(); ++i) rows.bytes[static_cast<std::size_t>(i)] = 0x7f;
    return rows;
  }
  static std::int64_t used_rows(const Groups& g) {
    std::int64_t used = 0;
    for (const int count : g.counts) used += count;
    return used;
  }
  static HostTensor counts_of(const Groups& g) {
    HostTensor counts(DType::i32, {static_cast<std::int64_t>(g.counts.size())});
    for (std::size_t e = 0; e < g.counts.size(); ++e) counts.set(static_cast<std::int64_t>(e), g.counts[e]);
    return counts;
  }
  /// Lines of `columns` elements of a tensor, one behind the other.
  static HostTensor lines(const HostTensor& from, std::span<const std::int64_t> begins, std::int64_t columns) {
    HostTensor taken(from.dtype, {1, static_cast<std::int64_t>(begins.size()), columns});
    const auto bytes = static_cast<std::size_t>(columns) * size_of(from.dtype);
    for (std::size_t i = 0; i < begins.size(); ++i)
      std::copy_n(from.bytes.data() + static_cast<std::size_t>(begins[i]) * size_of(from.dtype), bytes,
                  taken.bytes.data() + i * bytes);
    return taken;
  }
  /// Each expert's first and last rows and those at the edges of tiles, all columns; and every element a number, those of padding
  /// 0. `line(e, i)`: where line i of expert e's weight begins, of n.
  template <typename Line>
  void expect_rows(const HostTensor& y, const Groups& g, const HostTensor& rows, const HostTensor& weights, const Line& line,
                   test::Accumulator sums) {
    const std::int64_t n = y.shape.last(), k = rows.shape.last(), used = used_rows(g);
    for (std::int64_t i = 0; i < y.shape.elements(); ++i)
      ASSERT_TRUE(i < used * n ? std::isfinite(y[i]) : y[i] == 0) << "element " << i << " of " << y.shape.text();
    std::int64_t begin = 0;
    for (std::size_t e = 0; e < g.counts.size(); ++e) {
      const std::int64_t count = g.counts[e];
      std::set<std::int64_t> some;
      for (const std::int64_t at : {0, 1, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 255, 256}) some.insert(at);
      for (const std::int64_t back : {1, 2, 9}) some.insert(count - back);
      std::vector<std::int64_t> from, to, of_weight;
      for (const std::int64_t at : some) {
        if (at < 0 || at >= count) continue;
        from.push_back((begin + at) * k);
        to.push_back((begin + at) * n);
      }
      for (std::int64_t i = 0; i < n; ++i) of_weight.push_back(line(static_cast<std::int64_t>(e), i));
      begin += count;
      if (from.empty()) continue;
      const auto m = static_cast<std::int64_t>(from.size());
      const Product expected = product(lines(rows, from, k), lines(weights, of_weight, k), m, n, k,
                                       double{rows_descale} * weights_descale, {1, m, n}, sums);
      expect_product(lines(y, to, n), expected, "expert " + std::to_string(e) + " of " + y.shape.text());
    }
  }

  void expect_products(const Groups& g) {
    const auto experts = static_cast<std::int64_t>(g.counts.size());
    const HostTensor counts = counts_of(g), w = random(DType::e4m3, {experts, g.out, g.in}, 30),
                     wt = random(DType::e4m3, {g.in, experts, g.out}, 30);
    for (const int fast : {0, 1}) {
      for (const DType made : {DType::bf16, DType::f32}) {
        const Attributes attributes = product_attributes(made, fast);
        const HostTensor x = rows_of(DType::e4m3, g, g.in);
        const HostTensor y =
            *run("fp8_grouped_linear", {x, scalar(rows_descale), w, scalar(weights_descale), counts}, attributes)[0];
        expect_rows(
            y, g, x, w, [&](std::int64_t e, std::int64_t i) { return (e * g.out + i) * g.in; }, accumulator(fast != 0));
        for (const DType format : {DType::e4m3, DType::e5m2}) {
          const HostTensor dy = rows_of(format, g, g.out);
          const HostTensor dx = *run("fp8_grouped_linear_input_grad",
                                     {dy, scalar(rows_descale), wt, scalar(weights_descale), counts}, attributes)[0];
          expect_rows(
              dx, g, dy, wt, [&](std::int64_t e, std::int64_t i) { return (i * experts + e) * g.out; }, accumulator(fast != 0));
        }
      }
    }
  }
};

TEST_P(Fp8Grouped, ProductsAreThoseOfTheQuantizedValues) {
  for (const Groups& g : {Groups{{1}, 0, 16, 16},
                          {{3, 0, 9, 1}, 4, 32, 48},
                          {{0, 0}, 5, 16, 32},
                          {{64, 130, 0, 7, 16}, 39, 48, 80},
                          {{5, 0, 20}, 9, 33, 7}})  // which no copy engine takes
    expect_products(g);
}

TEST_P(Fp8Grouped, QuantizingWithoutATransposedCopyMakesTheSameCodes) {
  for (const Shape& shape : {Shape{1, 1, 1}, {1, 33, 17}, {1, 48, 144}, {1, 130, 272}, {1, 200, 1040}}) {
    const HostTensor x = awkward(shape), amax = *run("amax", {x})[0];
    for (const DType type : {DType::e4m3, DType::e5m2}) {
      for (const bool delayed : {false, true}) {
        Attributes attributes = quantize_attributes(type);
        if (delayed) attributes.set("scaling", std::string("delayed"));
        HostTensor history(DType::f32, {2});
        const HostTensors in{x, delayed ? history : amax}, both = run("quantize", in, attributes);
        attributes.set("transposed", std::int64_t{0});
        const HostTensors alone = run("quantize", in, attributes);
        ASSERT_EQ(alone.size(), both.size());
        EXPECT_FALSE(alone[1].has_value());
        for (const std::size_t output : {std::size_t{0}, std::size_t{2}, both.size() - 1})
          EXPECT_TRUE(alone[output]->bytes == both[output]->bytes) << "output " << output << " of " << shape.text();
      }
    }
  }
}

/// Outputs are those of the op alone, to the bit, and behind them comes the largest magnitude of the first one.
TEST_P(Fp8Grouped, OpsOfMixturesStateTheLargestMagnitudeOfWhatTheyMake) {
  constexpr std::int64_t experts = 6, first = 2, held = 3, choices = 2;
  for (const std::int64_t tokens : {1, 19, 300}) {
    for (const std::int64_t channels : {1, 24, 264}) {
      const std::int64_t pairs_made = tokens * choices;
      const HostTensor x = random(DType::bf16, {1, tokens, channels}, 3), logits = random(DType::bf16, {1, tokens, experts}),
                       gate_up = random(DType::bf16, {1, pairs_made, 2 * channels}, 2),
                       weights = random(DType::f32, {pairs_made}), dh = awkward({1, pairs_made, channels});
      const HostTensors routed = run("moe_route", {logits}, {{"choices", choices}, {"normalize", std::int64_t{1}}});
      const HostTensors in{x, routed[1], routed[0]};
      const Attributes room{{"rows", pairs_made}, {"experts", experts}, {"axis", AxisSet(0)}};
      // The part of a rank that holds some of the experts.
      LocalParts part{.inputs = {}, .outputs = {{}, {}, {}, {first}, {}}, .output_types = {}};
      part.output_types = {TensorType{DType::bf16, {1, pairs_made, channels}}, TensorType{DType::f32, {pairs_made}},
                           TensorType{DType::i32, {pairs_made}}, TensorType{DType::i32, {held}}, TensorType{DType::f32, {}}};
      LocalParts part_amax = part;
      part_amax.outputs.emplace_back();
      part_amax.output_types.emplace_back(TensorType{DType::f32, {}});
      const HostTensors rows = test::run_kernel(*device_, "moe_dispatch", in, room, Repeated::same_bits, part);
      struct Case {
        const char* op;
        HostTensors in;
        Attributes attributes;
        const LocalParts *alone, *with_amax;
      };
      const LocalParts whole;
      for (const Case& c : {Case{"moe_dispatch", in, room, &part, &part_amax},
                            Case{"moe_combine_grad", {x, rows[2], rows[3]}, {{"choices", choices}}, &whole, &whole},
                            Case{"moe_swiglu", {gate_up, weights}, {}, &whole, &whole},
                            Case{"moe_swiglu_grad", {dh, gate_up, weights}, {}, &whole, &whole}}) {
        SCOPED_TRACE(std::string(c.op) + " of " + std::to_string(tokens) + " tokens, " + std::to_string(channels) + " channels");
        Attributes attributes = c.attributes;
        const HostTensors alone = test::run_kernel(*device_, c.op, c.in, attributes, Repeated::same_bits, *c.alone);
        attributes.set("amax_of", std::int64_t{1});
        const HostTensors made =
            test::run_kernel(*device_, std::string(c.op) + "_amax", c.in, attributes, Repeated::same_bits, *c.with_amax);
        ASSERT_EQ(made.size(), alone.size() + 1);
        for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(made[i]->bytes == alone[i]->bytes) << "output " << i;
        double expected = 0;
        for (std::int64_t i = 0; i < alone[0]->shape.elements(); ++i) expected = std::max(expected, std::abs((*alone[0])[i]));
        EXPECT_EQ((*made.back())[0], expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8Grouped, test::fp8_setups_of_cpu(), test::name_of_setup);
#ifdef CONSIST_HAS_CUDA_DEVICE

/// Several blocks and tiles of a GPU, both kinds of pairs of them, more stages than the ring has, and columns that fill no tile.
class Fp8GroupedTiles : public Fp8Grouped {};
TEST_P(Fp8GroupedTiles, ProductsAreThoseOfTheQuantizedValues) {
  for (const Groups& g : {Groups{{300, 0, 129, 1, 64, 511, 0}, 77, 336, 528},
                          {{256, 128}, 0, 128, 256},
                          {std::vector<int>(40, 3), 0, 80, 16},
                          {{1500}, 300, 1040, 784},
                          {{0, 0, 0}, 130, 64, 64}})
    expect_products(g);
}

const std::map<std::string, std::string> plain{{"algorithm-search", "0"}, {"cache", "none"}, {"grouped-products", "plain"}};
const auto gpu_setups =
    ::testing::Values(test::Fp8Setup{"cuda", "cuda", test::kCudaOptions}, test::Fp8Setup{"cuda_plain", "cuda", plain});
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8Grouped, gpu_setups, test::name_of_setup);
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8GroupedTiles, gpu_setups, test::name_of_setup);
#endif

}  // namespace
}  // namespace consist
