// Every strategy makes legal programs, the same ones each time, and trains as one rank does.
//
// Runs against every strategy that is found (see PluginHost), those of CONSIST_PLUGIN_PATH too. CONSIST_CONFORMANCE_STRATEGIES
// names others or gives options: "ddp:bucket-size=1Mi,ddp-plain". CONSIST_CONFORMANCE_BRIEF=1 trains fewer layouts in processes,
// for strategies whose layouts other tests cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "consist/error.h"
#include "core/compile/compile.h"
#include "core/cost/collective_stream.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/conformance/candidates.h"
#include "tests/conformance/places.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using testing::Candidate;

const std::string untied_llama = testing::tiny_model("llama-untied");
const std::string tied_qwen = testing::tiny_model("qwen3-tied");
const std::string mixture = testing::tiny_model("qwen3-moe");

class StrategyConformance : public ::testing::TestWithParam<Candidate> {
 protected:
  AxisRequest axis() { return host_.make<ParallelStrategy>("strategy", GetParam().name, GetParam().options)->axis(); }

  /// As on the command line, over all of `ranks`: split over as many axes as the strategy needs, evenly, the innermost first.
  std::string use(int ranks) {
    const AxisRequest request = axis();
    if (request.least_axes == 1) return GetParam().name + (request.takes_rest ? "" : "=" + std::to_string(ranks));
    std::vector<int> sizes(static_cast<std::size_t>(request.least_axes), 1);
    for (std::size_t k = sizes.size(); ranks % 2 == 0; ranks /= 2) sizes[k = (k == 0 ? sizes.size() : k) - 1] *= 2;
    sizes.back() *= ranks;
    std::string text = GetParam().name;
    for (std::size_t k = 0; k < sizes.size(); ++k) text += (k == 0 ? "=" : "x") + std::to_string(sizes[k]);
    return text;
  }

  RunConfig config(const std::string& model, const std::string& precision, int ranks, int accumulation) {
    RunConfig config;
    config.model = model;
    config.precision = precision;
    config.strategies = parse_strategies(use(ranks));
    config.plugin_options[GetParam().name] = GetParam().options;
    config.ranks = ranks;
    config.accumulation = accumulation;
    config.batch = 4;
    config.sequence = 32;
    return config;
  }

  Program step_of(const RunConfig& config, int rank = 0) { return plan_run(config, host_).step(rank); }

  PluginHost host_{std::vector<std::string>{}};
};

TEST_P(StrategyConformance, AxisIsNamed) {
  EXPECT_FALSE(axis().name.empty());
}

// compile_step() verifies what the strategy left. A strategy may refuse a model or a number of ranks, with UsageError, but not
// all of them.
TEST_P(StrategyConformance, ProgramsAreLegalAndTheSameEachTime) {
  int made = 0;
  for (const std::string& model : {untied_llama, tied_qwen, mixture, std::string("llama-tiny")}) {
    for (const char* precision : {"fp32", "bf16", "fp8"}) {
      for (const int ranks : {1, 2, 4}) {
        for (const int accumulation : {1, 3}) {
          SCOPED_TRACE(model + " " + precision + " on " + std::to_string(ranks) + " ranks x accumulation " +
                       std::to_string(accumulation));
          RunConfig run = config(model, precision, ranks, accumulation);
          run.evaluate_every = 1;
          try {
            const Plan plan = plan_run(run, host_);
            const Program program = plan.step(0);
            ++made;
            EXPECT_EQ(to_text(program), to_text(step_of(run)));
            EXPECT_EQ(program.micro_batches, accumulation);
            std::vector<Program> of_ranks;
            std::vector<const Program*> pointers;
            for (int rank = 0; rank < ranks; ++rank) of_ranks.push_back(plan.step(rank));
            for (const Program& of_rank : of_ranks) pointers.push_back(&of_rank);
            EXPECT_NO_THROW(verify_collectives(pointers));
            for (int rank = 0; rank < ranks; ++rank) EXPECT_NO_THROW(verify(plan.evaluation(rank).value()));
          } catch (const UsageError& refusal) {
            EXPECT_GT(ranks, 1) << "one rank is never refused: " << refusal.what();
          }
        }
      }
    }
  }
  EXPECT_GT(made, 24) << "nothing but one rank is served";
}

// A frozen parameter has no gradient. A strategy may refuse that, with UsageError.
TEST_P(StrategyConformance, FrozenParametersAreLeftAlone) {
  for (const std::string& model : {untied_llama, mixture}) {
    SCOPED_TRACE(model);
    RunConfig run = config(model, "fp32", 2, 2);
    run.freeze.frozen = {"*norm*", "*o_proj*"};
    try {
      for (const Parameter& parameter : step_of(run).parameters) {
        if (parameter.name.find("norm") != parameter.name.npos) EXPECT_EQ(parameter.gradient, no_tensor) << parameter.name;
      }
    } catch (const UsageError&) {
      continue;  // as ep refuses a model without experts
    }
  }
}

