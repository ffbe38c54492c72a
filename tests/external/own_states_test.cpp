// Optimizers, built as those of a third party, whose states are no copies of the parameter: sums of rows and columns (adafactor),
// 8-bit numbers with scales of blocks (adamw-8bit), and weights that evaluations read instead (schedule-free). They give
// PyTorch's losses, and each layout gives those of one rank or refuses.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/interpreter/step_run.h"
#include "core/plan/plan.h"
#include "core/prove/one_rank.h"
#include "tests/external/installed.h"
#include "tests/interpreter/wrong_gradient.h"
#include "tests/parity/optimizer_losses.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using test::operator+;
using test::Words;

struct OwnOptimizer {
  const char *folder, *name;
  Words options;
};
const OwnOptimizer own_optimizers[] = {{"in-tree", "my-adafactor", {}},
                                       {"in-tree", "my-adamw-8bit", {"--my-adamw-8bit.block", "4"}},
                                       {"schedule-free", "my-schedule-free", {}}};

class OwnStates : public test::Installed {
 protected:
  static Words words_of(const OwnOptimizer& optimizer) {
    return Words{"--plugin", built(optimizer.folder), "--optimizer", optimizer.name, "--device", "cpu"} + optimizer.options;
  }
  static Words run_of(const OwnOptimizer& optimizer, int steps) {
    return words_of(optimizer) + Words{"--model",
                                       model(),
                                       "--dataset",
                                       "synthetic",
                                       "--precision",
                                       "fp32",
                                       "--global-batch",
                                       "8",
                                       "--sequence",
                                       "32",
                                       "--steps",
                                       std::to_string(steps),
                                       "--learning-rate",
                                       "3e-3",
                                       "--evaluate-every",
                                       std::to_string(steps),
                                       "--evaluate-sequences",
                                       "8"};
  }
  static std::string model() { return CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied"; }

  struct Losses {
    std::vector<double> training;
    double evaluation = 0;
  };
  static Losses train(const OwnOptimizer& optimizer, int steps, const Words& more) {
    const std::string archive = *folder_ / "own_states.h5";
    consist(Words{"train", "--archive", archive, "--overwrite"} + run_of(optimizer, steps) + more);
    const ArchiveReader reader(archive);
    return {reader.column("loss"), reader.evaluations().back().loss};
  }
  static void expect_like(const Losses& found, const Losses& expected) {
    ASSERT_FALSE(found.training.empty());
    ASSERT_LE(found.training.size(), expected.training.size());
    const std::size_t skipped = expected.training.size() - found.training.size();  // of a run that resumes
    for (std::size_t s = 0; s < found.training.size(); ++s)
      EXPECT_NEAR(found.training[s] / expected.training[s + skipped], 1, 1e-5) << "loss of step " << s + skipped + 1;
    EXPECT_NEAR(found.evaluation / expected.evaluation, 1, 1e-5);
  }
  /// Returns the output of a command that must fail.
  static std::string refused(Words words) {
    words.insert(words.begin(),
                 {"env", "-u", "CONSIST_PLUGIN_PATH", "-u", "LD_LIBRARY_PATH", "--chdir=/", prefix_ + "/bin/consist"});
    const test::ChildResult result = test::run_child(words);
    EXPECT_NE(result.status, 0) << result.output;
    return result.output;
  }
  static std::string ids_in(const std::string& output) {
    std::smatch found;
    if (std::regex_search(output, found, std::regex("\n([0-9]+( [0-9]+)+)\n"))) return found[1];
    ADD_FAILURE() << "no ids in " << output;
    return "";
  }
  static double loss_in(const std::string& output) {
    std::smatch found;
    if (std::regex_search(output, found, std::regex("loss ([0-9.]+)  perplexity"))) return std::stod(found[1]);
    ADD_FAILURE() << "no loss in " << output;
    return 0;
  }
};

TEST_F(OwnStates, LossesAreThoseOfPyTorch) {
  PluginHost host({built("in-tree"), built("schedule-free")});
  const test::Reference reference = test::read_reference("llama-untied");
  const nlohmann::json runs = nlohmann::json::parse(std::ifstream(reference.folder + "/own_optimizers.json")).at("runs");
  EXPECT_EQ(runs.size(), 6u);
  for (const nlohmann::json& run : runs) {
    SCOPED_TRACE(run.at("optimizer").get<std::string>() + " " + run.at("options").dump());
    test::expect_losses(test::losses_of(reference, run, host), run);
  }
}

TEST_F(OwnStates, EveryLayoutTrainsAsOneRankDoes) {
  for (const OwnOptimizer& optimizer : own_optimizers) {
    const Losses expected = train(optimizer, 5, {});
    EXPECT_EQ(expected.training.size(), 5u);
    for (const char* strategy : {"zero3-offload=2", "tp-sp=2", "pipeline=2"}) {
      SCOPED_TRACE(std::string(optimizer.name) + " " + strategy);
      expect_like(train(optimizer, 5, {"--ranks", "2", "--strategy", strategy}), expected);
    }
    SCOPED_TRACE(std::string(optimizer.name) + " tp-sp=2+zero2=2");
    expect_like(train(optimizer, 5, {"--ranks", "4", "--strategy", "tp-sp=2+zero2=2"}), expected);
  }
}

TEST_F(OwnStates, AnotherLayoutResumesThem) {
  for (const OwnOptimizer& optimizer : own_optimizers) {
    const Losses expected = train(optimizer, 6, {});
    const std::string saved = *folder_ / (std::string(optimizer.name) + "-checkpoint");
    train(optimizer, 3, {"--ranks", "2", "--strategy", "zero3-offload=2", "--checkpoint", saved});
    int copies = 0;
    for (const Words& layout :
         {Words{}, Words{"--ranks", "2", "--strategy", "tp-sp=2"}, Words{"--ranks", "2", "--strategy", "pipeline=2"}}) {
      SCOPED_TRACE(std::string(optimizer.name) + " " + (layout.empty() ? "one rank" : layout.back()));
      const std::string copy = saved + std::to_string(++copies);
      std::filesystem::copy(saved, copy, std::filesystem::copy_options::recursive);
      expect_like(train(optimizer, 6, layout + Words{"--checkpoint", copy, "--resume"}), expected);
    }
  }
}

// What a checkpoint and an export hold is what the run itself has evaluated.
TEST_F(OwnStates, EvaluationsAndExportsReadTheOptimizersWeights) {
  const OwnOptimizer& schedule_free = own_optimizers[2];
  const std::string saved = *folder_ / "evaluated", exported = *folder_ / "exported";
  const Losses run =
      train(schedule_free, 5, {"--ranks", "2", "--strategy", "zero3-offload=2", "--checkpoint", saved, "--export", exported});
  const Words sequences{"--evaluate-sequences", "8"},
      data{"--dataset", "synthetic", "--sequence", "32", "--batch", "8", "--precision", "fp32"};
  const Words plugin{"--plugin", built("schedule-free"), "--device", "cpu"};
  EXPECT_NEAR(loss_in(consist(Words{"evaluate", "--checkpoint", saved} + plugin + sequences)) / run.evaluation, 1, 1e-5);
  EXPECT_NEAR(loss_in(consist(Words{"evaluate", "--model", exported, "--device", "cpu"} + data + sequences)) / run.evaluation, 1,
              1e-5);
  const double of_training =
      loss_in(consist(Words{"evaluate", "--checkpoint", saved, "--optimizer", "adamw"} + plugin + sequences));
  EXPECT_GT(std::abs(of_training / run.evaluation - 1), 1e-3) << "the weights of training are no others";
  EXPECT_THAT(refused(Words{"evaluate", "--model", exported, "--optimizer", "my-schedule-free"} + plugin + data + sequences),
              HasSubstr(".ahead' is read beside the weights"));
  const Words prompt{"--prompt-ids", "1,2,3", "--max-tokens", "8", "--temperature", "0"};
  EXPECT_EQ(ids_in(consist(Words{"generate", "--checkpoint", saved} + plugin + prompt)),
            ids_in(consist(Words{"generate", "--model", exported, "--device", "cpu", "--precision", "fp32"} + prompt)));
}

// By a rule some parameters have them: schedule-free ones are evaluated elsewhere, the others are not.
TEST_F(OwnStates, ARuleGivesThemToSomeParameters) {
  const OwnOptimizer by_rule{"schedule-free", "adamw", {"--optimizer-rules", "*mlp*:optimizer=my-schedule-free,lr-factor=2"}};
  const std::string saved = *folder_ / "by-rule", exported = *folder_ / "by-rule-exported";
  const Losses one = train(by_rule, 5, {}), other = train(own_optimizers[2], 5, {});
  EXPECT_NE(one.training, other.training);
  expect_like(train(by_rule, 5, {"--ranks", "2", "--strategy", "zero3-offload=2", "--checkpoint", saved, "--export", exported}),
              one);
  expect_like(train(by_rule, 5, {"--ranks", "2", "--strategy", "pipeline=2"}), one);
  const Words data{"--device", "cpu", "--evaluate-sequences", "8"};
  EXPECT_NEAR(
      loss_in(consist(Words{"evaluate", "--checkpoint", saved, "--plugin", built("schedule-free")} + data)) / one.evaluation, 1,
      1e-5);
  EXPECT_NEAR(loss_in(consist(Words{"evaluate", "--model", exported, "--dataset", "synthetic", "--sequence", "32", "--batch", "8",
                                    "--precision", "fp32"} +
                              data)) /
                  one.evaluation,
              1, 1e-5);
}

TEST_F(OwnStates, RulesAreProven) {
  for (const char* strategy : {"tp-sp=2+zero2=2", "pipeline=2+zero2=2"}) {
    EXPECT_THAT(consist({"prove", "--model", model(), "--precision", "fp32", "--batch", "2", "--sequence", "32", "--ranks", "4",
                         "--strategy", strategy, "--optimizer-rules",
                         "*.layers.*_proj.weight:optimizer=muon,lr-factor=3;*norm*:weight-decay=0.1;lm_head*:optimizer=sgd"}),
                HasSubstr("equal: this layout trains as one rank does"))
        << strategy;
  }
}

TEST_F(OwnStates, OffloadedOnesAreStreamedOrRefused) {
  const Words offload{"--ranks", "2", "--strategy", "zero2", "--zero2.offload-optimizer.device", "cpu"};
  for (const OwnOptimizer& optimizer : {own_optimizers[1], own_optimizers[2]}) {
    SCOPED_TRACE(optimizer.name);
    expect_like(train(optimizer, 5, offload + Words{"--zero2.sub-group-size", "3000"}), train(optimizer, 5, {}));
  }
  EXPECT_THAT(
      refused(Words{"train"} + run_of(own_optimizers[0], 5) + offload),
      AllOf(HasSubstr("--zero2"), HasSubstr("needs more than single elements"), HasSubstr("keep the optimizer on the device")));
}

TEST_F(OwnStates, ABlockThatRanksDivideIsRefused) {
  const OwnOptimizer blocks_of_8{"in-tree", "my-adamw-8bit", {"--my-adamw-8bit.block", "8"}};
  EXPECT_THAT(refused(Words{"train"} + run_of(blocks_of_8, 5) + Words{"--ranks", "2", "--strategy", "tp-sp=2"}),
              AllOf(HasSubstr("optimizer 'my-adamw-8bit' with --strategy tp-sp"), HasSubstr("'scales1' has one value for 8"),
                    HasSubstr("'model.layers.0.mlp.down_proj.weight' [32,56]"), HasSubstr("end within such a block")));
}

// A plan has the states in their own shapes and dtypes.
TEST_F(OwnStates, PlansCountTheirBytes) {
  const auto state_bytes = [&](const Words& optimizer) -> double {
    const Words words{"explain", "--model",     model(), "--batch",   "1",     "--sequence",
                      "32",      "--precision", "fp32",  "--summary", "--json"};
    const auto json = nlohmann::json::parse(consist(words + optimizer));
    for (const auto& share : json.at("stages").at(0).at("memory_at_peak")) {
      if (share.at("role") == "optimizer_state") return share.at("bytes");
    }
    return 0;
  };
  constexpr double alignment = 1.05;                      // of each tensor, at most
  const double adamw = state_bytes({"--device", "cpu"});  // two times 32 bits
  EXPECT_LT(state_bytes(words_of(own_optimizers[0])), adamw * 0.06) << "rows and columns";
  EXPECT_LT(state_bytes(words_of(own_optimizers[1])), adamw * 0.5 * alignment) << "twice 8 bits, and a scale for each 4 elements";
  EXPECT_GT(state_bytes(words_of(own_optimizers[1])), adamw * 0.5);
  EXPECT_GT(state_bytes(words_of(own_optimizers[2])), adamw) << "as many, and scalars";
  EXPECT_LT(state_bytes(words_of(own_optimizers[2])), adamw * 1.1);
}

TEST_F(OwnStates, TheyConformAndAreProven) {
  for (const OwnOptimizer& optimizer : own_optimizers) {
    Words check{"check", built(optimizer.folder) + "optimizer-" + optimizer.name + ".so", "--plugin", built(optimizer.folder)};
    if (!optimizer.options.empty()) check = check + Words{"--option", "block=4"};  // which divides the parts of its small models
    EXPECT_THAT(consist(check), HasSubstr(std::string("optimizer '") + optimizer.name + "' conforms"));
  }
  for (OwnOptimizer optimizer : own_optimizers) {
    if (!optimizer.options.empty()) optimizer.options.back() = "2";  // the small model's matrices are smaller
    EXPECT_THAT(consist(Words{"prove", "--model", model(), "--precision", "fp32", "--batch", "2", "--sequence", "32", "--ranks",
                              "4", "--strategy", "tp-sp=2+zero2=2"} +
                        words_of(optimizer)),
                AllOf(HasSubstr("equal: this layout trains as one rank does"), ::testing::Not(HasSubstr(" 0 gradients"))))
        << optimizer.name;
  }
}

// What a gradient is, no state of the optimizer has to tell.
TEST_F(OwnStates, AWrongGradientIsNamedWhicheverOptimizerGetsIt) {
  const std::string parameter = "model.layers.1.self_attn.o_proj.weight";
  std::vector<OwnOptimizer> all(std::begin(own_optimizers), std::end(own_optimizers));
  for (const char* name : {"my-lion", "my-muon"}) all.push_back({"lion-and-muon", name, {}});
  PluginHost host({built("in-tree"), built("schedule-free"), built("lion-and-muon")});
  for (const OwnOptimizer& optimizer : all) {
    SCOPED_TRACE(optimizer.name);
    RunConfig config;
    config.model = model();
    config.device = "cpu";
    config.dataset = "synthetic";
    config.sequence = 8;
    config.global_batch = 8;
    config.batch = config.accumulation = config.ranks = 2;
    config.strategies = parse_strategies("ddp=2");
    config.evaluate_every = 1;
    config.optimizer_plugin = optimizer.name;
    if (!optimizer.options.empty()) config.plugin_options[optimizer.name]["block"] = optimizer.options.back();
    const auto programs = interpreter::compile(plan_run(config, host), 256);
    RunConfig alone = prove::alone(*programs);
    alone.evaluate_every = 1;
    const auto one = interpreter::compile(plan_run(alone, host), 0);
    const interpreter::Outcome expected = interpreter::run(*one, {});
    const auto differences = [&] {
      std::vector<std::string> names;
      for (const prove::Difference& d : prove::differences(interpreter::run(*programs, {}), expected, prove::rounded_tolerance))
        names.push_back(d.what);
      return names;
    };
    EXPECT_TRUE(expected.values.contains(parameter + ".gradient"));
    EXPECT_THAT(differences(), ::testing::IsEmpty());
    EXPECT_EQ(test::overwrite_accumulated_gradient(*programs, parameter), 2);
    EXPECT_THAT(differences(), ::testing::Contains(parameter + ".gradient"));
  }
}

}  // namespace
}  // namespace consist
