// The programs of all ranks: legal, free of deadlocks also where nothing is buffered, whole together, and in the order of their
// schedule.
#include "tests/pipeline/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "consist/error.h"
#include "consist/op.h"
#include "core/compile/compile.h"
#include "core/cost/collective_stream.h"
#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "tests/golden_text.h"

namespace consist {
namespace {

using test::compile;
using test::Configuration;
using test::pointers;

class PipelinePrograms : public ::testing::Test {
 protected:
  PluginHost host_{std::vector<std::string>{CONSIST_BINARY_DIR "/lib/consist/plugins"}};
};

TEST_F(PipelinePrograms, NoDeadlockOverAllSchedulesStagesAndMicroBatches) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const int stages : {2, 3, 4}) {
      for (const int micro_batches : {1, 2, 3, 4, 5, 8}) {
        for (const bool tied : {false, true}) {
          const Configuration configuration{
              .schedule = schedule, .stages = stages, .micro_batches = micro_batches, .shape = {.layers = 8, .tied = tied}};
          SCOPED_TRACE(configuration.text());
          const auto programs = compile(host_, configuration);
          ASSERT_NO_THROW(verify_collectives(pointers(programs)));
        }
      }
    }
  }
}

TEST_F(PipelinePrograms, ComposeWithEveryStrategy) {
  for (const char* schedule : {"1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const char* over_data : {"ddp", "zero2", "zero3-offload"}) {
      for (const int tensor : {1, 2}) {
        const Configuration configuration{.schedule = schedule,
                                          .stages = 2,
                                          .data = 2,
                                          .micro_batches = 3,
                                          .shape = {.layers = 4, .heads = 4, .kv_heads = 2},
                                          .over_data = over_data,
                                          .tensor = tensor};
        SCOPED_TRACE(configuration.text());
        const auto programs = compile(host_, configuration);
        EXPECT_EQ(programs[0].mesh.axis(0).name, "pipeline") << "stages are the farthest apart";
        EXPECT_NO_THROW(verify_collectives(pointers(programs)));
      }
    }
  }
}

// Each rank of tp-sp then has a summand of the head's gradient, which is reduced in every micro-batch and only then added up.
TEST_F(PipelinePrograms, ATiedVocabularyThatRanksCannotShareIsAddedUp) {
  const Configuration configuration{
      .micro_batches = 3, .shape = {.layers = 4, .heads = 4, .kv_heads = 2, .vocabulary = 33}, .tensor = 2};
  const auto programs = compile(host_, configuration);
  EXPECT_NO_THROW(verify_collectives(pointers(programs)));
  const Program& last = programs.back();
  const auto adds = std::count_if(last.instructions.begin(), last.instructions.end(), [&](const Instruction& i) {
    return i.op->name() == "add" && last[i.inputs[0]].role == Role::gradient && last[i.inputs[0]].shape[0] == 33;
  });
  EXPECT_EQ(adds, 2 + 1) << "micro-batches, and the first stage's part";
}

TEST_F(PipelinePrograms, StagesMayBeginWithinLayers) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const bool tied : {false, true}) {
      const Configuration configuration{
          .schedule = schedule, .stages = 3, .shape = {.layers = 7, .tied = tied}, .cut = "operators"};
      SCOPED_TRACE(configuration.text());
      EXPECT_NO_THROW(verify_collectives(pointers(compile(host_, configuration))));
    }
  }
}

TEST_F(PipelinePrograms, RecomputeWhatTheyNeed) {
  for (const char* schedule : {"1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
    for (const char* cut : {"layers", "operators"}) {
      for (const char* recompute : {"full", "swiglu,rms_norm"}) {
        const Configuration configuration{
            .schedule = schedule, .stages = 3, .shape = {.layers = 7}, .cut = cut, .recompute = recompute};
        SCOPED_TRACE(configuration.text() + " cut at " + cut + ", recompute " + recompute);
        EXPECT_NO_THROW(verify_collectives(pointers(compile(host_, configuration))));
      }
    }
  }
}

TEST_F(PipelinePrograms, EvaluationRunsForwardOverTheStages) {
  for (const int chunks : {1, 2}) {
    const auto programs = compile(
        host_, {.schedule = chunks == 1 ? "1f1b" : "interleaved", .stages = 4, .chunks = chunks, .shape = {.layers = 8}}, true);
    EXPECT_NO_THROW(verify_collectives(pointers(programs)));
  }
}

/// Work that a program does: op, layer and micro-batch, whatever the order and the rank. Messages and the optimizer apart.
std::multiset<std::string> work_of(const std::vector<Program>& programs) {
  std::multiset<std::string> work;
  for (const Program& program : programs) {
    for (const Instruction& i : program.instructions) {
      if (i.op->is_collective() || i.tag.phase == Phase::optimizer || i.tag.micro_batch < 0) continue;
      if (i.tag.inserted_by == std::string("pipeline")) continue;  // copies for weight gradients put off
      work.insert(std::string(i.op->name()) + " layer " + std::to_string(i.tag.layer) + " micro " +
                  std::to_string(i.tag.micro_batch));
    }
  }
  return work;
}

TEST_F(PipelinePrograms, TheRanksTogetherDoWhatOneRankDoes) {
  for (const bool tied : {false, true}) {
    const test::TinyShape shape{.layers = 8, .tied = tied};
    const auto one = work_of(compile(host_, {.stages = 1, .shape = shape}));
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"}) {
      const auto programs = compile(host_, {.schedule = schedule, .stages = 4, .shape = shape});
      EXPECT_EQ(work_of(programs), one) << schedule;
      std::map<std::string, int> parameters;
      for (const Program& p : programs) {
        for (const Parameter& parameter : p.parameters) ++parameters[parameter.name];
        EXPECT_LT(p.parameters.size(), 30u);
      }
      for (const auto& [name, ranks] : parameters) EXPECT_EQ(ranks, tied && name == "embed.weight" ? 2 : 1) << name;
    }
  }
}