TEST_P(StrategyConformance, WhatItInsertsIsTagged) {
  int made = 0;
  for (const std::string& model : {untied_llama, mixture}) {
    Program program;
    try {
      program = step_of(config(model, "fp32", 2, 2));
    } catch (const UsageError&) {
      continue;  // as ep refuses a model without experts
    }
    ++made;
    for (const Instruction& instruction : program.instructions) {
      if (!instruction.op->is_collective()) continue;
      EXPECT_STRNE(instruction.tag.inserted_by, "") << instruction.op->name() << " of " << model;
    }
  }
  EXPECT_GT(made, 0);
}

/// The figures that the steps of a run reported.
struct Curves {
  std::vector<double> loss, grad_norm;
};

/// A run in processes of their own.
Curves train(std::vector<std::string> configuration, const std::string& model, const std::string& precision,
             const std::string& archive) {
  configuration.insert(configuration.begin(),
                       {"--model=" + model, "--precision=" + precision, "--sequence=16", "--steps=10", "--global-batch=16"});
  const ArchiveReader run = test::train_from_scratch(archive, configuration, testing::consist_program());
  return {run.column("loss"), run.column("grad_norm")};
}

/// The run of one rank. Kept for all strategies.
const Curves& run_of_one_rank(const std::string& model, const std::string& precision, const std::string& archive) {
  static std::map<std::pair<std::string, std::string>, Curves> known;
  auto [found, added] = known.try_emplace({model, precision});
  if (added) found->second = train({"--strategy=ddp", "--ranks=1"}, model, precision, archive);
  return found->second;
}

struct Layout {
  std::string model, precision;
  int ranks, accumulation;
};

std::vector<Layout> layouts() {
  const char* const brief = std::getenv("CONSIST_CONFORMANCE_BRIEF");
  if (brief != nullptr && std::string_view(brief) == "1")
    return {{untied_llama, "fp32", 4, 1}, {tied_qwen, "bf16", 2, 2}, {mixture, "fp32", 2, 1}};
  std::vector<Layout> all;
  for (const std::string& model : {untied_llama, tied_qwen, mixture}) {
    for (const char* precision : {"fp32", "bf16", "fp8"}) {
      // Where sums of another order are rounded, a token near the border between two experts goes to the other one. A router's
      // balance loss is that of each micro-batch.
      if (model == mixture && std::string_view(precision) != "fp32") continue;
      for (const int ranks : {2, 4}) {
        all.push_back({model, precision, ranks, 1});
        if (model != mixture) all.push_back({model, precision, ranks, 2});
      }
    }
  }
  return all;
}

// An optimizer such as AdamW hides a factor of the gradients from the losses; their norm shows it.
TEST_P(StrategyConformance, LossesAndNormsOfGradientsAreThoseOfOneRank) {
  TemporaryFolder folder;
  for (const auto& [model, precision, ranks, accumulation] : layouts()) {
    SCOPED_TRACE(model + " " + precision + " on " + std::to_string(ranks) + " ranks x accumulation " +
                 std::to_string(accumulation));
    const Curves& expected = run_of_one_rank(model, precision, folder / "one.h5");
    ASSERT_EQ(expected.loss.size(), 10u);
    ASSERT_LT(expected.loss.back(), expected.loss.front()) << "nothing was learnt, so that equal losses would say little";
    try {
      step_of(config(model, precision, ranks, accumulation));
    } catch (const UsageError&) {
      continue;  // refused; the test above sees to it that not everything is
    }
    std::vector<std::string> words{"--strategy=" + use(ranks), "--ranks=" + std::to_string(ranks),
                                   "--accumulation=" + std::to_string(accumulation)};
    for (const auto& [option, value] : GetParam().options) words.push_back("--" + GetParam().name + "." + option + "=" + value);
    const Curves found = train(words, model, precision, folder / "several.h5");
    ASSERT_EQ(found.loss.size(), expected.loss.size());
    const test::LayoutTolerance& tolerance = test::layout_tolerance(precision);
    for (std::size_t s = 0; s < found.loss.size(); ++s) {
      EXPECT_NEAR(found.loss[s] / expected.loss[s], 1, tolerance.loss) << "loss of step " << s + 1;
      EXPECT_NEAR(found.grad_norm[s] / expected.grad_norm[s], 1, tolerance.grad_norm)
          << "norm of the gradients of step " << s + 1;
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, StrategyConformance,
                         ::testing::ValuesIn(testing::candidates("strategy", "CONSIST_CONFORMANCE_STRATEGIES")),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name + std::to_string(info.index);
                         });

}  // namespace
}  // namespace consist
