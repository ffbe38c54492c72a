// Messages that a collective instruction becomes.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "consist/error.h"
#include "consist/kernel.h"
#include "consist/op.h"
#include "consist/transport.h"

namespace consist {
namespace {

/// One of two members, of which the other holds the same values: a sum doubles them, a gather repeats them.
class Twin final : public Communicator {
 public:
  int rank() const noexcept override { return 1; }
  int size() const noexcept override { return 2; }
  void all_reduce(void* data, std::int64_t count, DType, NativeQueue) override {
    for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(data)[i] *= 2;
  }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType, NativeQueue) override {
    ++messages;
    for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(output)[i] = 2 * static_cast<const float*>(input)[count + i];
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType, NativeQueue) override {
    ++messages;
    for (std::int64_t i = 0; i < 2 * count; ++i) static_cast<float*>(output)[i] = static_cast<const float*>(input)[i % count];
  }
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType, NativeQueue) override {
    ++messages;
    for (int from = 0; from < 2; ++from) {
      for (std::int64_t i = 0; i < count; ++i)
        static_cast<float*>(output)[from * output_stride + i] = static_cast<const float*>(input)[input_stride + i];
    }
  }
  void broadcast(void*, std::int64_t, DType, int, NativeQueue) override {}
  void send(const void*, std::int64_t, DType, int, NativeQueue) override {}
  void receive(void*, std::int64_t, DType, int, NativeQueue) override {}
  void group_begin(NativeQueue) override { ++open; }
  void group_end(NativeQueue) override { --open, ++groups; }
  std::string verified_path() const override { return "memory"; }
  std::int64_t bytes_sent() const noexcept override { return 0; }

  int messages = 0, groups = 0, open = 0;
};

struct Values {
  explicit Values(Shape shape) : shape(shape), data(static_cast<std::size_t>(shape.elements()) + 8) {
    std::iota(data.begin(), data.end(), 1.0F);
  }
  Buffer buffer() { return {data.data(), DType::f32, shape}; }
  Shape shape;
  std::vector<float> data;
};

void run(Twin& twin, std::string_view op, std::int64_t dim, std::vector<Buffer> in, std::vector<Buffer> out) {
  const Attributes attributes{{"axis", AxisSet(0)}, {"dim", dim}};
  registry().get(op).make_collective_kernel({op, in, out, attributes}, &twin, 2)->launch(in, out, nullptr, nullptr);
  EXPECT_EQ(twin.open, 0);
}

TEST(CollectiveKernels, AnInnerDimensionIsOneMessagePerRowOfTheOuterOnes) {
  Twin twin;
  Values whole({3, 4, 5}), part({3, 2, 5});
  run(twin, "reduce_scatter", 1, {whole.buffer()}, {part.buffer()});
  EXPECT_EQ(twin.messages, 3);
  EXPECT_EQ(twin.groups, 1);
  for (int b = 0; b < 3; ++b) {
    for (int s = 0; s < 2; ++s) {
      for (int c = 0; c < 5; ++c) {
        EXPECT_EQ(part.data[static_cast<std::size_t>((b * 2 + s) * 5 + c)],
                  2.0F * static_cast<float>((b * 4 + 2 + s) * 5 + c + 1));
      }
    }
  }
}

TEST(CollectiveKernels, AFlatPartOfAnyShapeIsOneMessage) {
  Twin twin;
  Values whole({3, 3}), part({4});  // 5 + 4 elements
  run(twin, "reduce_scatter", -1, {whole.buffer()}, {part.buffer()});
  EXPECT_EQ(twin.messages, 1);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(part.data[i], 2.0F * static_cast<float>(5 + i + 1));
  run(twin, "all_gather", -1, {part.buffer()}, {whole.buffer()});
  EXPECT_EQ(whole.data[5], part.data[0]) << "the second part begins behind ceil(9 / 2) elements";
}

TEST(CollectiveKernels, SeveralTensorsTravelAsOneGroup) {
  Twin twin;
  Values a({6}), b({2, 7}), part_a({3}), part_b({7});
  run(twin, "all_gather", -1, {part_a.buffer(), part_b.buffer()}, {a.buffer(), b.buffer()});
  EXPECT_EQ(twin.messages, 2);
  EXPECT_EQ(twin.groups, 1);
  EXPECT_EQ(b.data[7], 1.0F);
}

// This member is the second of two that hold the same: it gets the second half along "to" of both.
void expect_exchange(const Shape& in, const Shape& out, int dim, int to, int messages) {
  Twin twin;
  Values from(in), result(out);
  const Attributes attributes{{"axis", AxisSet(0)}, {"dim", std::int64_t{dim}}, {"to", std::int64_t{to}}};
  const std::vector<Buffer> inputs{from.buffer()}, outputs{result.buffer()};
  registry()
      .get("all_to_all")
      .make_collective_kernel({"all_to_all", inputs, outputs, attributes}, &twin, 2)
      ->launch(inputs, outputs, nullptr, nullptr);
  EXPECT_EQ(twin.messages, messages);
  EXPECT_EQ(twin.open, 0);
  for (std::int64_t a = 0; a < out[0]; ++a) {
    for (std::int64_t b = 0; b < out[1]; ++b) {
      for (std::int64_t c = 0; c < out[2]; ++c) {
        std::int64_t source[] = {a, b, c};
        source[dim] %= in[dim];
        source[to] += out[to];
        const std::int64_t at = (source[0] * in[1] + source[1]) * in[2] + source[2];
        ASSERT_EQ(result.data[static_cast<std::size_t>((a * out[1] + b) * out[2] + c)], from.data[static_cast<std::size_t>(at)])
            << a << " " << b << " " << c << " from dimension " << dim << " to " << to;
      }
    }
  }
}

TEST(CollectiveKernels, AnExchangeIsOneMessagePerPieceThatBothSidesHoldTogether) {
  expect_exchange({3, 2, 6}, {3, 4, 3}, 1, 2, 6);
  expect_exchange({3, 4, 3}, {3, 2, 6}, 2, 1, 6);
  expect_exchange({2, 6, 5}, {4, 3, 5}, 0, 1, 2);
  expect_exchange({4, 3, 5}, {2, 6, 5}, 1, 0, 2);
  expect_exchange({1, 6, 5}, {2, 3, 5}, 0, 1, 1);
  expect_exchange({2, 3, 4}, {4, 3, 2}, 0, 2, 6);
  EXPECT_THROW(expect_exchange({200, 2, 6}, {200, 4, 3}, 1, 2, 400), ProgramError);
}

TEST(CollectiveKernels, ScatteredPartsAreRefused) {
  Twin twin;
  Values whole({400, 4}), part({400, 2});
  EXPECT_THROW(run(twin, "all_gather", 1, {part.buffer()}, {whole.buffer()}), ProgramError);
}

}  // namespace
}  // namespace consist
