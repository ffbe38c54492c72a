// A build that lacks code for a GPU refuses it, or the kernels that have no body there. This program is compiled for architecture
// 90 alone, in which kernels of Hopper's own instructions are empty.
#include "plugins/devices/cuda/kernels/common/compiled_code.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/moe/grouped.h"

namespace consist::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const KernelSettings hopper{.compute_capability = 90, .multiprocessors = 132};

template <typename Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const UnavailableError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(CompiledCode, AKernelWithoutABodyIsRefusedWithWhatToDo) {
  const std::string text = refusal([] { require_body(false, "90a", "the kernel of products", "choose another", hopper); });
  EXPECT_THAT(text, AllOf(HasSubstr("the kernel of products"), HasSubstr("9.0"), HasSubstr("compiled for architecture 80, 90;"),
                          HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90a"), HasSubstr("choose another")));
  EXPECT_NO_THROW(require_body(true, "90a", "the kernel of products", "choose another", hopper));
}

TEST(CompiledCode, ThePresetForHopperHasItsBodies) {
  std::ifstream file(std::string(CONSIST_SOURCE_DIR) + "/CMakePresets.json");
  const nlohmann::json presets = nlohmann::json::parse(file).at("configurePresets");
  for (const nlohmann::json& preset : presets) {
    if (preset.at("name") == "cuda-h200") {
      EXPECT_EQ(preset.at("cacheVariables").at("CMAKE_CUDA_ARCHITECTURES"), "90a");
      return;
    }
  }
  FAIL() << "there is no preset cuda-h200";
}

class CompiledFor90 : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU";
    cudaDeviceProp properties{};
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    if (properties.major != 9) GTEST_SKIP() << properties.name << " runs no code for architecture 90";
  }
};

TEST_F(CompiledFor90, ProductsOfExpertsAreRefused) {
  const GroupedSizes sizes{.experts = 4, .rows = 256, .m = 128, .n = 128, .k = 128};
  for (const GroupedProduct product : {GroupedProduct::forward, GroupedProduct::input_grad, GroupedProduct::weight_grad}) {
    EXPECT_THAT(refusal([&] { make_hopper_product(product, sizes, DType::bf16, hopper); }),
                AllOf(HasSubstr("experts' products in bf16"), HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90a"),
                      HasSubstr("--cuda.grouped-products plain")));
  }
}

TEST_F(CompiledFor90, ProductsOfExpertsInFloat8AreRefused) {
  const GroupedSizes sizes{.experts = 4, .rows = 256, .n = 128, .k = 128};
  for (const bool fast : {false, true}) {
    EXPECT_THAT(refusal([&] { make_hopper_float8_product(GroupedProduct::forward, sizes, DType::e4m3, fast, hopper); }),
                AllOf(HasSubstr("experts' products in 8-bit floats"), HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90a")));
  }
}

TEST_F(CompiledFor90, TheGpuItselfIsTaken) {
  EXPECT_NO_THROW(require_code("this GPU", hopper));
}

}  // namespace
}  // namespace consist::cuda