TEST_F(PipelinePrograms, TiedEmbeddingIsTrainedByBothItsStages) {
  const auto programs = compile(host_, {.stages = 4, .shape = {.layers = 4}});
  for (const int rank : {0, 3}) {
    const auto& parameters = programs[static_cast<std::size_t>(rank)].parameters;
    const auto table =
        std::find_if(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.name == "embed.weight"; });
    ASSERT_NE(table, parameters.end());
    EXPECT_EQ(table->tied_replica, 3 - rank);
  }
}

/// Where the update of `parameter` draws its random bits from: the seed of the instruction, and the place there.
std::pair<std::int64_t, std::ptrdiff_t> source_of_bits(const Program& program, const std::string& parameter) {
  for (const Instruction& i : program.instructions) {
    if (i.op->states_per_update() < 0) continue;
    const auto place =
        std::find_if(i.inputs.begin(), i.inputs.end(), [&](TensorId t) { return t != no_tensor && program[t].name == parameter; });
    if (place != i.inputs.end()) return {i.attributes.integer("seed"), place - i.inputs.begin()};
  }
  throw ProgramError("nobody updates " + parameter);
}

// With --bf16.states bf16 both stages must round their copy of the table alike.
TEST_F(PipelinePrograms, BothStagesOfATiedEmbeddingRoundByTheSameBits) {
  const auto programs = compile(host_, {.stages = 4, .shape = {.layers = 4}});
  EXPECT_EQ(source_of_bits(programs[0], "embed.weight"), source_of_bits(programs[3], "embed.weight"));
}

TEST_F(PipelinePrograms, WhatCrossesABoundaryIsTheStreamAndItsGradient) {
  const auto programs = compile(host_, {.stages = 2, .micro_batches = 3, .shape = {.layers = 2, .tied = false}});
  int sent = 0;
  for (const Instruction& i : programs[0].instructions) {
    if (i.op->name() == "send") ++sent;
  }
  EXPECT_EQ(sent, 3) << "per micro-batch the residual stream, the last linear's output added to it";
  sent = 0;
  for (const Instruction& i : programs[1].instructions) {
    if (i.op->name() == "send") ++sent;
  }
  EXPECT_EQ(sent, 3) << "the gradient is one and the same for both";
}

TEST_F(PipelinePrograms, GoldenPrograms) {
  const auto programs = compile(host_, {.stages = 2, .micro_batches = 2, .shape = {.layers = 2}});
  for (const int rank : {0, 1})
    test::expect_golden("pipeline_rank" + std::to_string(rank), to_text(programs[static_cast<std::size_t>(rank)]));
}

/// Weight gradients of matrices in backward parts of a stage in the middle that stand behind the last message of their part.
int behind_messages(const Program& program) {
  std::map<std::int16_t, int> since;  // by micro-batch
  for (const Instruction& i : program.instructions) {
    if (i.tag.phase != Phase::backward) continue;
    if (i.op->name() == "send") since[i.tag.micro_batch] = 0;
    if (i.op->name() == "linear_weight_grad") ++since[i.tag.micro_batch];
  }
  int count = 0;
  for (const auto& [micro_batch, weights] : since) count += weights;
  return count;
}

