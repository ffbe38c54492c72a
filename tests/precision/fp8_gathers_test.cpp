// --fp8.gathers: what is gathered for fp8 linears travels as 8-bit values, in half of the bytes, and nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "consist/error.h"
#include "core/archive/reader.h"
#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "tests/child_process.h"
#include "tests/golden_text.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

const std::string gathered_model = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
constexpr double gathered_layers = 2;
constexpr double of_linears = gathered_layers * (32 * 32 * 2 + 16 * 32 * 2 + 3 * 56 * 32);  // elements of their weights

using PluginOptions = std::map<std::string, std::map<std::string, std::string>>;

/// Every weight is gathered for forward and again for backward.
const std::map<std::string, std::string> gather_always{{"param-persistence-threshold", "0"}, {"max-reuse-distance", "0"}};

class Fp8Gathers : public ::testing::Test {
 protected:
  Program step(const std::string& strategies, int ranks, bool gathers, int accumulation = 1, PluginOptions options = {}) {
    RunConfig config;
    config.model = gathered_model;
    config.precision = "fp8";
    config.pack = false;  // linears that stay bf16 are then seen one by one
    config.plugin_options = std::move(options);
    config.plugin_options["fp8"]["gathers"] = gathers ? "true" : "false";
    config.batch = 2;
    config.sequence = 16;
    config.ranks = ranks;
    config.accumulation = accumulation;
    config.strategies = parse_strategies(strategies);
    parts_ = make_parts(config, host_);
    const CompileRequest made = parts_.compile_request(config);
    return compile_step(made, lay_out(made.strategies, ranks));
  }

  PluginHost host_{std::vector<std::string>{}};
  Parts parts_;
};

/// Bytes that a rank gathers per step, by dtype.
std::map<DType, double> gathered(const Program& program) {
  std::map<DType, double> bytes;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() != "all_gather") continue;
    for (TensorId output : i.outputs) bytes[program[output].dtype] += static_cast<double>(program.bytes(output));
  }
  return bytes;
}

int count(const Program& program, const std::string& op) {
  int found = 0;
  for (const Instruction& i : program.instructions) found += i.op->name() == op ? 1 : 0;
  return found;
}

TEST_F(Fp8Gathers, WeightsOfZeroTravelInHalfOfTheBytes) {
  for (const int ranks : {2, 4}) {
    for (const int accumulation : {1, 3}) {
      // In bf16 forward makes both copies of what it gathered, and the transposed one is kept until backward.
      auto wide = gathered(step("zero3-offload", ranks, false, accumulation, {{"zero3-offload", gather_always}}));
      auto narrow = gathered(step("zero3-offload", ranks, true, accumulation, {{"zero3-offload", gather_always}}));
      EXPECT_EQ(wide[DType::e4m3], 0);
      EXPECT_EQ(narrow[DType::e4m3], 2 * accumulation * of_linears) << "a byte per element, forward and backward";
      EXPECT_EQ(wide[DType::bf16] - narrow[DType::bf16], accumulation * 2 * of_linears);

      wide = gathered(step("zero2", ranks, false, accumulation));
      narrow = gathered(step("zero2", ranks, true, accumulation));
      EXPECT_EQ(narrow[DType::e4m3], of_linears) << "once per step";
      EXPECT_EQ(wide[DType::bf16] - narrow[DType::bf16], 2 * of_linears);
    }
  }
}

TEST_F(Fp8Gathers, AmaxOfAllWeightsIsOneSmallMessagePerStep) {
  const Program program = step("zero3-offload", 4, true, 3, {{"zero3-offload", gather_always}});
  constexpr int linears = 7 * static_cast<int>(gathered_layers);
  EXPECT_EQ(gathered(program)[DType::f32], 4.0 * 4 * linears);
  EXPECT_EQ(count(program, "rank_values"), 1);
  EXPECT_EQ(count(program, "quantize_part"), linears) << "once per step";
  // The transposed copy lives in backward only: of what is gathered for it there.
  EXPECT_EQ(count(program, "transpose"), 3 * linears);
  std::set<TensorId> before_gathers;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() == "transpose") {
      EXPECT_EQ(i.tag.phase, Phase::backward);
    }
    if (i.op->name() == "quantize_part") before_gathers.insert(i.outputs[0]);
    if (i.op->name() != "all_gather") continue;
    for (TensorId input : i.inputs) {
      EXPECT_EQ(program[input].dtype == DType::e4m3, before_gathers.contains(input)) << program[input].name;
    }
  }
}

TEST_F(Fp8Gathers, WeightsThatStayWholeAreTransposedOncePerStep) {
  const Program program = step("zero2", 2, true, 3);
  EXPECT_EQ(count(program, "transpose"), 7 * static_cast<int>(gathered_layers));
}

