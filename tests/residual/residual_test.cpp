// The residual of a step: its terms sum to the difference, and a cause that was planted comes first.
#include "launch/residual/residual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "launch/residual/residual_text.h"
#include "tests/child_process.h"
#include "tests/commands/tiny_training.h"
#include "tests/temporary_folder.h"

namespace consist::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

/// A step of 100 ms as it was predicted, and the run that measured it.
struct Trial {
  StepParts step;
  Conditions conditions;

  InstructionGroup& group(const std::string& text) {
    for (InstructionGroup& group : step.groups) {
      if (group.text == text) return group;
    }
    throw std::out_of_range(text);
  }
  void add(const std::string& part, const std::string& text, double seconds, double own, double bytes) {
    step.groups.push_back({.part = part,
                           .text = text,
                           .dtype = "bf16",
                           .count = 32,
                           .seconds = seconds,
                           .own_seconds = own,
                           .simulated_seconds = seconds,
                           .simulated_own_seconds = own,
                           .bytes = bytes});
  }
  /// Measured seconds of all groups of a part (all parts: ""), times `factor`.
  void slow(const std::string& part, double factor) {
    for (InstructionGroup& group : step.groups) {
      if (!part.empty() && group.part != part) continue;
      group.seconds *= factor;
      group.own_seconds *= factor;
    }
  }
  /// The parts are the sums of their groups; gaps and what was not timed stay.
  Residual residual() {
    step.simulated_parts = {{"gaps", 0}};
    PartSeconds measured{{"gaps", step.parts["gaps"]}, {"untimed", step.parts["untimed"]}};
    for (const InstructionGroup& group : step.groups) {
      step.simulated_parts[group.part] += group.simulated_seconds;
      measured[group.part] += group.seconds;
    }
    step.parts = measured;
    step.step_seconds = 0;
    for (const auto& [part, seconds] : step.parts) step.step_seconds += seconds;
    return residual_of(step, conditions);
  }
};

Trial as_predicted() {
  Trial run;
  run.step.source = "measured";
  run.step.simulated_groups = true;
  run.step.timeline = std::make_shared<const Json>(
      Json{{"simulation", {{"machine", "h100"}, {"step_error", 0.037}}}, {"classes", Json::array({Json::object()})}});
  run.conditions.clock = run.conditions.timed_clock = 1.7e9;
  run.conditions.rank_work = {0.08, 0.08};
  run.add("products", "linear model.layers.*.mlp.up_proj", 0.020, 0.020, 1e9);
  run.add("products", "linear model.layers.*.mlp.down_proj", 0.012, 0.012, 1e9);
  run.add("products", "grouped_linear model.layers.*.mlp.experts.up", 0.012, 0.012, 1e9);
  run.add("products", "lm_head_loss loss", 0.006, 0.006, 1e9);
  run.add("attention", "attention model.layers.*.self_attn", 0.015, 0.015, 1e9);
  run.add("memory_bound", "rms_norm model.layers.*.input_layernorm", 0.008, 0.008, 1e9);
  run.add("memory_bound", "swiglu model.layers.*.mlp", 0.004, 0.004, 1e9);
  run.add("optimizer", "adamw model.*", 0.003, 0.003, 1e9);
  run.add("communication:data", "reduce_scatter gradients", 0.016, 0.030, 5e9);
  run.add("copies", "copy model.*", 0.004, 0.020, 1e9);
  return run;
}

/// Seconds of a group, on its queue and in the step, times `factor`.
void stretch(InstructionGroup& group, double factor) {
  group.seconds *= factor;
  group.own_seconds *= factor;
}

double sum_of(const Residual& residual) {
  return std::accumulate(residual.terms.begin(), residual.terms.end(), 0.0,
                         [](double sum, const ResidualTerm& term) { return sum + term.seconds; });
}

TEST(Residual, WithinTheErrorOfPredictionsHasNoCause) {
  Trial run = as_predicted();
  for (const char* part : {"products", "attention", "memory_bound", "optimizer"}) run.slow(part, 1.03);
  const Residual residual = run.residual();
  EXPECT_TRUE(residual.by_cause().empty()) << residual_text(residual);
}

