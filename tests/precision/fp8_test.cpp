// Programs under --precision fp8, and the end of a run at a value that 8-bit floats cannot hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "consist/error.h"
#include "core/archive/reader.h"
#include "core/checkpoint/checkpoint_reader.h"
#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "core/weights/safetensors.h"
#include "tests/child_process.h"
#include "tests/golden_text.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

const std::string two_layers = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
constexpr int layers = 2, linears_per_layer = 7;

class Fp8 : public ::testing::Test {
 protected:
  RunConfig config(const std::map<std::string, std::string>& options, int accumulation = 1, int ranks = 1) const {
    RunConfig config;
    config.model = two_layers;
    config.precision = "fp8";
    config.pack = false;  // linears that stay bf16 are then seen one by one
    config.plugin_options["fp8"] = options;
    config.batch = 2;
    config.sequence = 16;
    config.ranks = ranks;
    config.accumulation = accumulation;
    config.strategies = parse_strategies("ddp");
    return config;
  }
  const Parts& parts_of(const std::map<std::string, std::string>& options) { return parts_ = make_parts(config(options), host_); }
  CompileRequest request(const std::map<std::string, std::string>& options, int accumulation = 1, int ranks = 1) {
    const RunConfig asked = config(options, accumulation, ranks);
    parts_ = make_parts(asked, host_);
    return parts_.compile_request(asked);
  }
  Program step(const std::map<std::string, std::string>& options = {}, int accumulation = 1, int ranks = 1) {
    const CompileRequest made = request(options, accumulation, ranks);
    return compile_step(made, lay_out(made.strategies, ranks));
  }
  static std::map<std::string, int> ops(const Program& program) {
    std::map<std::string, int> count;
    for (const Instruction& i : program.instructions) ++count[std::string(i.op->name())];
    return count;
  }
  /// Names of the weights whose linears are (not) in fp8.
  static std::set<std::string> weights_of(const Program& program, const std::string& op) {
    std::set<std::string> names;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == op) names.insert(program[i.inputs[op == "linear" ? 1 : 2]].name);
    }
    return names;
  }

  PluginHost host_{std::vector<std::string>{}};
  Parts parts_;
};

TEST_F(Fp8, AllLinearsAndNothingElse) {
  auto count = ops(step());
  constexpr int linears = layers * linears_per_layer;
  EXPECT_EQ(count["fp8_linear"], linears);
  EXPECT_EQ(count["fp8_linear_input_grad"], linears);
  EXPECT_EQ(count["fp8_linear_weight_grad"], linears);
  EXPECT_EQ(count["linear"] + count["linear_input_grad"] + count["linear_weight_grad"], 0);
  // Activations: before q, k, v; before o; before gate, up; before down. Gradients: of each linear's output.
  EXPECT_EQ(count["quantize"], layers * 4 + linears + linears);
  // Norms, activation functions and their gradients state the largest magnitude themselves.
  EXPECT_EQ(count["rms_norm_amax"], 2 * layers);
  EXPECT_EQ(count["swiglu_amax"], layers);
  EXPECT_EQ(count["swiglu_grad_amax"], layers);
  EXPECT_EQ(count["amax"], count["quantize"] - (2 + 1 + 2) * layers);
  EXPECT_EQ(count["attention_grad"], layers);
  EXPECT_EQ(count["lm_head_loss_grad"], 1);
}

TEST_F(Fp8, EveryOtherTensorIsThatOfBf16) {
  for (const Tensor& t : step().tensors) {
    if (t.dtype != DType::e4m3 && t.dtype != DType::e5m2) continue;
    EXPECT_THAT(t.name, ::testing::AnyOf(::testing::EndsWith(".fp8"), ::testing::EndsWith(".fp8t")));
  }
}

TEST_F(Fp8, FormatsAreThoseOfTheOption) {
  for (const std::string format : {"e5m2", "e4m3"}) {
    const Program program = step({{"gradient-format", format}});
    for (const Instruction& i : program.instructions) {
      if (i.op->name() != "quantize") continue;
      const bool gradient = program[i.inputs[0]].name.ends_with(".grad");
      EXPECT_EQ(i.tag.phase == Phase::backward, gradient) << program[i.inputs[0]].name;
      EXPECT_EQ(name_of(program[i.outputs[0]].dtype), gradient ? format : "e4m3") << program[i.inputs[0]].name;
    }
  }
}

