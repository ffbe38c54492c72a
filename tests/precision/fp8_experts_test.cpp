// Experts of a mixture under --precision fp8: products of rows in 8 bits, gradients of weights in bf16, chosen by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "consist/error.h"
#include "core/archive/reader.h"
#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

/// Three layers, of which the first and the last have 8 experts of 16 x 32.
const std::string mixture = CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-moe";
constexpr int sparse_layers = 2;

class Fp8Experts : public ::testing::Test {
 protected:
  Program step(const std::map<std::string, std::string>& options = {}, int accumulation = 1,
               const std::string& strategies = "ddp", int ranks = 1) {
    RunConfig config;
    config.model = mixture;
    config.precision = "fp8";
    config.pack = false;
    config.plugin_options["fp8"] = options;
    config.batch = 2;
    config.sequence = 16;
    config.ranks = ranks;
    config.accumulation = accumulation;
    config.strategies = parse_strategies(strategies);
    parts_ = make_parts(config, host_);
    const CompileRequest request = parts_.compile_request(config);
    return compile_step(request, lay_out(request.strategies, ranks));
  }
  std::string refusal(const std::map<std::string, std::string>& options) {
    try {
      step(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }
  static std::map<std::string, int> ops(const Program& program) {
    std::map<std::string, int> count;
    for (const Instruction& i : program.instructions) ++count[std::string(i.op->name())];
    return count;
  }
  static std::vector<const Instruction*> all(const Program& program, const std::string& op) {
    std::vector<const Instruction*> found;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == op) found.push_back(&i);
    }
    return found;
  }

  PluginHost host_{std::vector<std::string>{}};
  Parts parts_;
};

TEST_F(Fp8Experts, ProductsOfRowsAreInEightBitsAndGradientsOfWeightsAreNot) {
  const Program program = step();
  auto count = ops(program);
  EXPECT_EQ(count["fp8_grouped_linear"], 2 * sparse_layers);
  EXPECT_EQ(count["fp8_grouped_linear_input_grad"], 2 * sparse_layers);
  EXPECT_EQ(count["grouped_linear_weight_grad"], 2 * sparse_layers);
  EXPECT_EQ(count["grouped_linear"] + count["grouped_linear_input_grad"], 0);
  for (const Instruction* i : all(program, "grouped_linear_weight_grad")) {
    EXPECT_EQ(program[i->inputs[0]].dtype, DType::bf16) << program[i->inputs[0]].name;
    EXPECT_EQ(program[i->inputs[1]].dtype, DType::bf16) << program[i->inputs[1]].name;
  }
  for (const Instruction* i : all(program, "fp8_grouped_linear_input_grad")) {
    EXPECT_EQ(program[i->inputs[0]].dtype, DType::e5m2);
    EXPECT_EQ(program[i->inputs[2]].dtype, DType::e4m3);
    EXPECT_EQ(i->attributes.integer("fast_accumulation"), 0);
  }
  for (const Instruction* i : all(program, "fp8_grouped_linear")) EXPECT_EQ(i->attributes.integer("fast_accumulation"), 1);
}

/// Rows get no transposed copy, which nothing would read. The ops that make rows state their largest magnitude.
TEST_F(Fp8Experts, RowsAreQuantizedInOneOrder) {
  const Program program = step();
  std::map<TensorId, const Instruction*> quantized;
  for (const Instruction* i : all(program, "quantize")) quantized[i->outputs[0]] = i;
  for (const char* op : {"fp8_grouped_linear", "fp8_grouped_linear_input_grad"}) {
    for (const Instruction* i : all(program, op)) EXPECT_EQ(quantized.at(i->inputs[0])->outputs[1], no_tensor);
  }
  for (const Instruction* i : all(program, "fp8_linear")) EXPECT_NE(quantized.at(i->inputs[0])->outputs[1], no_tensor);
  auto count = ops(program);
  for (const char* op : {"moe_dispatch_amax", "moe_swiglu_amax", "moe_swiglu_grad_amax", "moe_combine_grad_amax"})
    EXPECT_EQ(count[op], sparse_layers) << op;
}

TEST_F(Fp8Experts, WeightsAreQuantizedOncePerStep) {
  constexpr int micro_batches = 3;
  std::map<std::string, int> times;
  const Program program = step({}, micro_batches);
  for (const Instruction* i : all(program, "quantize")) {
    const Tensor& x = program[i->inputs[0]];
    if (x.role == Role::parameter && x.shape.rank() == 3) ++times[x.name];
  }
  EXPECT_EQ(times.size(), 2U * sparse_layers);
  for (const auto& [name, count] : times) EXPECT_EQ(count, 1) << name;
  EXPECT_EQ(ops(program)["fp8_grouped_linear"], 2 * sparse_layers * micro_batches);
}

TEST_F(Fp8Experts, RoutersStayInBf16) {
  const Program program = step();
  int routers = 0;
  for (const Instruction* i : all(program, "linear")) routers += program[i->inputs[1]].name.ends_with("mlp.gate.weight") ? 1 : 0;
  EXPECT_EQ(routers, sparse_layers);
  EXPECT_THAT(refusal({{"linears", "*.mlp.gate.weight"}}), HasSubstr("leaves every linear of the 3 layers in bf16"));
}