TEST(Residual, OfAStepAsPredictedIsNothing) {
  const Residual residual = as_predicted().residual();
  EXPECT_TRUE(residual.problem.empty()) << residual.problem;
  EXPECT_NEAR(residual.measured, residual.predicted, 1e-12);
  EXPECT_TRUE(residual.by_cause().empty()) << residual_text(residual);
  EXPECT_TRUE(residual.within_error());
  EXPECT_THAT(residual_text(residual), HasSubstr("nothing needs a cause"));
}

struct Planted {
  const char* name;
  const char* cause;
  std::function<void(Trial&)> plant;
  const char* says;
};

class PlantedCause : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedCause, ComesFirst) {
  Trial run = as_predicted();
  GetParam().plant(run);
  const Residual residual = run.residual();
  ASSERT_FALSE(residual.by_cause().empty()) << residual_text(residual);
  EXPECT_EQ(residual.by_cause().front().first, GetParam().cause) << residual_text(residual);
  EXPECT_THAT(residual_text(residual), HasSubstr(GetParam().says));
  EXPECT_NEAR(sum_of(residual), residual.measured - residual.predicted, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(
    , PlantedCause,
    ::testing::Values(
        Planted{"Clock", "clock",
                [](Trial& run) {
                  run.slow("products", 1.12);
                  run.slow("attention", 1.11);
                  run.conditions.machine_clock = 1.9e9;
                },
                "the clock was 1.70 GHz, the machine's file was measured at 1.90 GHz"},
        Planted{"ClockThatFell", "clock",
                [](Trial& run) {
                  run.conditions.timed_clock = 1.9e9;
                  run.step.parts["untimed"] = 0.007;
                },
                "the clock fell from 1.90 GHz"},
        Planted{"AttentionKernel", "kernel", [](Trial& run) { run.slow("attention", 1.8); },
                "attention model.layers.*.self_attn takes 1.80 times as long as predicted"},
        Planted{"KernelOfOneProduct", "kernel", [](Trial& run) { stretch(run.group("lm_head_loss loss"), 2); },
                "lm_head_loss loss takes 2.00 times as long"},
        Planted{"AttentionKernelThatIsLittleSlower", "kernel",
                [](Trial& run) {
                  run.slow("", 1.03);
                  run.slow("attention", 1.1);
                },
                "attention model.layers.*.self_attn takes 1.13 times as long"},
        Planted{"KernelOfExpertsOnOneRank", "kernel",
                [](Trial& run) {
                  stretch(run.group("grouped_linear model.layers.*.mlp.experts.up"), 3);
                  run.conditions.expert_load = 15;
                },
                "grouped_linear model.layers.*.mlp.experts.up takes 3.00 times as long"},
        Planted{"Memory", "memory", [](Trial& run) { run.slow("memory_bound", 1.4); }, "memory-bound ops take 1.40 times"},
        Planted{"WholeDevice", "device",
                [](Trial& run) {
                  for (const char* part : {"products", "attention", "memory_bound", "optimizer"}) run.slow(part, 1.5);
                  run.conditions.rank_work = {0.12, 0.12};
                  run.conditions.other_work = 0.3;
                },
                "others had 30% of the host's processors"},
        Planted{"Rank0IsSlow", "rank",
                [](Trial& run) {
                  for (const char* part : {"products", "attention", "memory_bound", "optimizer"}) run.slow(part, 1.3);
                  run.conditions.rank_work = {0.104, 0.08};
                },
                "rank 0 works 30.0% longer"},
        Planted{"Rank1IsSlow", "rank",
                [](Trial& run) {
                  InstructionGroup& collective = run.group("reduce_scatter gradients");
                  collective.seconds += 0.02;
                  collective.own_seconds += 0.02;
                  run.conditions.rank_work = {0.08, 0.1};
                },
                "rank 1 works 25.0% longer than rank 0"},
        Planted{"Link", "link",
                [](Trial& run) {
                  run.slow("communication:data", 2.5);
                  run.conditions.paths["data"] = "nccl P2P/CUMEM";
                },
                "over nccl P2P/CUMEM take 75.0 ms, predicted 30.0 ms"},
        Planted{"ExpertsOfRank0", "experts",
                [](Trial& run) {
                  stretch(run.group("grouped_linear model.layers.*.mlp.experts.up"), 1.6);
                  run.conditions.own_experts = run.conditions.expert_imbalance = 1.6;
                  run.conditions.expert_load = 3;
                },
                "rank 0's experts 1.60 times their share"},
        Planted{"ExpertsOfAnotherRank", "experts",
                [](Trial& run) {
                  InstructionGroup& collective = run.group("reduce_scatter gradients");
                  collective.seconds += 0.01;
                  collective.own_seconds += 0.01;
                  run.conditions.rank_work = {0.08, 0.09};
                  run.conditions.own_experts = 0.99;
                  run.conditions.expert_imbalance = 1.5;
                },
                "its experts have 1.50 times their share"},
        Planted{"HostLink", "host-link", [](Trial& run) { run.slow("copies", 2); }, "instead of 50.0 GB/s"},
        Planted{"Host", "host", [](Trial& run) { run.step.parts["gaps"] = 0.02; }, "20.0 ms of a timed step nothing ran"},
        Planted{"HostThatDelaysShortInstructions", "host",
                [](Trial& run) {
                  for (InstructionGroup& group : run.step.groups) group.count = 1000;
                  run.slow("attention", 6);
                  run.slow("products", 2);
                  run.step.parts["gaps"] = 0.02;
                },
                "the times of short instructions contain its delays"},
        Planted{"Data", "data", [](Trial& run) { run.conditions.data_seconds = 0.05; }, "rank 0 waits 50.0 ms for the data"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Residual, SumsToTheDifferenceWhateverWasMeasured) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> factor(0.5, 2);
  for (int n = 0; n < 500; ++n) {
    Trial run = as_predicted();
    for (InstructionGroup& group : run.step.groups) stretch(group, factor(random));
    run.step.parts["gaps"] = 0.01 * factor(random);
    run.step.parts["untimed"] = 0.01 * (factor(random) - 1.2);
    run.conditions.data_seconds = 0.01 * factor(random);
    run.conditions.rank_work = {0.1 * factor(random), 0.1 * factor(random), 0.1 * factor(random)};
    run.conditions.timed_clock = 1.7e9 * factor(random);
    run.conditions.expert_imbalance = factor(random);
    run.conditions.own_experts = factor(random);
    const Residual residual = run.residual();
    EXPECT_NEAR(sum_of(residual), residual.measured - residual.predicted, 1e-9);
    for (const ResidualTerm& term : residual.terms)
      EXPECT_TRUE(term.cause.empty() || causes().contains(term.cause)) << term.cause;
  }
}

TEST(Residual, SaysWhyThereIsNone) {
  Trial run = as_predicted();
  run.step.simulated_groups = false;
  EXPECT_THAT(run.residual().problem, HasSubstr("Run it again with this version"));
  run.step.source = "simulated";
  EXPECT_THAT(run.residual().problem, HasSubstr("--profile"));
  EXPECT_EQ(residual_line(run.residual()), "");
  EXPECT_TRUE(json_of(run.residual()).contains("problem"));
}

TEST(Training, SaysAtItsEndHowFarFromAKnownPredictionItWas) {
  TemporaryFolder folder;
  const auto trained = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--model=llama-tiny", "--dataset=synthetic",
                                        "--sequence=32", "--batch=1", "--precision=bf16", "--device=cpu", "--machine=h100",
                                        "--steps=12", "--archive=" + (folder / "run.h5")});
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr(" for h100, measured "));
  EXPECT_THAT(trained.output, HasSubstr("; consist residual " + (folder / "run.h5") + " says more\n"));
}

TEST(ResidualCommand, ReadsARun) {
  TemporaryFolder folder;
  const auto trained =
      test::train_tiny({"--strategy", "ddp", "--device", "cpu", "--steps", "12", "--archive", folder / "run.h5"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, Not(HasSubstr("predicted"))) << "how far such predictions are off is not known";
  const auto result = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "residual", folder / "run.h5", "--json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const Json json = Json::parse(result.output);
  EXPECT_EQ(json.at("machine"), "cpu");
  double sum = 0;
  for (const Json& term : json.at("terms")) sum += term.at("seconds").get<double>();
  const double difference = json.at("measured_seconds").get<double>() - json.at("predicted_seconds").get<double>();
  EXPECT_NEAR(sum, difference, 1e-6 + 0.001 * std::abs(difference));
  EXPECT_GT(json.at("predicted_seconds").get<double>(), 0);
  const auto text = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "residual", folder / "run.h5"});
  EXPECT_THAT(text.output, HasSubstr("Predicted for cpu"));
  EXPECT_EQ(test::run_child({CONSIST_BINARY_DIR "/bin/consist", "residual", folder / "none.h5"}).status, 2);
}

}  // namespace
}  // namespace consist::launch