TEST_F(Fp8, GradientsOfRowsAndBlocksAreE4m3UnlessAskedOtherwise) {
  const std::pair<const char*, const char*> formats[] = {{"tensor", "e5m2"}, {"row", "e4m3"}, {"block", "e4m3"}};
  for (const auto& [scaling, format] : formats) {
    EXPECT_THAT(parts_of({{"scaling", scaling}}).precision->describe(), HasSubstr(std::string(format) + " gradients"));
  }
  EXPECT_THAT(parts_of({{"scaling", "row"}, {"gradient-format", "e5m2"}}).precision->describe(), HasSubstr("e5m2 gradients"));
}

/// Values share a scale by row or by block, depending on what is quantized; an instruction that reads a copy reads its scales.
TEST_F(Fp8, EachCopyHasTheScalesOfItsOwnDirection) {
  for (const std::string scaling : {"row", "block"}) {
    SCOPED_TRACE(scaling);
    const Program program = step({{"scaling", scaling}}, 2);
    auto count = ops(program);
    EXPECT_EQ(count["amax"] + count["rms_norm_amax"] + count["swiglu_amax"] + count["swiglu_grad_amax"], 0);
    EXPECT_EQ(count["quantize"], layers * linears_per_layer + 2 * (layers * 4 + layers * linears_per_layer));
    std::map<TensorId, TensorId> scales_of;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == "quantize") {
        const bool weight = program[i.inputs[0]].role == Role::parameter;
        EXPECT_EQ(i.attributes.string("scaling"), scaling == "row" ? "row" : weight ? "block_2d" : "block_1d");
        ASSERT_EQ(i.outputs.size(), 4u);
        scales_of[i.outputs[0]] = i.outputs[2];
        scales_of[i.outputs[1]] = i.outputs[3];
      }
      if (!i.op->name().starts_with("fp8_linear")) continue;
      EXPECT_EQ(i.attributes.string("scaling"), scaling);
      EXPECT_EQ(scales_of.at(i.inputs[0]), i.inputs[1]);
      EXPECT_EQ(scales_of.at(i.inputs[2]), i.inputs[3]);
      EXPECT_EQ(i.attributes.integer("fast_accumulation"), scaling == "row" && i.op->name() == "fp8_linear" ? 1 : 0);
    }
  }
}

/// One history for each quantized tensor, which all micro-batches and ranks have a part in.
TEST_F(Fp8, DelayedScalesComeFromHistories) {
  constexpr int micro_batches = 3, ranks = 2, linears = layers * linears_per_layer;
  const Program program = step({{"scaling", "delayed"}, {"amax-history-len", "16"}}, micro_batches, ranks);
  auto count = ops(program);
  EXPECT_EQ(count["amax"] + count["rms_norm_amax"] + count["swiglu_amax"] + count["swiglu_grad_amax"], 0);
  EXPECT_EQ(count["rank_values"], 1);
  std::set<std::string> histories, recorded;
  std::set<TensorId> found;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() == "quantize") {
      const Tensor& history = program[i.inputs[1]];
      EXPECT_TRUE(history.state);
      EXPECT_EQ(history.shape, (Shape{1 + 16}));
      histories.insert(history.name);
      found.insert(i.outputs[3]);
    }
    if (i.op->name() == "rank_values") {
      EXPECT_EQ(std::set<TensorId>(i.inputs.begin(), i.inputs.end()), found);
      EXPECT_EQ(program[i.outputs[0]].shape[0], ranks);
    }
    if (i.op->name() != "record_amaxes") continue;
    EXPECT_TRUE(program[i.inputs[0]].placements.all_replicate());
    for (std::size_t k = 1; k < i.inputs.size(); ++k) {
      const std::string& name = program[i.inputs[k]].name;
      EXPECT_TRUE(recorded.insert(name).second) << name << " is recorded twice";
      const bool weight = name.ends_with(".weight.amax_history");
      EXPECT_EQ(i.attributes.integer("columns"), weight ? 1 : micro_batches) << name;
    }
  }
  EXPECT_EQ(histories.size(), static_cast<std::size_t>(linears + layers * 4 + linears));
  EXPECT_TRUE(histories.contains("model.layers.1.mlp.down_proj.weight.amax_history"));
  EXPECT_TRUE(histories.contains("model.layers.0.self_attn.q_proj.weight.input.amax_history"));
  EXPECT_TRUE(histories.contains("model.layers.0.self_attn.k_proj.weight.grad_output.amax_history"));
  EXPECT_EQ(recorded, histories);
}

