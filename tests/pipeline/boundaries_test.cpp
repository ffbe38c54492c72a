// Messages across the boundaries of stages: bytes by the formula of Megatron-LM (Narayanan et al., 2021; Korthikanti et al.,
// 2022), and tensors that skip a stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "consist/model.h"
#include "consist/op.h"
#include "plugins/strategies/pipeline/stages.h"
#include "tests/pipeline/programs.h"

namespace consist {
namespace {

using test::compile;
using test::Configuration;
using test::pointers;

class PipelineBoundaries : public ::testing::Test {
 protected:
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

/// Bytes of every message of a micro-batch, by lane; the exchange of a tied table's gradient belongs to none.
std::map<Lane, std::vector<std::int64_t>> messages_of(const Program& program) {
  std::map<Lane, std::vector<std::int64_t>> messages;
  for (const Instruction& i : program.instructions) {
    if (i.op->name() == "send" && i.tag.micro_batch >= 0) messages[i.queue.lane()].push_back(program.bytes(i.inputs[0]));
  }
  return messages;
}

struct Family {
  const char* plugin;
  const char* preset;
  int most_tensor_ranks;
};

class PipelineBytes : public PipelineBoundaries, public ::testing::WithParamInterface<Family> {
 protected:
  /// Each rank sends forward what each of its stages but the last one of all ends with, and backward likewise.
  void expect_bytes_of_the_formula(const Architecture& model, const Configuration& configuration) {
    SCOPED_TRACE(configuration.text() + ", cut " + configuration.cut +
                 (configuration.sequence_parallel ? "" : ", without sequence parallelism"));
    const int chunks = configuration.schedule == "interleaved" ? configuration.chunks : 1;
    const int shares = configuration.sequence_parallel ? configuration.tensor : 1;
    const std::int64_t stream =
        configuration.sequence * 2 * model.sizes().hidden * static_cast<std::int64_t>(sizeof(float)) / shares;  // s·b·h/t
    const auto programs = compile(host_, model, configuration);
    ASSERT_NO_THROW(test::verify_collectives_of(programs));
    for (const Program& program : programs) {
      const int stage = program.mesh.coordinate(program.rank, program.stage_axis);
      const auto expected = [&](bool sends) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(configuration.micro_batches * (chunks - (sends ? 0 : 1))),
                                         stream);
      };
      auto messages = messages_of(program);
      EXPECT_EQ(messages[Lane::to_next], expected(stage + 1 < configuration.stages)) << "rank " << program.rank;
      EXPECT_EQ(messages[Lane::to_previous], expected(stage > 0)) << "rank " << program.rank;
    }
  }
};

TEST_P(PipelineBytes, AreThoseOfTheResidualStreamOnceInEachDirection) {
  const auto model = host_.make<Model>("model", GetParam().plugin, {})->from_preset(GetParam().preset);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (int tensor = 1; tensor <= GetParam().most_tensor_ranks; tensor *= 2) {
      for (const int micro_batches : {1, 3}) {
        for (const char* cut : {"layers", "blocks", "auto"}) {
          if (tensor == 1 && cut == std::string("auto")) continue;  // it may cut within blocks there, where more crosses
          expect_bytes_of_the_formula(*model,
                                      {.schedule = schedule, .micro_batches = micro_batches, .cut = cut, .tensor = tensor});
        }
      }
      if (tensor > 1) expect_bytes_of_the_formula(*model, {.schedule = schedule, .tensor = tensor, .sequence_parallel = false});
    }
  }
  for (const char* recompute : {"full", "swiglu,rms_norm"}) {
    for (const char* cut : {"layers", "blocks"})
      expect_bytes_of_the_formula(*model, {.cut = cut, .tensor = 2, .recompute = recompute});
  }
  expect_bytes_of_the_formula(*model, {.stages = 4, .data = 2, .cut = "blocks", .over_data = "zero3-offload", .tensor = 2});
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineBytes,
                         ::testing::Values(Family{"llama", "llama-32m", 4}, Family{"qwen", "qwen3-tiny", 2}),
                         [](const auto& info) { return std::string(info.param.plugin); });

// The receiver must not repeat what the sender reduces and adds.
TEST_F(PipelineBoundaries, TheSenderReducesAndAdds) {
  const auto programs = compile(host_, {.shape = {.layers = 4, .heads = 4, .kv_heads = 2}, .tensor = 2});
  const auto count = [](const Program& program, std::string_view op, Phase phase) {
    return std::count_if(program.instructions.begin(), program.instructions.end(), [&](const Instruction& i) {
      return i.op->name() == op && i.tag.phase == phase && i.tag.micro_batch == 0;
    });
  };
  const Program &first = programs[0], &last = programs[2];
  EXPECT_EQ(count(first, "reduce_scatter", Phase::forward), 1 + 2 * 2) << "embedding, attention and MLP";
  EXPECT_EQ(count(first, "all_gather", Phase::backward), 1 + 2 * 2) << "gradients of the embedding, of o and down";
  EXPECT_EQ(count(first, "add", Phase::forward), 1);
  EXPECT_EQ(count(last, "reduce_scatter", Phase::forward), 2 * 2);
  EXPECT_EQ(count(last, "all_gather", Phase::forward), 2 * 2 + 1) << "norms";
}

