// Losses of a third party (tests/external/losses): a z-loss, distillation from a frozen teacher and preferences beside a
// frozen reference give PyTorch's losses, and each layout gives those of one rank. None has an op or a kernel of its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/weights/model_weights.h"
#include "tests/external/installed.h"

namespace consist {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using test::operator+;
using test::Words;

class Losses : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    reference_ = json::parse(std::ifstream(CONSIST_SOURCE_DIR "/tests/golden/losses.json"));
    std::ofstream(text()) << json{{"ids", reference_.at("ids")}, {"mask", reference_.at("mask")}} << "\n";
    std::ofstream pairs(pairs_file());
    for (const json& pair : reference_.at("pairs")) pairs << pair << "\n";
  }
  static std::string text() { return *folder_ / "losses.text"; }
  static std::string pairs_file() { return *folder_ / "losses.pairs"; }
  static std::string golden(const std::string& model) { return CONSIST_SOURCE_DIR "/tests/golden/hf/" + model; }

  /// The words that name model, data and loss of a run of the reference.
  static Words parts_of(const json& run) {
    const std::string loss = run.at("loss");
    Words words{"--plugin", built("losses"),
                "--plugin", built("in-tree"),
                "--plugin", built("masked-ids"),
                "--model",  golden(reference_.at("model")),
                "--loss",   loss};
    for (const auto& [name, value] : run.at("options").items())
      words = words + Words{"--" + loss + "." + name, value.get<std::string>()};
    if (loss == "my-distillation") words = words + Words{"--my-distillation.teacher", golden(reference_.at("teacher"))};
    if (loss == "my-dpo") return words + Words{"--dataset", "my-preferences", "--my-preferences.file", pairs_file()};
    // With this seed the rows are in the order of the file.
    const std::size_t rows = reference_.at("ids").size() / 32;
    return words + Words{"--dataset", "masked-ids", "--masked-ids.file", text(), "--masked-ids.eval-every",
                         "0",         "--seed",     std::to_string(rows)};
  }
  static Words run_of(const json& run) {
    return parts_of(run) + Words{"--precision",     "fp32",
                                 "--global-batch",  std::to_string(reference_.at("rows").get<int>()),
                                 "--sequence",      "32",
                                 "--steps",         "5",
                                 "--learning-rate", reference_.at("learning_rate").dump(),
                                 "--weight-decay",  reference_.at("weight_decay").dump(),
                                 "--clip",          reference_.at("max_norm").dump()};
  }
  static void expect_reference(const json& run, const Words& more) {
    const std::vector<double> expected = run.at("losses"), found = losses(run_of(run) + more);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) EXPECT_NEAR(found[s] / expected[s], 1, 1e-5) << "loss of step " << s + 1;
    const ArchiveReader archive(*folder_ / "losses.h5");
    EXPECT_EQ(archive.unit("loss"), run.at("loss") == "my-dpo" ? "nat/pair" : "nat/token");
    for (const auto& [name, values] : run.at("metrics").items()) expect_metric(archive, name, values);
  }
  static void expect_metric(const ArchiveReader& archive, const std::string& name, const std::vector<double>& expected) {
    const std::vector<double> found = archive.column(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (std::size_t s = 0; s < found.size(); ++s)
      EXPECT_NEAR(found[s], expected[s], 1e-5 * std::max(1.0, std::abs(expected[s]))) << name << " of step " << s + 1;
  }
  static const json& run_called(const std::string& loss) {
    for (const json& run : reference_.at("runs")) {
      if (run.at("loss") == loss) return run;
    }
    throw std::runtime_error("no run of " + loss);
  }

  static inline json reference_;
};

TEST_F(Losses, LossesAreThoseOfPyTorchInEveryLayout) {
  const std::vector<Words> layouts{{},
                                   {"--accumulation", "2", "--batch", "2"},
                                   {"--ranks", "2", "--strategy", "tp-sp=2"},
                                   {"--ranks", "2", "--strategy", "zero3-offload=2"},
                                   {"--ranks", "2", "--strategy", "pipeline=2", "--accumulation", "2"},
                                   {"--ranks", "2", "--strategy", "cp=2"}};
  for (const json& run : reference_.at("runs")) {
    for (const Words& layout : layouts) {
      SCOPED_TRACE(run.at("loss").get<std::string>() + " " + (layout.empty() ? "one rank" : layout.back() + layout[1]));
      expect_reference(run, layout);
    }
  }
}

