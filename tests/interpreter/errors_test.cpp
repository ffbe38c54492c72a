// Errors planted into compiled programs, each of a kind that a strategy, a pass or a plan could make: the interpreter notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "consist/op.h"
#include "core/interpreter/order_check.h"
#include "core/lower/waits.h"
#include "tests/interpreter/cell.h"

namespace consist::interpreter {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Words = std::vector<std::string>;

class PlantedErrors : public ::testing::Test {
 protected:
  /// Compiles a run that is right.
  void compile_run(const Words& words, const ModelChoice& model = {"llama-tied"}) {
    made_ = compile(config_of(model, words), 256);
    ASSERT_THAT(wrong_in_run(*made_, 3), IsEmpty());
  }

  std::vector<Instruction>& instructions(std::size_t rank) { return made_->steps.at(rank).program.instructions; }

  /// The `number`-th instruction of an op on a rank.
  InstructionId find(std::size_t rank, const std::string& op, int number = 0) {
    const auto& all = instructions(rank);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].op->name() == op && number-- == 0) return static_cast<InstructionId>(i);
    }
    throw std::runtime_error("rank " + std::to_string(rank) + " has not so many instructions " + op);
  }
  Instruction& at(std::size_t rank, const std::string& op, int number = 0) {
    return instructions(rank)[static_cast<std::size_t>(find(rank, op, number))];
  }

  /// Leaves an instruction out: what it would write keeps the bytes that are there.
  static void drop(Instruction& i) {
    i.op = &registry().get("release");
    i.outputs.clear();
    i.attributes = {};
  }
  void on_all_ranks(const std::function<void(std::size_t)>& plant) {
    for (std::size_t rank = 0; rank < made_->steps.size(); ++rank) plant(rank);
  }

  std::vector<std::string> noticed(std::uint64_t order = 3) const { return wrong_in_run(*made_, order); }

  std::unique_ptr<RankPrograms> made_;
};

TEST_F(PlantedErrors, ACollectiveThatIsLeftOut) {
  compile_run({"--strategy=ddp", "--ranks=2", "--ddp.bucket-size=10Ki"});
  on_all_ranks([&](std::size_t rank) { drop(at(rank, "all_reduce", 1)); });
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, ACollectiveThatOneRankLeavesOut) {
  compile_run({"--strategy=ddp", "--ranks=2", "--ddp.bucket-size=10Ki"});
  drop(at(1, "all_reduce", 1));
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, AGatherInPlaceOfAReduction) {
  compile_run({"--strategy=tp-sp=2", "--ranks=2"});
  on_all_ranks([&](std::size_t rank) { at(rank, "reduce_scatter").op = &registry().get("all_gather"); });
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, ASumThatIsLeftOutOfAReduction) {
  compile_run({"--strategy=zero2", "--ranks=2"});
  on_all_ranks([&](std::size_t rank) { at(rank, "reduce_scatter").op = &registry().get("slice"); });
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, ALossThatIsScaledWronglyInOneMicroBatch) {
  compile_run({"--strategy=ddp", "--ranks=2", "--accumulation=2"});
  Attributes& attributes = at(1, "lm_head_loss_grad", 1).attributes;
  attributes.set("scale", attributes.real("scale") * 1.001);
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, AMicroBatchWhoseGradientIsNotAdded) {
  compile_run({"--accumulation=2", "--pack=off"});
  // An instruction of the second micro-batch: it overwrites instead.
  const auto& all = instructions(0);
  const auto last =
      std::find_if(all.rbegin(), all.rend(), [](const Instruction& i) { return i.op->name() == "linear_weight_grad"; });
  ASSERT_NE(last->inputs[2], no_tensor);
  const_cast<Instruction&>(*last).inputs[2] = no_tensor;
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

// By the order proof, whichever way the step happens to go; and by what is read, in some of the ways.
TEST_F(PlantedErrors, AWaitThatIsMissing) {
  compile_run({"--strategy=tp-sp=2", "--ranks=2"});
  int tried = 0;
  for (std::size_t i = 0; i < instructions(0).size(); ++i) {
    Instruction& waiting = instructions(0)[i];
    if (waiting.waits.empty() || waiting.queue != Queue::compute()) continue;
    const std::vector<InstructionId> waits = std::exchange(waiting.waits, {});
    const std::vector<std::string> violations = check_order(made_->steps[0]).violations;
    EXPECT_THAT(violations, Not(IsEmpty())) << place_of(made_->steps[0].program, static_cast<InstructionId>(i));
    EXPECT_THAT(violations, ::testing::Each(HasSubstr("without waiting for")));
    if (tried++ == 0) {
      bool seen = false;
      for (std::uint64_t order = 0; order < 16 && !seen; ++order) seen = !noticed(order).empty();
      EXPECT_TRUE(seen) << "none of 16 timings shows it";
    }
    waiting.waits = waits;
  }
  EXPECT_GT(tried, 8);
}

/// A storage that is written while another one is still to be read, and fits in its place.
TEST_F(PlantedErrors, MemoryThatIsReusedOneInstructionTooEarly) {
  compile_run({"--strategy=ddp", "--ranks=1"});
  Planned& step = made_->steps[0];
  const Program& p = step.program;
  struct Life {
    InstructionId first = -1, last = -1;
  };
  std::vector<Life> lives(p.tensors.size());
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    for (const auto* tensors : {&p.instructions[i].inputs, &p.instructions[i].outputs}) {
      for (const TensorId id : *tensors) {
        if (id == no_tensor) continue;
        Life& life = lives[static_cast<std::size_t>(p[id].storage)];
        if (life.first < 0) life.first = static_cast<InstructionId>(i);
        life.last = static_cast<InstructionId>(i);
      }
    }
  }
  int planted = 0;
  const MemoryPlan plan = step.plan;
  for (std::size_t early = 0; early < lives.size() && planted < 5; ++early) {
    for (std::size_t late = 0; late < lives.size(); ++late) {
      const auto is_activation = [&](std::size_t t) {
        return p.tensors[t].role == Role::activation && p.tensors[t].storage == static_cast<TensorId>(t) && lives[t].first >= 0;
      };
      if (early == late || !is_activation(early) || !is_activation(late)) continue;
      if (lives[late].first != lives[early].last - 1 || lives[early].first >= lives[late].first) continue;
      if (p.bytes(static_cast<TensorId>(late)) > p.bytes(static_cast<TensorId>(early))) continue;
      for (std::size_t t = 0; t < p.tensors.size(); ++t) {
        if (p.tensors[t].storage == static_cast<TensorId>(late)) step.plan.address[t] = plan.address[early] + p.tensors[t].offset;
      }
      insert_waits(step.program, step.plan, step.workspaces);
      const std::vector<std::string> wrong = noticed();
      EXPECT_THAT(wrong, ::testing::ElementsAre(
                             ::testing::AllOf(HasSubstr("reads '" + p.tensors[early].name), HasSubstr("it was overwritten"))))
          << p.tensors[early].name << " by " << p.tensors[late].name;
      step.plan = plan;
      ++planted;
      break;
    }
  }
  EXPECT_EQ(planted, 5);
}

