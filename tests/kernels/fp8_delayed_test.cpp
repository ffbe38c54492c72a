// Delayed scales of every device: quantizing by the largest magnitudes of the steps before, and how those are kept.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "consist/error.h"
#include "tests/kernels/fp8_kernel.h"

namespace consist {
namespace {

using test::HostTensor;
using test::HostTensors;
using test::infinity;
using test::not_a_number;

class Fp8Delayed : public test::Fp8Kernel {
 protected:
  /// The largest of `steps`, then these.
  static HostTensor history(const std::vector<float>& steps) {
    HostTensor made(DType::f32, {1 + static_cast<std::int64_t>(steps.size())});
    made.set(0, *std::max_element(steps.begin(), steps.end()));
    for (std::size_t i = 0; i < steps.size(); ++i) made.set(static_cast<std::int64_t>(i) + 1, steps[i]);
    return made;
  }
  static Attributes delayed_attributes(DType type) {
    Attributes attributes = quantize_attributes(type);
    attributes.set("scaling", std::string("delayed"));
    return attributes;
  }
};

TEST_P(Fp8Delayed, TheScaleIsThatOfTheStepsBefore) {
  for (const Shape& shape : {Shape{1, 1, 1}, {2, 3, 5}, {1, 33, 17}, {3, 48, 144}, {2, 80, 1040}, {131, 7}, {256, 336}}) {
    const HostTensor x = awkward(shape);
    const std::int64_t rows = shape.rows(), columns = shape.last();
    float own = 0;
    for (std::int64_t i = 0; i < shape.elements(); ++i) own = std::max(own, std::abs(static_cast<float>(x[i])));
    // None before; one like this tensor; a smaller one, beyond which it saturates; a larger one.
    for (const float before : {0.0F, own, own / 4, own * 300}) {
      for (const DType type : {DType::e4m3, DType::e5m2}) {
        SCOPED_TRACE(shape.text() + " after " + std::to_string(before));
        const HostTensors made = run("quantize", {x, history({before / 2, before, 0})}, delayed_attributes(type));
        ASSERT_EQ(made.size(), 4U);
        const float scale = float8_scale(before > 0 ? before : own, type);
        EXPECT_EQ((*made[2])[0], 1.0F / scale);
        EXPECT_EQ((*made[3])[0], own) << "the tensor's own largest magnitude";
        for (std::int64_t i = 0; i < shape.elements(); ++i) {
          const std::uint8_t expected = code(static_cast<float>(x[i]) * scale, type);
          ASSERT_EQ(made[0]->bytes[static_cast<std::size_t>(i)], expected) << "at " << i;
          ASSERT_EQ(made[1]->bytes[static_cast<std::size_t>(i % columns * rows + i / columns)], expected)
              << "transposed at " << i;
        }
      }
    }
  }
}

TEST_P(Fp8Delayed, WhatIsNotFiniteIsReportedByNameWhateverCameBefore) {
  for (const float before : {0.0F, 3.0F}) {
    for (const auto& [value, what] : {std::pair{infinity, "infinity"}, {not_a_number, "NaN"}}) {
      HostTensor x = random(DType::bf16, {2, 144, 160});
      x.set(x.shape.elements() - 30, value);
      try {
        run("quantize", {x, history({before})}, delayed_attributes(DType::e4m3));
        ADD_FAILURE() << what << " was swallowed";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'layer.7.down'"), ::testing::HasSubstr(what)));
      }
    }
  }
}

TEST_P(Fp8Delayed, HistoriesTakeTheLargestOfRanksAndMicroBatches) {
  constexpr std::int64_t ranks = 3, first = 1, columns = 2;
  const std::int64_t lengths[] = {1, 2, 5, 256, 257, 300, 1024};
  const auto n = first + columns * static_cast<std::int64_t>(std::size(lengths)) + 1;
  HostTensor amaxes(DType::f32, {ranks, n});
  const auto magnitude = [&] { return static_cast<float>(engine_() % 100'000) / 64; };
  for (std::int64_t i = 0; i < ranks * n; ++i) amaxes.set(i, magnitude());
  HostTensors in{amaxes};
  std::vector<std::vector<float>> expected;
  for (std::size_t k = 0; k < std::size(lengths); ++k) {
    std::vector<float> steps(static_cast<std::size_t>(lengths[k]));
    // The largest of all is the oldest, which leaves, in every second history.
    for (float& step : steps) step = magnitude();
    if (k % 2 == 1) steps.back() = 1e6F;
    in.emplace_back(history(steps));
    float newest = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t c = 0; c < columns; ++c)
        newest = std::max(newest, static_cast<float>(amaxes[rank * n + first + static_cast<std::int64_t>(k) * columns + c]));
    }
    steps.insert(steps.begin(), newest);
    steps.pop_back();
    steps.insert(steps.begin(), *std::max_element(steps.begin(), steps.end()));
    expected.push_back(steps);
  }
  const HostTensors made = run("record_amaxes", in, {{"first", first}, {"columns", columns}});
  ASSERT_EQ(made.size(), expected.size());
  for (std::size_t k = 0; k < made.size(); ++k) {
    for (std::size_t i = 0; i < expected[k].size(); ++i)
      ASSERT_EQ((*made[k])[static_cast<std::int64_t>(i)], expected[k][i]) << "history of " << lengths[k] << " steps, at " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8Delayed, test::fp8_setups_of_cpu(), test::name_of_setup);
#ifdef CONSIST_HAS_CUDA_DEVICE
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8Delayed, ::testing::Values(test::Fp8Setup{"cuda", "cuda", test::kCudaOptions}),
                         test::name_of_setup);
#endif

}  // namespace
}  // namespace consist