TEST_F(Losses, LayoutsAreProven) {
  for (const char* loss : {"my-z-loss", "my-distillation", "my-dpo"}) {
    for (const char* strategy : {"tp-sp=2", "pipeline=2", "zero2=2"}) {
      SCOPED_TRACE(std::string(loss) + " " + strategy);
      EXPECT_THAT(
          consist(Words{"prove"} + parts_of(run_called(loss)) +
                  Words{"--precision", "fp32", "--batch", "2", "--sequence", "32", "--ranks", "2", "--strategy", strategy}),
          HasSubstr("equal: this layout trains as one rank does"));
    }
  }
}

// A run resumes from its checkpoint alone, which is evaluated and writes text; another loss does not go on from it, and
// exports have the trained model.
TEST_F(Losses, CheckpointsHoldFrozenModelsAndExportsDoNot) {
  for (const char* loss : {"my-distillation", "my-dpo"}) {
    SCOPED_TRACE(loss);
    const json& run = run_called(loss);
    const std::string checkpoint = *folder_ / (std::string(loss) + ".checkpoint"),
                      exported = *folder_ / (std::string(loss) + ".exported");
    const Words saves{"--checkpoint", checkpoint};
    losses(run_of(run) + saves + Words{"--checkpoint-every", "3"});
    std::filesystem::remove_all(checkpoint + "/step-00000005");
    const std::vector<double> expected = run.at("losses"),
                              resumed = losses(run_of(run) + saves + Words{"--resume", "--export", exported});
    ASSERT_EQ(resumed.size(), 2U);
    EXPECT_NEAR(resumed.back() / expected.back(), 1, 1e-5);
    const ModelWeights weights(exported);
    for (const std::string& name : weights.names()) EXPECT_TRUE(name.starts_with("model.")) << name;
    EXPECT_THAT(consist({"generate", "--model", exported, "--device", "cpu", "--prompt-ids", "1,2,3", "--max-tokens", "4"}),
                HasSubstr("4 tokens"));
    EXPECT_THAT(consist({"generate", "--plugin", built("losses"), "--plugin", built("in-tree"), "--plugin", built("masked-ids"),
                         "--model", golden(reference_.at("model")), "--checkpoint", checkpoint, "--device", "cpu", "--prompt-ids",
                         "1,2,3", "--max-tokens", "4"}),
                HasSubstr("4 tokens"));
  }
  const Words dpo = parts_of(run_called("my-dpo")) + Words{"--precision", "fp32", "--device", "cpu", "--sequence", "32"};
  const std::string checkpoint = *folder_ / "my-dpo.checkpoint";
  EXPECT_THAT(consist(Words{"evaluate"} + dpo + Words{"--checkpoint", checkpoint, "--batch", "3"}),
              ::testing::AllOf(HasSubstr(" nat/pair  "), HasSubstr("over 640 tokens of 20 sequences")));
  Words other{prefix_ + "/bin/consist", "train"};
  other = other + dpo + Words{"--checkpoint", checkpoint, "--resume", "--steps", "7", "--global-batch", "4"};
  std::replace(other.begin(), other.end(), std::string("0.5"), std::string("0.2"));  // beta
  const test::ChildResult refused = test::run_child(other);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("was trained with --loss my-dpo --my-dpo.beta 0.5, this run asks for"));
}

