// The programs that ZeRO makes: as stated in golden texts, legal under every option, and without waits that bring nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "core/cost/collective_stream.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/golden_text.h"
#include "tests/program/plan_checks.h"
#include "tests/zero/zero_step.h"

namespace consist {
namespace {

using test::expect_golden;
using test::gather_always;
using test::planned;
using test::zero_step;
using test::ZeroCase;

TEST(Golden, Zero2) {
  expect_golden("zero2", to_text(planned(zero_step({.options = {{"reduce-bucket-size", "600"}}, .dtypes = test::mixed_bf16}))));
}
TEST(Golden, Zero2Frozen) {
  expect_golden("zero2_frozen", to_text(planned(zero_step({.options = {{"reduce-bucket-size", "600"}},
                                                           .dtypes = test::mixed_bf16,
                                                           .freeze = {.frozen = {"embed.weight", "layers.0.*"}, .trained = {}}}))));
}
TEST(Golden, Zero2Accumulated) {
  expect_golden("zero2_accumulated", to_text(planned(zero_step({.accumulation = 2, .shape = {.layers = 1}}))));
}
TEST(Golden, Zero1Accumulated) {
  expect_golden("zero1_accumulated",
                to_text(planned(zero_step({.options = {{"stage", "1"}}, .accumulation = 2, .shape = {.layers = 1}}))));
}
TEST(Golden, Zero3) {
  expect_golden("zero3",
                to_text(planned(zero_step({.strategy = "zero3-offload", .options = gather_always, .dtypes = test::mixed_bf16}))));
}

TEST(Golden, Hybrid) {
  expect_golden("hybrid", to_text(planned(zero_step({.options = {{"reduce-bucket-size", "600"}},
                                                     .ranks = 4,
                                                     .accumulation = 2,
                                                     .replicas = 2,
                                                     .shape = {.layers = 1},
                                                     .dtypes = test::mixed_bf16}))));
}

TEST(Golden, Zero3InBf16) {
  ZeroCase c{.strategy = "zero3-offload",
             .options = gather_always,
             .accumulation = 2,
             .shape = {.layers = 1, .tied = false},
             .dtypes = test::mixed_bf16};
  c.options["communication-data-type"] = "bf16";
  expect_golden("zero3_bf16_gradients_travel", to_text(planned(zero_step(c))));
  c.options["reduce-each-micro-batch"] = "false";
  c.options["max-reuse-distance"] = "1e9";
  expect_golden("zero3_reduced_once", to_text(planned(zero_step(c))));
}

TEST(Golden, Zero3Offload) {
  ZeroCase c{.strategy = "zero3-offload", .options = gather_always, .shape = {.layers = 1}, .dtypes = test::mixed_bf16};
  c.options.insert({{"offload-param.device", "cpu"}, {"offload-optimizer.device", "cpu"}, {"sub-group-size", "600"}});
  expect_golden("zero3_offload", to_text(planned(zero_step(c))));
}
TEST(Golden, Zero3OffloadUpdatedOnTheHost) {
  ZeroCase c{.strategy = "zero3-offload", .options = gather_always, .shape = {.layers = 1}, .dtypes = test::mixed_bf16};
  c.options.insert({{"offload-optimizer.device", "cpu"}, {"offload-optimizer.update", "cpu"}});
  expect_golden("zero3_offload_updated_on_the_host", to_text(planned(zero_step(c))));
}

TEST(Zero, LinearsOfGatheredWeightsArePacked) {
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    ZeroCase c{.strategy = strategy, .accumulation = 2, .shape = {.layers = 1}, .pack_linears = true};
    std::map<std::string, int> ops;
    MemoryPlan plan;
    const Program p = planned(zero_step(c), &plan);
    test::expect_no_two_live_tensors_overlap(p, plan);
    for (const Instruction& i : p.instructions) ++ops[std::string(i.op->name())];
    for (const char* op : {"packed_linear", "packed_linear_input_grad", "packed_linear_weight_grad"})
      EXPECT_EQ(ops[op], 2 * c.accumulation) << op << " in " << strategy;
    // Gathered in small buckets: whatever is packed then, the program is legal, which compile_step() checks.
    c.options = {{"reduce-bucket-size", "600"}};
    zero_step(c);
    c.ranks = 3;  // parts have padding, which leaves gaps
    ops.clear();
    for (const Instruction& i : zero_step(c).instructions) ++ops[std::string(i.op->name())];
    EXPECT_EQ(ops["packed_linear"], 0);
  }
}

/// Adds buckets and distances of every size, on every number of ranks.
void add_sizes(std::vector<ZeroCase>& all) {
  for (const int ranks : {2, 3, 4}) {  // 3 divides hardly any tensor
    for (const int accumulation : {1, 3}) {
      for (const bool tied : {true, false}) {
        for (const char* overlap : {"true", "false"}) {
          const test::TinyShape shape{.tied = tied};
          for (const char* stage : {"1", "2"}) {
            for (const char* bucket : {"1", "600", "5e7"}) {
              all.push_back({.options = {{"stage", stage},
                                         {"reduce-bucket-size", bucket},
                                         {"allgather-bucket-size", bucket},
                                         {"overlap-comm", overlap}},
                             .ranks = ranks,
                             .accumulation = accumulation,
                             .shape = shape});
            }
          }
          for (const char* bucket : {"1", "600", "5e7"}) {
            for (const char* live : {"0", "1000", "1e9"}) {
              for (const char* distance : {"0", "500", "1e9"}) {
                all.push_back({.strategy = "zero3-offload",
                               .options = {{"param-persistence-threshold", "20"},
                                           {"max-live-parameters", live},
                                           {"max-reuse-distance", distance},
                                           {"prefetch-bucket-size", bucket},
                                           {"reduce-bucket-size", bucket},
                                           {"overlap-comm", overlap}},
                               .ranks = ranks,
                               .accumulation = accumulation,
                               .shape = shape});
              }
            }
          }
        }
      }
    }
  }
}

/// Adds each way of reducing gradients of several micro-batches.
void add_reductions(std::vector<ZeroCase>& all) {
  for (const char* each : {"true", "false"}) {
    for (const char* reduce_dtype : {"fp32", "bf16"}) {
      for (const bool tied : {true, false}) {
        for (const bool mixed : {false, true}) {
          ZeroCase c{
              .strategy = "zero3-offload", .options = gather_always, .ranks = 3, .accumulation = 3, .shape = {.tied = tied}};
          if (mixed) c.dtypes = test::mixed_bf16;
          c.options.insert({{"reduce-each-micro-batch", each}, {"communication-data-type", reduce_dtype}});
          all.push_back(std::move(c));
        }
      }
    }
  }
}

/// Adds each share of the optimizer on the host.
void add_offloads(std::vector<ZeroCase>& all) {
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    for (const char* ratio : {"0", "0.5", "1"}) {
      for (const char* update : {"device", "cpu"}) {
        for (const char* group : {"1", "600", "1e8"}) {
          for (const bool mixed : {false, true}) {
            ZeroCase c{.strategy = strategy, .ranks = 3, .accumulation = 2};
            if (mixed) c.dtypes = test::mixed_bf16;
            c.options = {{"offload-optimizer.device", "cpu"},
                         {"offload-optimizer.ratio", ratio},
                         {"offload-optimizer.update", update},
                         {"sub-group-size", group}};
            if (c.strategy == "zero3-offload")
              c.options.insert({{"offload-param.device", "cpu"}, {"param-persistence-threshold", "20"}});
            all.push_back(std::move(c));
          }
        }
      }
    }
  }
}

