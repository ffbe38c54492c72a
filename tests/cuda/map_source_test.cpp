// The sources that map, reduce and margins write are taken by NVRTC, for GPUs with and without an instruction that rounds to
// bf16; no GPU is needed.
#include "plugins/devices/cuda/kernels/common/map_source.h"

#include <gtest/gtest.h>
#include <nvrtc.h>

#include <algorithm>
#include <string>
#include <vector>

namespace consist::cuda {
namespace {

/// The words by which NVRTC refuses it; empty if it does not.
std::string refused(const std::string& source, const char* architecture) {
  nvrtcProgram program = nullptr;
  if (nvrtcCreateProgram(&program, source.c_str(), "map.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) return "no program";
  const std::string option = std::string("--gpu-architecture=") + architecture;
  const std::vector<const char*> options{option.c_str(), "--std=c++17"};
  const bool taken = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) == NVRTC_SUCCESS;
  std::size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  std::string log(size, '\0');
  nvrtcGetProgramLog(program, log.data());
  nvrtcDestroyProgram(&program);
  return taken ? "" : "refused:\n" + log + source;
}

TEST(MapSource, NvrtcTakesEveryFunctionFormAndDtype) {
  for (const char* text : {"exp(a)+log(b)-sqrt(a)*rsqrt(b)/2", "tanh(a);erf(a);sigmoid(b);abs(b);sign(a)",
                           "max(a,b);min(a,b);greater(a,b);select(a,b,-b)", "a*b[c]+c[r]*d[2]-1e-30", "gelu_tanh(a)*b", "3*a",
                           "select(abs(channel-b[r]),0,a)"}) {
    const Expressions f = Expressions::parse(text);
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const bool large : {false, true}) {
        MapForm form{.inputs = std::vector(static_cast<std::size_t>(f.inputs()), type),
                     .outputs = std::vector(f.results().size(), type)};
        form.large = large;
        form.rows = large || std::string(text).find("[") != std::string::npos || f.reads_channel();
        if (f.reads_channel()) form.inputs[1] = DType::i32;
        form.pack = large ? 1 : static_cast<int>(16 / size_of(type));
        EXPECT_EQ(refused(map_source(f, form), "sm_90"), "") << text;
        form.rounds_bf16 = false;
        EXPECT_EQ(refused(map_source(f, form), "sm_75"), "") << text;
        MapForm of_codes = form;
        of_codes.inputs[0] = of_codes.outputs[0] = type == DType::f32 ? DType::e4m3 : DType::e5m2;
        if (!f.reads_channel()) EXPECT_EQ(refused(map_source(f, of_codes), "sm_75"), "") << text;
        form.flat = form.rows && !f.reads_channel();
        if (form.flat) EXPECT_EQ(refused(map_source(f, form), "sm_90"), "") << text << " of a flat slice";
        if (f.results().size() > 1) continue;
        if (!f.reads_channel()) EXPECT_EQ(refused(margin_tiles_source(f, form), "sm_90"), "") << text;
        for (const auto by : {kernels::ReduceBy::sum, kernels::ReduceBy::largest, kernels::ReduceBy::logsumexp})
          EXPECT_EQ(refused(reduce_source(f, form, by), "sm_75"), "") << text;
      }
    }
  }
  EXPECT_EQ(refused(margin_sums_source(), "sm_75"), "");
}

}  // namespace
}  // namespace consist::cuda