TEST_F(PipelinePrograms, BackwardPartsSendBeforeWeightGradients) {
  const auto stage = [&](bool send_first) {
    return compile(host_, {.stages = 3, .micro_batches = 5, .shape = {.layers = 6}, .send_first = send_first})[1];
  };
  const Program first = stage(true), last = stage(false);
  EXPECT_EQ(behind_messages(last), 0);
  EXPECT_EQ(behind_messages(first), 5 * 2 * 5 + 3 * 2 * 2)
      << "q, k, v, gate, up of two layers; o and down, which read what is updated in place, of the last three micro-batches";
  const auto without_releases = [](const Program& program) {
    return std::count_if(program.instructions.begin(), program.instructions.end(),
                         [](const Instruction& i) { return i.op->name() != "release"; });
  };
  EXPECT_EQ(without_releases(first), without_releases(last)) << "rms_norm_grad leaves what they read";
}

// Tensors that are computed beside a message are not planned into the memory that the message still reads.
TEST_F(PipelinePrograms, MessagesKeepTheirMemoryWhileTheyTravel) {
  for (const Program& program : compile(host_, {.stages = 3, .micro_batches = 5, .shape = {.layers = 6}})) {
    std::vector<std::size_t> last(program.tensors.size(), 0);
    std::size_t last_computed = 0;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      for (TensorId id : program.instructions[i].inputs) {
        if (id != no_tensor) last[static_cast<std::size_t>(program[id].storage)] = i;
      }
      if (program.instructions[i].op->name().starts_with("linear")) last_computed = i;
    }
    int sends = 0;
    for (std::size_t i = 0; i < last_computed; ++i) {
      if (program.instructions[i].op->name() != "send") continue;
      ++sends;
      EXPECT_GT(last[static_cast<std::size_t>(program[program.instructions[i].inputs[0]].storage)], i) << i;
    }
    EXPECT_GE(sends, 4) << "rank " << program.rank;
  }
}

// rms_norm_grad adds to the gradient of the residual stream in place, unless a weight gradient reads that later.
TEST_F(PipelinePrograms, WeightGradientsPutOffReadNoCopies) {
  const auto in_place = [](const Program& program, int& norms) {
    int count = 0;
    for (const Instruction& i : program.instructions) {
      EXPECT_FALSE(i.op->name() == "cast" && i.tag.phase == Phase::backward) << program[i.inputs[0]].name;
      if (i.op->name() != "rms_norm_grad" || i.inputs[4] == no_tensor) continue;
      ++norms;
      count += program[i.inputs[4]].storage == program[i.outputs[0]].storage ? 1 : 0;
    }
    return count;
  };
  for (const char* schedule : {"1f1b", "zero-bubble", "zero-bubble-h2"}) {
    const auto programs = compile(host_, {.schedule = schedule, .stages = 2, .micro_batches = 8, .shape = {.layers = 4}});
    int norms = 0;
    const int updated = in_place(programs[0], norms);
    EXPECT_EQ(norms, 8 * 2 * 2) << schedule;
    EXPECT_EQ(updated, schedule == std::string("1f1b") ? norms : 0) << schedule << ": the first stage sends no gradient on";
  }
}

TEST_F(PipelinePrograms, WhatIsRecomputedIsNotKeptToSendFirst) {
  const auto bytes = [&](bool send_first) {
    const Configuration configuration{
        .stages = 3, .micro_batches = 4, .shape = {.layers = 6}, .recompute = "full", .send_first = send_first};
    return plan_memory(compile(host_, configuration)[1], {}).bytes[0];
  };
  EXPECT_LT(bytes(true), bytes(false) * 11 / 10) << "but for copies of what o and down read";
}

TEST_F(PipelinePrograms, CollectivesKeepWeightGradientsBesideThem) {
  const Configuration configuration{
      .stages = 2, .data = 2, .micro_batches = 3, .shape = {.layers = 4}, .over_data = "zero3-offload"};
  EXPECT_EQ(behind_messages(compile(host_, configuration)[2]), 0);
}

TEST_F(PipelinePrograms, SchedulesKeepAsManyActivationsAsTheyMust) {
  const auto peak = [&](const char* schedule, int micro_batches) {
    const auto programs =
        compile(host_, {.schedule = schedule, .stages = 4, .micro_batches = micro_batches, .shape = {.layers = 8}});
    return plan_memory(programs[1], {}).bytes[0] - plan_memory(programs[1], {}).persistent[0];
  };
  EXPECT_GT(peak("gpipe", 16), peak("gpipe", 8) * 3 / 2) << "all micro-batches are in flight";
  EXPECT_LE(peak("1f1b", 16), peak("1f1b", 8) + 4096) << "no more are in flight than there are stages";
  EXPECT_LT(peak("1f1b", 16), peak("gpipe", 16) / 2);
  EXPECT_LE(peak("zero-bubble", 16), peak("zero-bubble", 8) + 4096);
}

}  // namespace
}  // namespace consist