/// All that the options can make of a step.
std::vector<ZeroCase> cases() {
  std::vector<ZeroCase> all;
  add_sizes(all);
  add_reductions(all);
  add_offloads(all);
  return all;
}

TEST(Programs, AreLegalAndRanksDoNotBlockEachOtherUnderEveryOption) {
  for (const ZeroCase& c : cases()) {
    std::string text = c.strategy + " on " + std::to_string(c.ranks) + " ranks, accumulation " + std::to_string(c.accumulation);
    for (const auto& [name, value] : c.options) text += " " + name + "=" + value;
    SCOPED_TRACE(text);
    const Program program = planned(zero_step(c));
    ASSERT_NO_THROW(verify(program));
    const std::vector<const Program*> ranks(static_cast<std::size_t>(c.ranks), &program);
    ASSERT_NO_THROW(verify_collectives(ranks));
  }
}

/// Collectives, copies in both directions, memory kept and memory made for later: all on addresses that the plan reuses.
TEST(Programs, ReusedMemoryIsWaitedFor) {
  const std::map<std::string, std::string> offloaded{
      {"param-persistence-threshold", "0"}, {"max-reuse-distance", "0"}, {"prefetch-bucket-size", "600"},
      {"reduce-bucket-size", "600"},        {"sub-group-size", "600"},   {"offload-param.device", "cpu"},
      {"offload-optimizer.device", "cpu"}};
  std::map<std::string, std::string> updated_on_host = offloaded;
  updated_on_host["offload-optimizer.update"] = "cpu";
  const ZeroCase all[] = {{.options = {{"reduce-bucket-size", "600"}, {"allgather-bucket-size", "600"}}, .accumulation = 2},
                          {.options = {{"stage", "1"}}, .accumulation = 3},
                          {.strategy = "zero3-offload", .options = gather_always, .ranks = 3, .accumulation = 2},
                          {.strategy = "zero3-offload", .options = offloaded, .accumulation = 2, .dtypes = test::mixed_bf16},
                          {.strategy = "zero3-offload", .options = offloaded, .ranks = 3},
                          {.strategy = "zero3-offload", .options = updated_on_host, .dtypes = test::mixed_bf16}};
  for (const ZeroCase& c : all) {
    SCOPED_TRACE(c.strategy + " on " + std::to_string(c.ranks) + " ranks");
    MemoryPlan plan;
    const Program program = planned(zero_step(c), &plan);
    test::expect_no_two_live_tensors_overlap(program, plan);
    EXPECT_GT(test::expect_conflicts_are_ordered(program, plan), 10);
  }
}