TEST_F(Fp8, GoldenPrograms) {
  for (const std::string scaling : {"row", "block", "delayed"})
    test::expect_golden("fp8_" + scaling,
                        to_text(step({{"scaling", scaling}, {"bf16-first", "1"}, {"except", "*.self_attn.*"}})));
}

TEST_F(Fp8, WeightsAreQuantizedOncePerStep) {
  constexpr int micro_batches = 3, linears = layers * linears_per_layer;
  const Program program = step({}, micro_batches);
  std::map<std::string, int> times;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() == "quantize" && program[i.inputs[0]].role == Role::parameter) ++times[program[i.inputs[0]].name];
  }
  EXPECT_EQ(times.size(), linears);
  for (const auto& [name, count] : times) EXPECT_EQ(count, 1) << name;
  EXPECT_EQ(ops(program)["quantize"], linears + micro_batches * (layers * 4 + linears));
  EXPECT_EQ(ops(program)["fp8_linear"], micro_batches * linears);
}

TEST_F(Fp8, LinearsAreChosenByLayerAndByName) {
  const std::string up = "model.layers.1.mlp.up_proj.weight";
  auto fp8 = weights_of(step({{"bf16-first", "1"}}), "fp8_linear");
  EXPECT_EQ(fp8.size(), linears_per_layer);
  EXPECT_TRUE(fp8.contains(up + ".fp8"));
  auto bf16 = weights_of(step({{"bf16-last", "1"}}), "linear");
  EXPECT_EQ(bf16.size(), linears_per_layer);
  EXPECT_TRUE(bf16.contains(up));
  fp8 = weights_of(step({{"linears", "*.mlp.*,*.o_proj.weight"}, {"except", "*.0.mlp.down_proj.*"}}), "fp8_linear");
  EXPECT_EQ(fp8.size(), layers * 4 - 1);
  EXPECT_FALSE(fp8.contains("model.layers.0.mlp.down_proj.weight.fp8"));
  EXPECT_TRUE(fp8.contains("model.layers.1.self_attn.o_proj.weight.fp8"));
}