TEST_F(Fp8Experts, AreChosenByName) {
  auto count = ops(step({{"except", "*.experts.*"}}));
  EXPECT_EQ(count["grouped_linear"], 2 * sparse_layers);
  EXPECT_EQ(count["fp8_grouped_linear"], 0);
  EXPECT_GT(count["fp8_linear"], 0);
  EXPECT_EQ(count["moe_dispatch"], sparse_layers);
  count = ops(step({{"linears", "*.experts.*.down_proj.weight"}}));
  EXPECT_EQ(count["grouped_linear"], sparse_layers);
  EXPECT_EQ(count["fp8_grouped_linear"], sparse_layers);
  EXPECT_EQ(count["fp8_linear"], 0);
  count = ops(step({{"bf16-first", "1"}}));
  EXPECT_EQ(count["fp8_grouped_linear"], 2 * (sparse_layers - 1));
}

TEST_F(Fp8Experts, StayInBf16WithScalesOfRowsAndBlocks) {
  for (const std::string scaling : {"row", "block"}) {
    auto count = ops(step({{"scaling", scaling}}));
    EXPECT_EQ(count["grouped_linear"], 2 * sparse_layers);
    EXPECT_EQ(count["fp8_grouped_linear"], 0);
    EXPECT_GT(count["fp8_linear"], 0);
    EXPECT_THAT(refusal({{"scaling", scaling}, {"linears", "*.experts.*"}}),
                ::testing::AllOf(HasSubstr("experts"), HasSubstr("--fp8.scaling " + scaling), HasSubstr("tensor or delayed")));
  }
}

TEST_F(Fp8Experts, DelayedScalesHaveHistoriesOfRowsAndWeights) {
  const Program program = step({{"scaling", "delayed"}}, 2, "ep=2", 2);
  std::set<std::string> recorded;
  for (const Instruction* i : all(program, "record_amaxes")) {
    for (std::size_t k = 1; k < i->inputs.size(); ++k) recorded.insert(program[i->inputs[k]].name);
  }
  const std::string down = "model.layers.2.mlp.experts.*.down_proj.weight";
  for (const char* of : {"", ".input", ".grad_output"}) EXPECT_TRUE(recorded.contains(down + of + ".amax_history")) << of;
}

/// Each rank has the transposed weights of its own experts.
TEST_F(Fp8Experts, RanksShareThem) {
  const Program program = step({}, 1, "ep=2", 2);
  for (const Instruction* i : all(program, "fp8_grouped_linear")) EXPECT_EQ(program.local(i->inputs[2])[0], 4);
  for (const Instruction* i : all(program, "fp8_grouped_linear_input_grad")) {
    EXPECT_EQ(program.local(i->inputs[2])[1], 4);
    EXPECT_EQ(program.local(i->inputs[4])[0], 4);
  }
}

/// As if all room for rows were used: two products of three.
TEST_F(Fp8Experts, FlopsOfRowsCountAsThoseOfEightBits) {
  const auto fp8 = [&](const std::map<std::string, std::string>& options) {
    const Program program = step(options);
    double flops = 0;
    for (const Instruction& i : program.instructions) {
      if (!i.inputs.empty() && i.inputs[0] != no_tensor && is_float8(program[i.inputs[0]].dtype))
        flops += i.op->cost(program, i).flops;
    }
    return flops;
  };
  const double rows = 2 * 16 * 4, elements = 3 * 16 * 32;  // 4 choices of each of 32 tokens; gate, up and down
  EXPECT_EQ(fp8({}) - fp8({{"except", "*.experts.*"}}), 2 * 2 * rows * elements * sparse_layers);
}

TEST_F(Fp8Experts, TrainNearlyAsInBf16) {
  TemporaryFolder folder;
  const auto losses = [&](const std::vector<std::string>& more) {
    std::vector<std::string> options{"--model=" + mixture, "--sequence=16", "--global-batch=4", "--steps=20"};
    options.insert(options.end(), more.begin(), more.end());
    return test::train_from_scratch(folder / "run.h5", options).column("loss");
  };
  const std::vector<double> bf16 = losses({"--precision=bf16"});
  for (const char* scaling : {"tensor", "delayed"}) {
    const std::vector<double> fp8 =
        losses({"--precision=fp8", "--fp8.linears=*.experts.*", std::string("--fp8.scaling=") + scaling});
    ASSERT_EQ(fp8.size(), bf16.size());
    bool differ = false;
    for (std::size_t i = 0; i < fp8.size(); ++i) {
      EXPECT_NEAR(fp8[i] / bf16[i], 1, 5e-3) << "step " << i + 1 << ", " << scaling;
      differ = differ || fp8[i] != bf16[i];
    }
    EXPECT_TRUE(differ) << "nothing was in 8 bits";
  }
}

}  // namespace
}  // namespace consist
