// Quantizing in parts, on every device: what the ranks' parts become is what the whole would, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "consist/error.h"
#include "consist/float8.h"
#include "tests/kernels/fp8_kernel.h"

namespace consist {
namespace {

using test::Fp8Kernel;
using test::HostTensor;
using test::HostTensors;

class Fp8Parts : public Fp8Kernel {
 protected:
  static Attributes part_attributes(DType type, std::int64_t column) {
    Attributes attributes = quantize_attributes(type);
    attributes.set("column", column);
    return attributes;
  }
  static HostTensor amaxes(const Shape& shape, std::initializer_list<float> values) {
    HostTensor made(DType::f32, shape);
    std::int64_t i = 0;
    for (const float value : values) made.set(i++, value);
    return made;
  }
};

TEST_P(Fp8Parts, RankValuesLineUpScalars) {
  for (const int count : {1, 3, 500, 1201}) {  // more than one launch takes
    HostTensors scalars;
    for (int i = 0; i < count; ++i) scalars.push_back(scalar(static_cast<float>(i) - 0.5F));
    const HostTensor made = *run("rank_values", scalars, {{"axis", AxisSet(0)}, {"ranks", std::int64_t{1}}})[0];
    ASSERT_EQ(made.shape, (Shape{1, count}));
    for (int i = 0; i < count; ++i) EXPECT_EQ(made[i], static_cast<float>(i) - 0.5F);
  }
}

TEST_P(Fp8Parts, PartsBecomeWhatTheWholeDoes) {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    for (const Shape& shape : {Shape{1}, {7}, {333}, {4096}, {2, 3, 5}, {2, 64, 128}}) {
      const HostTensor x = awkward(shape);
      // The largest of a column counts, which may be that of another rank; other columns are of other tensors.
      const HostTensor table = amaxes({3, 2}, {1e30F, 3.5F, 1e30F, 117.0F, 1e30F, 0.25F});
      const HostTensors made = run("quantize_part", {x, table}, part_attributes(type, 1));
      const float scale = float8_scale(117.0F, type);
      EXPECT_EQ((*made[1])[0], 1.0F / scale);
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        ASSERT_EQ(made[0]->bytes[static_cast<std::size_t>(i)], code(static_cast<float>(x[i]) * scale, type))
            << x[i] << " of " << shape.text() << " at " << i;
      }
    }
  }
}

TEST_P(Fp8Parts, WhatAnyRankFoundThatIsNotFiniteIsReported) {
  const HostTensor x = awkward({64});
  for (const auto& [value, what] : {std::pair{test::infinity, "infinity"}, {test::not_a_number, "NaN"}}) {
    const HostTensor table = amaxes({2, 1}, {3.5F, value});
    try {
      run("quantize_part", {x, table}, part_attributes(DType::e4m3, 0));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'layer.7.down'"), ::testing::HasSubstr(what)));
    }
  }
}

TEST_P(Fp8Parts, TransposeIsTheTransposedCopyOfQuantize) {
  for (const Shape& shape : {Shape{1, 1}, {131, 7}, {16, 8}, {48, 96}, {256, 320}, {1, 130, 272}, {3, 16, 48}}) {
    const HostTensor x = awkward(shape);
    const HostTensors whole = run("quantize", {x, scalar(117.0F)}, quantize_attributes(DType::e4m3));
    const HostTensor turned = *run("transpose", {*whole[0]})[0];
    EXPECT_EQ(turned.shape, whole[1]->shape);
    EXPECT_TRUE(turned.bytes == whole[1]->bytes) << shape.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Fp8Parts, test::fp8_setups_of_cpu(), test::name_of_setup);
#ifdef CONSIST_HAS_CUDA_DEVICE
INSTANTIATE_TEST_SUITE_P(Cuda, Fp8Parts, ::testing::Values(test::Fp8Setup{"cuda", "cuda", test::kCudaOptions}),
                         test::name_of_setup);
#endif

}  // namespace
}  // namespace consist