/// Elements that are whole at once, as collectives and releases of memory make it.
std::int64_t most_live(const Program& program) {
  std::vector<InstructionId> last(program.tensors.size(), -1);
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (TensorId input : program.instructions[i].inputs) {
      if (input != no_tensor) last[static_cast<std::size_t>(input)] = static_cast<InstructionId>(i);
    }
  }
  std::int64_t live = 0, most = 0;
  std::vector<std::pair<InstructionId, std::int64_t>> open;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    std::erase_if(open, [&](const auto& entry) {
      if (entry.first >= static_cast<InstructionId>(i)) return false;
      live -= entry.second;
      return true;
    });
    if (program.instructions[i].op->name() != "all_gather") continue;
    for (TensorId whole : program.instructions[i].outputs) {
      open.emplace_back(last[static_cast<std::size_t>(whole)], program[whole].shape.elements());
      live += open.back().second;
    }
    most = std::max(most, live);
  }
  return most;
}

TEST(Programs, NoMoreParametersAreWholeThanAllowed) {
  ZeroCase c{.strategy = "zero3-offload", .options = gather_always, .accumulation = 2, .shape = {.layers = 6, .tied = false}};
  c.options["max-reuse-distance"] = "1e9";
  const std::int64_t everything = most_live(zero_step(c));
  c.options["max-live-parameters"] = "2000";
  EXPECT_LE(most_live(zero_step(c)), 2000);
  EXPECT_GT(everything, 4000) << "with room for it, all parameters stay";
  c.options["max-reuse-distance"] = "0";
  c.options["max-live-parameters"] = "1e9";
  EXPECT_LE(most_live(zero_step(c)), 3 * 600) << "a bucket in use, the one that is gathered meanwhile, and what both have begun";
}

