// Which messages a collective instruction becomes.
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

TEST(CollectiveKernels, ScatteredPartsAreRefused) {
  Twin twin;
  Values whole({400, 4}), part({400, 2});
  EXPECT_THROW(run(twin, "all_gather", 1, {part.buffer()}, {whole.buffer()}), ProgramError);
}

}  // namespace
}  // namespace consist