TEST_F(Fp8Gathers, ActivationsOfTensorParallelismTravelInHalfOfTheBytes) {
  for (const int ranks : {2, 4}) {
    const std::string strategy = "tp-sp=" + std::to_string(ranks);
    auto wide = gathered(step(strategy, ranks, false)), narrow = gathered(step(strategy, ranks, true));
    // Inputs of q, k, v and of gate, up; gradients of the outputs of o and of down: each [2, 16, 32].
    const double elements = gathered_layers * 2 * 2 * 16 * 32;
    EXPECT_EQ(narrow[DType::e4m3], elements);
    EXPECT_EQ(narrow[DType::e5m2], elements);
    EXPECT_EQ(wide[DType::bf16] - narrow[DType::bf16], 2 * 2 * elements);
    // Four tensors per layer, a scalar of every rank of each.
    EXPECT_EQ(narrow[DType::f32] - wide[DType::f32], gathered_layers * 4 * ranks * 4);
  }
}

TEST_F(Fp8Gathers, WhatBf16NeedsTooIsGatheredInBf16) {
  PluginOptions options{{"zero3-offload", gather_always}};
  options["fp8"]["except"] = "*.mlp.up_proj.weight";
  const Program program = step("tp-sp=2", 2, true, 1, {{"fp8", options["fp8"]}});
  std::set<std::string> narrow;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() == "quantize_part") narrow.insert(i.attributes.string("tensor"));
  }
  for (const std::string& name : narrow) EXPECT_THAT(name, ::testing::Not(::testing::EndsWith("post_attention_layernorm")));
  auto zero = gathered(step("zero3-offload", 2, true, 1, options));
  EXPECT_EQ(zero[DType::e4m3], 2 * (of_linears - gathered_layers * 56 * 32));
}

TEST_F(Fp8Gathers, Golden) {
  test::expect_golden("zero3_fp8_gathers", to_text(step("zero3-offload", 2, true, 1,
                                                        {{"zero3-offload", gather_always}, {"fp8", {{"bf16-last", "1"}}}})));
  test::expect_golden("tp_sp_fp8_gathers", to_text(step("tp-sp=2", 2, true, 1, {{"fp8", {{"bf16-last", "1"}}}})));
}

TEST_F(Fp8Gathers, WhatCannotBeIsRefused) {
  const auto message = [&](const PluginOptions& options) -> std::string {
    try {
      step("zero3-offload", 2, true, 1, options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({{"zero3-offload", {{"offload-param.device", "cpu"}, {"param-persistence-threshold", "0"}}}}),
              ::testing::AllOf(::testing::HasSubstr("--fp8.gathers"), ::testing::HasSubstr("host's memory")));
  for (const char* scaling : {"row", "block"})
    EXPECT_THAT(message({{"fp8", {{"scaling", scaling}}}}), ::testing::HasSubstr(std::string("--fp8.scaling ") + scaling));
}

struct Curves {
  std::vector<double> loss, grad_norm;
};

Curves train(const std::vector<std::string>& more, bool gathers, const std::string& archive) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "train",
                                 "--device=cpu",
                                 "--cpu.bf16=emulated",  // the faster way is measured, and may be another one in each run
                                 "--dataset=synthetic",
                                 "--from-scratch",
                                 "--overwrite",
                                 "--precision=fp8",
                                 "--model=" + gathered_model,
                                 "--sequence=16",
                                 "--global-batch=8",
                                 "--steps=4",
                                 "--learning-rate=1e-3",
                                 "--archive=" + archive,
                                 std::string("--fp8.gathers=") + (gathers ? "true" : "false")};
  words.insert(words.end(), more.begin(), more.end());
  const test::ChildResult run = test::run_child(words);
  if (run.status != 0) throw std::runtime_error(run.output);
  const ArchiveReader reader(archive);
  return {reader.column("loss"), reader.column("grad_norm")};
}

/// Layouts in which weights, activations, or both are gathered.
TEST_F(Fp8Gathers, LossesAreEqualToTheBit) {
  const TemporaryFolder folder;
  const std::string zero3 = "--strategy=zero3-offload", always = "--zero3-offload.max-reuse-distance=0",
                    all = "--zero3-offload.param-persistence-threshold=0";
  const std::vector<std::vector<std::string>> layouts{
      {"--ranks=2", "--accumulation=2", zero3, always, all, "--zero3-offload.prefetch-bucket-size=2000"},
      {"--ranks=4", "--strategy=zero2"},
      {"--ranks=2", "--strategy=tp-sp=2", "--accumulation=2"},
      {"--ranks=2", "--strategy=tp-sp=2", "--tp-sp.gather-again=true", "--recompute=full"},
      {"--ranks=4", "--strategy=tp-sp=2+zero3-offload", always, all},
      {"--ranks=4", "--strategy=pipeline=2+zero3-offload", "--accumulation=2", always, all, "--recompute=full"}};
  for (const std::vector<std::string>& layout : layouts) {
    std::string text;
    for (const std::string& word : layout) text += word + " ";
    SCOPED_TRACE(text);
    const Curves wide = train(layout, false, folder / "wide.h5"), narrow = train(layout, true, folder / "narrow.h5");
    ASSERT_EQ(wide.loss.size(), 4U);
    EXPECT_EQ(narrow.loss, wide.loss);
    EXPECT_EQ(narrow.grad_norm, wide.grad_norm);
  }
}

}  // namespace
}  // namespace consist