TEST(Programs, GathersRunAheadOfUse) {
  const Program program = zero_step({.strategy = "zero3-offload", .options = gather_always, .shape = {.layers = 6}});
  std::vector<InstructionId> gathered(program.tensors.size(), -1);
  int ahead = 0, gathers = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op->name() == "all_gather") {
      ++gathers;
      const auto uses = [&](const Instruction& other) {
        return std::any_of(other.inputs.begin(), other.inputs.end(), [&](TensorId t) {
          return std::find(instruction.outputs.begin(), instruction.outputs.end(), t) != instruction.outputs.end();
        });
      };
      ahead += i + 1 < program.instructions.size() && !uses(program.instructions[i + 1]);
    }
  }
  EXPECT_GT(gathers, 10);
  EXPECT_GE(ahead, gathers - 2) << "all but the first have work between them and their use";
}

/// Compute must not wait for a reduction because it was given its memory: only additions of its results and the optimizer may.
TEST(Programs, ComputeNeverWaitsForAReductionOfTheBucketThatIsStillOnItsWay) {
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    ZeroCase c{.strategy = strategy, .accumulation = 2, .shape = {.layers = 6, .tied = false}};
    c.options = {{"reduce-bucket-size", "600"}};
    if (c.strategy == "zero3-offload") c.options = gather_always;
    const Program program = planned(zero_step(c));
    InstructionId newest = -1;  // reduce_scatter
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op->name() == "reduce_scatter") newest = static_cast<InstructionId>(i);
      if (instruction.queue != Queue::compute() || instruction.tag.phase == Phase::optimizer) continue;
      const bool at_end = std::none_of(program.instructions.begin() + static_cast<std::ptrdiff_t>(i), program.instructions.end(),
                                       [](const Instruction& later) { return later.op->name() == "reduce_scatter"; });
      if (at_end) break;
      for (InstructionId wait : instruction.waits) {
        EXPECT_NE(wait, newest) << strategy << ": " << to_text(program, static_cast<InstructionId>(i)) << "\n waits for\n"
                                << to_text(program, wait);
      }
    }
  }
}

// Gradients that travel in bf16 are summands of 16 bits; their sum over micro-batches is not.
TEST(Gradients, OfSeveralMicroBatchesAreAddedInF32) {
  const ZeroCase all[] = {{.options = {{"reduce-bucket-size", "600"}}},
                          {.options = {{"stage", "1"}}},
                          {.strategy = "zero3-offload", .options = gather_always},
                          {.strategy = "zero3-offload", .options = gather_always, .shape = {.layers = 1, .tied = false}}};
  for (ZeroCase c : all) {
    c.accumulation = 3;
    c.dtypes = test::mixed_bf16;
    c.options["communication-data-type"] = "bf16";
    const Program step = zero_step(c);
    std::map<TensorId, std::set<std::int16_t>> summed;  // by tensor: the micro-batches that are added up in it
    int sums = 0;
    for (const Instruction& i : step.instructions) {
      if (i.tag.phase != Phase::backward || i.tag.micro_batch < 0 || i.op->is_collective()) continue;
      for (std::size_t k = 0; k < i.outputs.size(); ++k) {
        if (i.outputs[k] == no_tensor) continue;
        std::set<std::int16_t>& sum = summed[i.outputs[k]] = {i.tag.micro_batch};
        const int slot = i.op->updates_in_place(static_cast<int>(k));
        if (slot < 0 || static_cast<std::size_t>(slot) >= i.inputs.size()) continue;
        const std::set<std::int16_t> before = summed[i.inputs[static_cast<std::size_t>(slot)]];
        sum.insert(before.begin(), before.end());
        if (sum.size() < 2) continue;
        ++sums;
        EXPECT_EQ(step[i.outputs[k]].dtype, DType::f32)
            << c.strategy << ": " << step[i.outputs[k]].name << " by " << i.op->name();
      }
    }
    EXPECT_GT(sums, 10) << c.strategy;
  }
}

}  // namespace
}  // namespace consist