TEST_F(Fp8, ChoicesThatLeaveNothingAreErrors) {
  const auto message = [&](const std::map<std::string, std::string>& options) -> std::string {
    try {
      step(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({{"bf16-first", "1"}, {"bf16-last", "1"}}), HasSubstr("leaves every linear of the 2 layers in bf16"));
  EXPECT_THAT(message({{"linears", "*.up,*.down_proj.*"}}), ::testing::AllOf(HasSubstr("'*.up'"), HasSubstr("down_proj.weight")));
  EXPECT_THAT(message({{"except", "*.gate"}}), HasSubstr("--fp8.except"));
  EXPECT_THAT(message({{"bf16-first", "-1"}}), HasSubstr("at least 0"));
  EXPECT_THAT(message({{"scaling", "block"}, {"fast-accumulation", "all"}}), HasSubstr("no shorter sums"));
  EXPECT_THAT(message({{"amax-history-len", "0"}}), HasSubstr("--fp8.amax-history-len"));
}

TEST_F(Fp8, EvaluationUsesTheSameProducts) {
  const CompileRequest made = request({});
  auto count = ops(compile_evaluation(made, lay_out(made.strategies, 1)));
  EXPECT_EQ(count["fp8_linear"], layers * linears_per_layer);
  EXPECT_EQ(count["linear"], 0);
}

test::ChildResult train(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                 "train",
                                 "--device=cpu",
                                 "--dataset=synthetic",
                                 "--precision=fp8",
                                 "--model=" + model,
                                 "--sequence=16",
                                 "--batch=2",
                                 "--steps=2"};
  words.insert(words.end(), more.begin(), more.end());
  return test::run_child(words);
}

/// Histories are part of what a checkpoint holds: a run that goes on ends as one that never stopped, to the bit.
TEST_F(Fp8, DelayedScalesGoOnFromACheckpoint) {
  TemporaryFolder folder;
  const auto train = [&](const std::string& saved, int steps, const std::string& scaling, const std::vector<std::string>& more) {
    std::vector<std::string> options{
        "--model=" + two_layers, "--precision=fp8",  "--fp8.scaling=" + scaling,         "--fp8.amax-history-len=5",
        "--sequence=16",         "--global-batch=4", "--steps=" + std::to_string(steps), "--checkpoint=" + (folder / saved)};
    options.insert(options.end(), more.begin(), more.end());
    return test::train_from_scratch(folder / "run.h5", options).column("loss");
  };
  /// The tensors at the end of a run, of whose five last steps three are those after the pause.
  const auto states = [&](const std::string& saved) {
    return SafetensorsFile(checkpoint_path(folder / saved, 8) + "/" + checkpoint_file_name(0));
  };
  const std::vector<double> whole = train("whole", 8, "delayed", {"--ranks=2"});
  train("paused", 5, "delayed", {"--ranks=2"});
  EXPECT_EQ(train("paused", 8, "delayed", {"--ranks=2", "--resume"}), std::vector<double>(whole.begin() + 5, whole.end()));
  const SafetensorsFile expected = states("whole"), found = states("paused");
  int histories = 0;
  for (const auto& [name, tensor] : expected.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(expected.shape(name).elements())), after = values;
    expected.read_f32(name, 0, values);
    found.read_f32(name, 0, after);
    EXPECT_TRUE(after == values) << name;
    if (!name.ends_with(".amax_history")) continue;
    ++histories;
    ASSERT_EQ(values.size(), 6U);
    EXPECT_GT(*std::min_element(values.begin(), values.end()), 0) << name << " has a step without magnitude";
    EXPECT_EQ(values[0], *std::max_element(values.begin() + 1, values.end())) << name;
  }
  EXPECT_EQ(histories, 2 * layers * linears_per_layer + 4 * layers);
  // Under another layout, and into and out of other scalings.
  train("moved", 5, "delayed", {"--ranks=2", "--strategy=tp-sp=2"});
  EXPECT_NEAR(train("moved", 8, "delayed", {"--resume"}).back() / whole.back(), 1, 1e-3);
  train("begun", 5, "tensor", {});
  EXPECT_NEAR(train("begun", 8, "delayed", {"--resume"}).back() / whole.back(), 1, 1e-3);
  EXPECT_EQ(train("begun", 9, "tensor", {"--resume"}).size(), 1U);
}

TEST_F(Fp8, BannerAndArchiveStateTheShareOfProducts) {
  TemporaryFolder folder;
  const test::ChildResult run = train(two_layers, {"--from-scratch", "--archive=" + (folder / "run.h5")});
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("%) of them in fp8"));
  const auto summary = nlohmann::json::parse(ArchiveReader(folder / "run.h5").text("/program"));
  // Two products of 2·tokens·elements per gradient beside the forward one, of the layers' linears: q 32x32, k and v 16x32, o
  // 32x32 and three of 56x32.
  const double linears = layers * (32 * 32 * 2 + 16 * 32 * 2 + 3 * 56 * 32);
  EXPECT_EQ(summary.at("fp8_flops_per_step_and_rank").get<double>(), 3 * 2 * 32 * linears);
  EXPECT_GT(summary.at("flops_per_step_and_rank").get<double>(), 3 * 2 * 32 * linears);
}

TEST_F(Fp8, AWeightThatIsNotFiniteEndsTheRunWithItsName) {
  TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(two_layers + "/" + file, folder / file);
  const std::string weight = "model.layers.1.mlp.up_proj.weight";
  const std::string path = folder / "model.safetensors";
  std::string bytes = read_whole(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  const std::size_t at = 8 + header_bytes + header.at(weight).at("data_offsets").at(0).get<std::size_t>() + 40;
  bytes.replace(at, 4, std::string("\x00\x00\x80\x7f", 4));  // infinity, as f32
  write_whole(path, bytes);
  const test::ChildResult run = train(folder.path().string(), {});
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_THAT(run.output, ::testing::AllOf(HasSubstr("'" + weight + "' holds an infinity"), HasSubstr("e4m3")));
}

}  // namespace
}  // namespace consist
