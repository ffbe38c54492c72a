// `consist evaluate --archive`: what was evaluated and what came out, as archives hold it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using nlohmann::json;
using test::program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EvaluateArchive : public ::testing::Test {
 protected:
  EvaluateArchive() {
    const test::ChildResult trained =
        test::run_child({program, "train", "--model=llama-tiny", "--device=cpu", "--cpu.threads=1", "--batch=1", "--sequence=16",
                         "--steps=3", "--checkpoint=" + (folder_ / "checkpoints"), "--archive=" + (folder_ / "run.h5")});
    EXPECT_EQ(trained.status, 0) << trained.output;
  }
  test::ChildResult evaluate(std::vector<std::string> options) const {
    options.insert(options.begin(), {program, "evaluate", "--checkpoint=" + (folder_ / "checkpoints"), "--device=cpu",
                                     "--cpu.threads=1", "--evaluate-sequences=6"});
    return test::run_child(options);
  }
  json json_of(const char* name) const {
    std::ifstream file(folder_ / name);
    return json::parse(file);
  }

  TemporaryFolder folder_;
};

TEST_F(EvaluateArchive, HoldsWhatTheResultSays) {
  const test::ChildResult result =
      evaluate({"--ranks=2", "--archive=" + (folder_ / "loss.h5"), "--json=" + (folder_ / "loss.json")});
  ASSERT_EQ(result.status, 0) << result.output;
  const json said = json_of("loss.json");
  const ArchiveReader archive(folder_ / "loss.h5");
  EXPECT_EQ(archive.status(), "finished");
  EXPECT_TRUE(archive.columns().empty()) << "no step was trained";
  const json evaluation = json::parse(archive.text("/evaluation"));
  for (const char* key : {"weights", "dataset", "loss", "perplexity", "tokens", "sequences", "seconds", "device"})
    EXPECT_EQ(evaluation.at(key), said.at(key)) << key;
  EXPECT_EQ(evaluation.at("step"), 3);
  EXPECT_EQ(evaluation.at("sequences"), 6);
  EXPECT_EQ(evaluation.at("tokens"), 6 * 16);
  EXPECT_NEAR(evaluation.at("perplexity").get<double>(), std::exp(evaluation.at("loss").get<double>()), 1e-9);
  const std::vector<ArchivedEvaluation> rows = archive.evaluations();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].step, 3);
  EXPECT_EQ(rows[0].loss, evaluation.at("loss").get<double>());
  EXPECT_EQ(rows[0].sequences, 6);
  const json config = json::parse(archive.text("/config"));
  EXPECT_EQ(config.at("model"), "llama-tiny");
  EXPECT_EQ(config.at("ranks"), 2);
  EXPECT_EQ(config.at("sequence"), 16);
  EXPECT_EQ(config.at("evaluate_every"), 0) << "it is no option of the evaluation";
  EXPECT_FALSE(json::parse(archive.text("/environment")).at("device").get<std::string>().empty());
  EXPECT_EQ(json::parse(archive.text("/topology")).at("ranks"), 2);
}

TEST_F(EvaluateArchive, IsShownAndIsNoRunToCompare) {
  const std::string path = folder_ / "loss.h5";
  ASSERT_EQ(evaluate({"--archive=" + path}).status, 0);
  const test::ChildResult shown = test::run_child({program, "show", path});
  ASSERT_EQ(shown.status, 0) << shown.output;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("finished"), HasSubstr("step 3 of "), HasSubstr("perplexity "),
                                  HasSubstr("96 tokens of 6 sequences"), Not(HasSubstr("step 0"))));
  const test::ChildResult as_json = test::run_child({program, "show", path, "--json"});
  const json view = json::parse(as_json.output);
  EXPECT_EQ(view.at("evaluation").at("tokens"), 96);
  EXPECT_EQ(view.at("evaluations").size(), 1U);
  const json of_run = json::parse(test::run_child({program, "show", folder_ / "run.h5", "--json"}).output);
  EXPECT_TRUE(of_run.at("evaluation").is_null());
  const test::ChildResult reported = test::run_child({program, "report", path, "-o", folder_ / "report.html"});
  EXPECT_NE(reported.status, 0);
  EXPECT_THAT(reported.output, HasSubstr("is of an evaluation, which has no steps; consist show says what it holds"));
}

TEST_F(EvaluateArchive, LeavesWhatIsThereUnlessItMayBeReplaced) {
  const std::string path = folder_ / "run.h5";
  const auto size = std::filesystem::file_size(path);
  const test::ChildResult refused = evaluate({"--archive=" + path});
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr(path), HasSubstr("--overwrite")));
  EXPECT_EQ(std::filesystem::file_size(path), size);
  // The run's own file of options names the run's archive, which is no place for the evaluation.
  std::ofstream(folder_ / "run.toml") << "archive = \"" << path << "\"\noverwrite = true\n";
  const test::ChildResult of_file = evaluate({"--config=" + (folder_ / "run.toml")});
  EXPECT_EQ(of_file.status, 0) << of_file.output;
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_FALSE(ArchiveReader(path).columns().empty());

  ASSERT_EQ(evaluate({"--archive=" + path, "--overwrite"}).status, 0);
  EXPECT_FALSE(ArchiveReader(path).text("/evaluation").empty());
}

TEST_F(EvaluateArchive, IsNotTrainedForALengthThatNobodyGave) {
  const std::string path = folder_ / "loss.h5";
  ASSERT_EQ(evaluate({"--archive=" + path}).status, 0);
  const test::ChildResult refused = test::run_child({program, "train", "--config=" + path});
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr("is the archive of an evaluation"), HasSubstr("give --steps or --epochs")));
  const test::ChildResult trained = test::run_child({program, "train", "--config=" + path, "--steps=1"});
  EXPECT_EQ(trained.status, 0) << trained.output;
}

TEST_F(EvaluateArchive, OfAnEvaluationThatIsRefusedThereIsNone) {
  const test::ChildResult result =
      evaluate({"--archive=" + (folder_ / "loss.h5"), "--dataset=synthetic", "--synthetic.eval-sequences=0"});
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "loss.h5"));
}

}  // namespace
}  // namespace consist