TEST_F(PlantedErrors, PositionsThatAreOffByOneOnOneShard) {
  compile_run({"--strategy=tp-sp=2", "--ranks=2"});
  Program& p = made_->steps[1].program;
  const auto table =
      std::find_if(p.constants.begin(), p.constants.end(), [&](const Constant& c) { return p[c.tensor].shape.rank() == 2; });
  ASSERT_NE(table, p.constants.end());
  table->fill = [fill = table->fill, columns = p[table->tensor].shape[1]](std::span<float> out) {
    fill(out);
    std::rotate(out.begin(), out.begin() + columns, out.end());
  };
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, ABucketInAnotherOrderOnOneRank) {
  compile_run({"--strategy=tp-sp=2", "--ranks=2"});
  Instruction& sum = at(1, "all_reduce");  // of norms' weights, all as long, each in memory of its own
  ASSERT_GE(sum.inputs.size(), 2u);
  std::swap(sum.inputs[0], sum.inputs[1]);
  std::swap(sum.outputs[0], sum.outputs[1]);
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, MessagesThatChangePlaces) {
  compile_run({"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"});
  std::swap(at(0, "send", 0).inputs, at(0, "send", 1).inputs);
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, AStateThatIsNotCopiedBack) {
  compile_run({"--strategy=zero3-offload", "--ranks=2", "--zero3-offload.offload-optimizer.device=cpu"});
  int dropped = 0;
  for (Instruction& i : instructions(1)) {
    if (i.op->name() != "copy" || i.queue != Queue::device_to_host() || dropped++ > 0) continue;
    drop(i);
  }
  EXPECT_GT(dropped, 1);
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, AGradientThatTheNormCountsTwice) {
  compile_run({"--strategy=pipeline=2", "--ranks=2"});
  Instruction& squares = at(1, "sum_of_squares");
  squares.inputs.push_back(squares.inputs[0]);
  EXPECT_THAT(noticed(), Not(IsEmpty()));
}

TEST_F(PlantedErrors, RanksThatBlockEachOther) {
  compile_run({"--strategy=pipeline=2", "--ranks=2", "--accumulation=2"});
  at(1, "receive").waits.push_back(find(1, "send"));  // which needs what is received
  EXPECT_THAT(noticed(), ::testing::ElementsAre(HasSubstr("the ranks block each other")));
}

TEST_F(PlantedErrors, MemoryThatIsGivenAwayBeforeItsRelease) {
  compile_run({"--strategy=tp-sp=2", "--ranks=2"});
  Planned& step = made_->steps[0];
  const InstructionId release = find(0, "release");
  const TensorId kept = step.program.instructions[static_cast<std::size_t>(release)].inputs[0];
  // Scratch of the instruction before it goes there.
  step.plan.workspace[static_cast<std::size_t>(release) - 1] = step.plan.address[static_cast<std::size_t>(kept)];
  step.workspaces[static_cast<std::size_t>(release) - 1] = 256;
  insert_waits(step.program, step.plan, step.workspaces);
  EXPECT_THAT(check_order(step).violations, ::testing::Contains(HasSubstr("gives it away")));
}

}  // namespace
}  // namespace consist::interpreter
