// Every device has memory as promised, kernels for a model's step, and the losses of the device `cpu`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "consist/error.h"
#include "core/lower/prepared_program.h"
#include "tests/conformance/parts/parts.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using testing::Candidate;
using testing::host;

class DeviceConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override {
    const PluginFile& file = host().find("device", GetParam().name);
    const std::string reason = host().unavailable(file, std::chrono::seconds(20));
    if (!reason.empty()) GTEST_SKIP() << "it cannot work here: " << reason;
    device_ = host().make<Device>("device", GetParam().name, GetParam().options);
    device_->open(0, 1);
  }
  std::shared_ptr<Device> device_;
};

TEST_P(DeviceConformance, SaysWhatItIs) {
  const DeviceInfo info = device_->info();
  EXPECT_FALSE(info.kind.empty());
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.memory_bytes, 0);
  const auto first = device_->readings(), second = device_->readings();
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].name, second[i].name);
}

TEST_P(DeviceConformance, MemoryIsZeroedAlignedAndKeepsWhatIsUploaded) {
  for (const MemorySpace space : {MemorySpace::device, MemorySpace::host}) {
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{100'003}}) {
      auto* memory = static_cast<char*>(device_->allocate(space, bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
      std::vector<char> found(static_cast<std::size_t>(bytes), 1), given(found.size());
      device_->download(found.data(), memory, bytes);
      EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), 0) << "zeroed";
      std::iota(given.begin(), given.end(), static_cast<char>(3));
      device_->upload(memory, given.data(), bytes);
      device_->download(found.data(), memory, bytes);
      EXPECT_EQ(found, given);
      device_->release(space, memory);
    }
  }
  EXPECT_GE(device_->counters().peak_bytes, 100'003);
  EXPECT_THROW(device_->allocate(MemorySpace::device, std::int64_t{1} << 55), SystemError);
}

TEST_P(DeviceConformance, AnOpThatNobodyHasGetsNoKernel) {
  const Attributes none;
  const Buffer buffer{nullptr, DType::f32, Shape{4}};
  EXPECT_EQ(device_->make_kernel({"an_op_that_nobody_has", {&buffer, 1}, {&buffer, 1}, none}), nullptr);
}

TEST_P(DeviceConformance, ProductsAreMeasured) {
  EXPECT_GT(device_->measure_matmul(DType::f32, 64, 64, 64), 0);
}

TEST_P(DeviceConformance, TheStepsOfTinyModelsHaveTheirKernels) {
  for (const char* model : {"llama-untied", "qwen3-tied"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const RunConfig run = testing::tiny_config(testing::tiny_model(model), precision);
      const Parts parts = make_parts(run, host());
      const CompileRequest request = parts.compile_request(run);
      PreparedProgram program(compile_step(request, lay_out(request.strategies, 1)), *device_, {});
      EXPECT_GT(program.plan().bytes[0], 0);
    }
  }
}

TEST_P(DeviceConformance, LossesAreThoseOfTheCpu) {
  const TemporaryFolder folder;
  const auto losses = [&](const std::string& device, const std::string& archive) {
    std::vector<std::string> words{"--model=" + testing::tiny_model("llama-untied"), "--device=" + device, "--sequence=16",
                                   "--steps=8", "--batch=4"};
    if (device == GetParam().name) {
      for (const auto& [option, value] : GetParam().options) words.push_back("--" + device + "." + option + "=" + value);
    }
    return test::train_from_scratch(folder / archive, words, testing::consist_program()).column("loss");
  };
  const std::vector<double> expected = losses("cpu", "cpu.h5"), found = losses(GetParam().name, "own.h5");
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_LT(found.back(), found.front());
  for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 1e-4) << "loss of step " << s + 1;
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance,
                         ::testing::ValuesIn(testing::candidates("device", "CONSIST_CONFORMANCE_DEVICES")),
                         [](const auto& info) { return testing::test_name(info); });

}  // namespace
}  // namespace consist