// Archives, tables, evaluations and the screen of a run have what the loss reports.
TEST_F(Losses, MetricsAreInAllThatReports) {
  const json& run = run_called("my-dpo");
  const std::string table = *folder_ / "metrics.csv", result = *folder_ / "metrics.json", archive = *folder_ / "losses.h5",
                    checkpoint = *folder_ / "metrics.checkpoint";
  losses(run_of(run) + Words{"--observe", "csv", "--csv.file", table, "--evaluate-every", "5", "--evaluate-sequences", "6",
                             "--checkpoint", checkpoint});
  const std::vector<double> margins = run.at("metrics").at("reward_margin");
  std::ifstream rows(table);
  std::string line, last;
  std::getline(rows, line);
  EXPECT_THAT(line, ::testing::EndsWith(",preference_accuracy,reward_margin"));
  while (std::getline(rows, line)) last = line;
  EXPECT_NEAR(std::stod(last.substr(last.rfind(',') + 1)), margins.back(), 1e-5);
  EXPECT_EQ(ArchiveReader(archive).unit("reward_margin"), "nat");
  EXPECT_THAT(consist({"show", archive}), HasSubstr("metrics   preference_accuracy 0.5  reward_margin -0.2216"));
  // 6 sequences in batches of 4: the last two of the second batch are padding, and no pairs.
  const std::vector<ArchivedEvaluation> evaluations = ArchiveReader(archive).evaluations();
  ASSERT_EQ(evaluations.size(), 1U);
  ASSERT_EQ(evaluations[0].metrics.size(), 2U);
  EXPECT_NEAR(std::remainder(6 * evaluations[0].metrics[0].value, 1), 0, 1e-6);
  // The loss and all else is the run's.
  const Words weights{"evaluate", "--plugin", built("losses"),        "--plugin", built("in-tree"),
                      "--device", "cpu",      "--evaluate-sequences", "6",        "--overwrite",
                      "--json",   result};
  const std::string said = consist(weights + Words{"--checkpoint", checkpoint, "--batch", "1"});
  EXPECT_THAT(said, HasSubstr("  preference_accuracy "));
  EXPECT_THAT(said, Not(HasSubstr("perplexity")));
  const json written = json::parse(std::ifstream(result));
  EXPECT_NEAR(written.at("loss").get<double>(), evaluations[0].loss, 1e-5);
  EXPECT_TRUE(written.at("perplexity").is_null());
  for (const OwnMetricValue& metric : evaluations[0].metrics)
    EXPECT_NEAR(written.at("metrics").at(metric.name).get<double>(), metric.value, 1e-5) << metric.name;
  // A folder of weights is its own reference.
  const std::string itself = consist(weights + parts_of(run) + Words{"--sequence", "32", "--precision", "fp32"});
  EXPECT_THAT(itself, HasSubstr("the loss compares the model with itself. Give --checkpoint"));
  EXPECT_NEAR(json::parse(std::ifstream(result)).at("loss").get<double>(), std::log(2.0), 1e-6);
}

TEST_F(Losses, TheLossOfModelsIsNamedWhereItIsMissed) {
  const std::string told = consist({"plugins", "next-token", "--plugin", built("losses")});
  EXPECT_THAT(told, HasSubstr("loss next-token: the next token's cross-entropy"));
  EXPECT_THAT(told, HasSubstr("in its place, by --loss: distillation dpo my-z-loss"));
  const test::ChildResult misspelt = test::run_child({prefix_ + "/bin/consist", "train", "--plugin", built("losses"), "--model",
                                                      "llama-tiny", "--loss", "next-tokn", "--steps", "1"});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_THAT(misspelt.output, HasSubstr("there is no loss 'next-tokn'. There are: next-token distillation dpo my-z-loss."));
  EXPECT_THAT(misspelt.output, HasSubstr("Did you mean 'next-token'?"));
}

// The adapter's base is the reference: its weights are there once.
TEST_F(Losses, AnAdaptersBaseIsItsReference) {
  const Words lora{"--adapter", "lora"};
  const std::vector<double> one = losses(run_of(run_called("my-dpo")) + lora);
  EXPECT_NEAR(one.front(), std::log(2.0), 1e-6);
  for (const char* strategy : {"tp-sp=2", "zero3-offload=2"}) {
    const std::vector<double> found = losses(run_of(run_called("my-dpo")) + lora + Words{"--ranks", "2", "--strategy", strategy});
    for (std::size_t s = 0; s < one.size(); ++s) EXPECT_NEAR(found[s] / one[s], 1, 1e-5) << strategy << ", step " << s + 1;
  }
  const std::string explained = consist(Words{"explain"} + parts_of(run_called("my-dpo")) + lora + Words{"--sequence", "32"});
  EXPECT_THAT(explained, Not(HasSubstr("reference.model.")));
}

}  // namespace
}  // namespace consist
