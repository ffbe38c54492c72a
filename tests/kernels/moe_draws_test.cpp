// Weight gradients of experts on the GPU at the size of Qwen3-30B-A3B's, again and again with other counts: blocks draw their
// tiles from a counter while they compute, some of which are empty and some long, so that a block that reads what it has drawn
// too late, or gives it back too early, is found by time alone.
#include <cmath>
#include <cstring>
#include <random>

#include "consist/bfloat16.h"
#include "tests/kernels/kernel_shapes.h"

namespace consist {
namespace {

constexpr std::int64_t kExperts = 128, kRows = 32768, kOut = 1536, kIn = 2048;

class MoeDraws : public test::DeviceTest<int> {
 protected:
  void SetUp() override { open_or_skip("cuda", test::kCudaOptions); }
  void TearDown() override {
    for (void* memory : taken_) device_->release(MemorySpace::device, memory);
  }

  Buffer buffer(DType type, const Shape& shape) {
    const auto bytes = shape.elements() * static_cast<std::int64_t>(size_of(type));
    taken_.push_back(device_->allocate(MemorySpace::device, bytes));
    return {taken_.back(), type, shape};
  }
  Buffer random(const Shape& shape, std::vector<float>& values) {
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> stored;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      stored.push_back(to_bfloat16(normal(engine_)));
      values.push_back(from_bfloat16(stored.back()));
    }
    const Buffer made = buffer(DType::bf16, shape);
    device_->upload(made.data, stored.data(), static_cast<std::int64_t>(stored.size() * sizeof stored[0]));
    return made;
  }
  /// Rows of each expert: none of some, a few of many, most of one.
  std::vector<std::int32_t> counts() {
    std::uniform_real_distribution<double> exponent(-3, 9);
    std::vector<std::int32_t> counts;
    std::int64_t left = kRows;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      counts.push_back(static_cast<std::int32_t>(std::min(left, static_cast<std::int64_t>(std::exp(exponent(engine_))))));
      left -= counts.back();
    }
    std::shuffle(counts.begin(), counts.end(), engine_);
    return counts;
  }

  std::mt19937 engine_{41};

 private:
  std::vector<void*> taken_;
};

TEST_F(MoeDraws, WeightGradientsOfVeryUnequalExperts) {
  std::vector<float> x_values, dy_values;
  const Buffer x = random({1, kRows, kIn}, x_values), dy = random({1, kRows, kOut}, dy_values),
               of_experts = buffer(DType::i32, {kExperts}), dw = buffer(DType::bf16, {kExperts, kOut, kIn});
  Launch launch;
  launch.inputs = {x, dy, of_experts, Buffer{nullptr, DType::u8, Shape{0}}};
  launch.outputs = {dw};
  launch.label = "grouped_linear_weight_grad";
  const std::unique_ptr<Kernel> kernel =
      device_->make_kernel({launch.label, launch.inputs, launch.outputs, {{"dtype", std::string("bf16")}}, {}, {}});
  ASSERT_TRUE(kernel);
  launch.kernel = kernel.get();
  launch.workspace = buffer(DType::u8, {std::max<std::int64_t>(kernel->workspace_bytes(), 1)}).data;
  const std::unique_ptr<Executable> step = device_->prepare(std::vector<Launch>(10, launch), false);
  for (int repetition = 0; repetition < 40; ++repetition) {
    const std::vector<std::int32_t> rows = counts();
    device_->upload(of_experts.data, rows.data(), kExperts * std::int64_t{sizeof rows[0]});
    step->run();
    step->wait();
    test::Samples samples;
    std::int64_t begin = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      const std::int64_t end = begin + rows[static_cast<std::size_t>(e)], o = engine_() % kOut, k = engine_() % kIn;
      double sum = 0;
      for (std::int64_t r = begin; r < end; ++r)
        sum += double{dy_values[static_cast<std::size_t>(r * kOut + o)]} * x_values[static_cast<std::size_t>(r * kIn + k)];
      std::uint16_t found = 0;
      device_->download(&found, dw.as<std::uint16_t>() + (e * kOut + o) * kIn + k, sizeof found);
      samples.add(from_bfloat16(found), sum);
      begin = end;
    }
    samples.expect_close(4.5e-3, "dw, repetition " + std::to_string(repetition));
  }
}

}  // namespace
}  // namespace consist