TEST_F(PipelineBoundaries, AsManyStagesAsLayersAreNeverRefused) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const char* cut : {"auto", "layers", "blocks", "operators"}) {
      for (const std::int64_t vocabulary : {32, 4096}) {  // a heavy head leaves the other stages single ops
        for (const bool tied : {false, true}) {
          const int stages = schedule == std::string("interleaved") ? 3 : 6;
          const Configuration configuration{.schedule = schedule,
                                            .stages = stages,
                                            .micro_batches = 3,
                                            .shape = {.layers = 6, .vocabulary = vocabulary, .tied = tied},
                                            .cut = cut};
          SCOPED_TRACE(configuration.text() + ", cut " + cut);
          std::vector<Program> programs;
          ASSERT_NO_THROW(programs = compile(host_, configuration));
          ASSERT_NO_THROW(test::verify_collectives_of(programs));
          ASSERT_NO_THROW(test::verify_collectives_of(compile(host_, configuration, true)));
        }
      }
    }
  }
}

TEST_F(PipelineBoundaries, TheSmallestQwenRunsOnARankPerLayer) {
  const auto model = host_.make<Model>("model", "qwen", {})->from_preset("qwen3-0.6b");
  for (const char* cut : {"auto", "operators"}) {
    const Configuration configuration{.schedule = "zero-bubble-h2", .stages = 28, .micro_batches = 1, .cut = cut};
    ASSERT_NO_THROW(test::verify_collectives_of(compile(host_, *model, configuration))) << cut;
  }
}

// Where operators may begin stages, the residual goes past those that have but a few of a block's.
TEST_F(PipelineBoundaries, AStageThatTheResidualSkipsPassesItOn) {
  const Configuration configuration{
      .stages = 4, .micro_batches = 2, .shape = {.layers = 4}, .cut = "operators", .rank_speeds = "1:0.001:0.001:1"};
  const auto programs = compile(host_, configuration);
  int passed_on = 0;
  for (const Program& program : programs) {
    std::set<TensorId> received;
    for (const Instruction& i : program.instructions) {
      if (i.op->name() == "receive") received.insert(i.outputs[0]);
      if (i.op->name() == "send" && received.contains(i.inputs[0]) && i.tag.micro_batch == 0) ++passed_on;
    }
  }
  EXPECT_GT(passed_on, 0) << "the case has no such stage any more";
  EXPECT_NO_THROW(test::verify_collectives_of(programs));
}

// The other part of the layer lies in another stage, which has what forward sent.
TEST_F(PipelineBoundaries, AStageRecomputesNothingThatOnlyAnotherOneReads) {
  for (const char* cut : {"blocks", "operators"}) {
    for (const Program& program : compile(host_, {.stages = 3, .shape = {.layers = 4}, .cut = cut, .recompute = "full"})) {
      std::set<TensorId> read;
      for (const Instruction& i : program.instructions) read.insert(i.inputs.begin(), i.inputs.end());
      for (const Instruction& i : program.instructions) {
        if (i.tag.inserted_by != std::string_view("recompute")) continue;
        EXPECT_TRUE(std::any_of(i.outputs.begin(), i.outputs.end(), [&](TensorId id) { return read.contains(id); }))
            << "cut " << cut << ", rank " << program.rank << ": " << i.op->name() << " of layer " << i.tag.layer;
      }
    }
  }
}

TEST_F(PipelineBoundaries, CutsWithinBlocksAreTakenOnlyIfStagesAreMoreEven) {
  const auto within = [&](const test::TinyShape& shape, int tensor) {
    const auto programs = compile(host_, {.shape = shape, .cut = "auto", .tensor = tensor, .sequence = 2048});
    return messages_of(programs[0])[Lane::to_next].size() > 4;
  };
  // So large that what kernels take to start counts little beside their work.
  const test::TinyShape even{.layers = 8, .hidden = 512, .heads = 4, .kv_heads = 2, .head_dim = 128, .ffn = 2048, .tied = false};
  test::TinyShape uneven = even;
  uneven.layers = 2;
  uneven.vocabulary = 4096;
  EXPECT_FALSE(within(even, 1));
  EXPECT_TRUE(within(uneven, 1));
  EXPECT_FALSE(within(uneven, 2)) << "ranks that share matrices send their part of the stream";
}

}  // namespace
}  // namespace consist
