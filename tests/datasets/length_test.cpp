// Mixtures and epochs in runs of the program: layouts, resumption, what archives say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "core/checkpoint/checkpoint_state.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class DataOfRuns : public ::testing::Test {
 protected:
  DataOfRuns() {
    std::string a, b;
    for (int i = 0; i < 40; ++i) {
      a += "{\"text\": \"the valley number " + std::to_string(i * 37 % 101) + " has a river and a bridge\"}\n";
      b += R"({"messages": [{"role": "user", "content": "how many are )" + std::to_string(i) +
           R"( and one?"}, {"role": "assistant", "content": ")" + std::to_string(i + 1) + " of course\"}]}\n";
    }
    write_whole(folder_ / "a.jsonl", a);
    write_whole(folder_ / "b.jsonl", b);
  }

  struct Run {
    int status = 0;
    std::string output, archive;
    std::vector<double> losses;
  };
  Run run(Words words) {
    Run run;
    run.archive = folder_ / ("run" + std::to_string(++runs_) + ".h5");
    words.insert(words.begin(), {CONSIST_BINARY_DIR "/bin/consist", "train", "--model", "llama-tiny", "--device", "cpu",
                                 "--cpu.threads", "1", "--archive", run.archive});
    const test::ChildResult result = test::run_child(words);
    run.status = result.status;
    run.output = result.output;
    if (result.status == 0) run.losses = ArchiveReader(run.archive).column("loss");
    return run;
  }
  Words mixture(Words more) const {
    more.insert(more.end(),
                {"--dataset", "text=0.5+jsonl@a=0.25+jsonl@b=0.25", "--jsonl@a.files", folder_ / "a.jsonl", "--jsonl@b.files",
                 folder_ / "b.jsonl", "--jsonl@b.format", "chat", "--jsonl.template", "chatml", "--sequence", "16"});
    return more;
  }
  Words rows(Words more) const {
    more.insert(more.end(), {"--dataset", "jsonl", "--jsonl.files", folder_ / "a.jsonl", "--sequence", "16", "--batch", "8"});
    return more;
  }
  static std::vector<ArchiveEvent> events(const Run& run, const std::string& kind) {
    std::vector<ArchiveEvent> found;
    for (const ArchiveEvent& event : ArchiveReader(run.archive).events()) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  static std::int64_t steps_of(const Run& run) {
    return nlohmann::json::parse(ArchiveReader(run.archive).text("/config"))["steps"].get<std::int64_t>();
  }
  const TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(DataOfRuns, AMixtureIsTheSameInEveryLayoutAndResumes) {
  const Run one = run(mixture({"--batch", "4", "--steps", "6"}));
  ASSERT_EQ(one.status, 0) << one.output;
  EXPECT_THAT(one.output,
              AllOf(HasSubstr("a mixture of 50.0% text: 16 files"), HasSubstr("25.0% jsonl@b jsonl: 1 file, 40 conversations")));
  const std::string read =
      "steps 1 to 6: text 12 sequences, 192 tokens (50.0%), jsonl@a 6 sequences, 96 tokens (25.0%), jsonl@b 6 sequences, 96 "
      "tokens (25.0%)";
  EXPECT_THAT(one.output, AllOf(HasSubstr("data: " + read), ::testing::Not(HasSubstr("no effect"))));
  ASSERT_EQ(events(one, "data").size(), 1U);
  EXPECT_EQ(events(one, "data")[0].text, read);
  const Run two = run(mixture({"--batch", "1", "--accumulation", "2", "--ranks", "2", "--steps", "6"}));
  ASSERT_EQ(two.status, 0) << two.output;
  const Run begun = run(mixture({"--batch", "4", "--steps", "3", "--checkpoint", folder_ / "ck"})),
            resumed = run(mixture({"--batch", "4", "--steps", "6", "--checkpoint", folder_ / "ck", "--resume"}));
  ASSERT_EQ(resumed.status, 0) << begun.output << resumed.output;
  EXPECT_EQ(events(resumed, "data").at(0).text, read);
  ASSERT_EQ(resumed.losses.size(), 3U);
  for (std::size_t s = 0; s < 6; ++s) EXPECT_NEAR(two.losses[s] / one.losses[s], 1, 1e-5) << s;
  for (std::size_t s = 0; s < 3; ++s) EXPECT_NEAR(resumed.losses[s] / one.losses[s + 3], 1, 1e-6) << s;
  const Run other = run({"--config", one.archive, "--steps", "2"});
  ASSERT_EQ(other.status, 0) << other.output;
  EXPECT_EQ(other.losses, std::vector<double>(one.losses.begin(), one.losses.begin() + 2));
  const Run changed = run(
      mixture({"--batch", "4", "--steps", "8", "--checkpoint", folder_ / "ck", "--resume", "--jsonl@a.eval-fraction", "0.2"}));
  EXPECT_EQ(changed.status, 2);
  EXPECT_THAT(changed.output, AllOf(HasSubstr("was trained on"), HasSubstr("eval-fraction")));
  const Run stray = run(mixture({"--jsonl@c.files", folder_ / "a.jsonl"}));
  EXPECT_EQ(stray.status, 2);
  EXPECT_THAT(stray.output, HasSubstr("--jsonl@c.files is given, but 'jsonl@c' is not part of this configuration"));
}

TEST_F(DataOfRuns, EpochsSayHowManyStepsThereAre) {
  const Run two = run(rows({"--epochs", "2", "--schedule", "cosine", "--learning-rate", "1e-3"}));
  ASSERT_EQ(two.status, 0) << two.output;
  const std::int64_t steps = steps_of(two);
  EXPECT_EQ(two.losses.size(), static_cast<std::size_t>(steps));
  EXPECT_THAT(two.output, ::testing::ContainsRegex("2 epochs of [0-9]+ sequences: " + std::to_string(steps) + " steps of 8"));
  EXPECT_THAT(two.output, HasSubstr("step " + std::to_string(steps) + "/" + std::to_string(steps)));
  // The schedule ends with the last step, as it does where the steps are given.
  const Run given = run(rows({"--steps", std::to_string(steps), "--schedule", "cosine", "--learning-rate", "1e-3"}));
  EXPECT_EQ(given.losses, two.losses);
  EXPECT_EQ(ArchiveReader(given.archive).column("learning_rate"), ArchiveReader(two.archive).column("learning_rate"));
  // Resumed in the middle of the second epoch.
  const Run begun = run(rows({"--steps", std::to_string(steps - 2), "--schedule", "constant", "--checkpoint", folder_ / "ck"}));
  ASSERT_EQ(begun.status, 0) << begun.output;
  const Run whole = run(rows({"--epochs", "2"})),
            resumed = run(rows({"--epochs", "2", "--checkpoint", folder_ / "ck", "--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  ASSERT_EQ(resumed.losses.size(), 2U);
  EXPECT_NEAR(resumed.losses[1] / whole.losses.back(), 1, 1e-6);
  // The archive states both; either repeats the run, and --steps replaces the epochs.
  const Run repeated = run({"--config", two.archive});
  ASSERT_EQ(repeated.status, 0) << repeated.output;
  EXPECT_EQ(repeated.losses, two.losses);
  EXPECT_EQ(run({"--config", two.archive, "--steps", "1"}).losses.size(), 1U);
  EXPECT_EQ(run({"--config", two.archive, "--epochs", "1"}).losses.size(), static_cast<std::size_t>((steps + 1) / 2));
}

/// A checkpoint of the version before rows were kept for evaluation goes on with the data that it began with, or not at all.
TEST_F(DataOfRuns, ACheckpointOfAnEarlierVersionGoesOnWithItsSplit) {
  const Words split{"--jsonl.eval-split", "sequences"};
  const auto with_split = [&](Words words) {
    words.insert(words.end(), split.begin(), split.end());
    return rows(words);
  };
  const Run whole = run(with_split({"--steps", "8"})), begun = run(with_split({"--steps", "5", "--checkpoint", folder_ / "ck"}));
  ASSERT_EQ(begun.status, 0) << begun.output;
  const std::string state = folder_ / "ck/step-00000005/state.json";
  CheckpointState earlier = parse_checkpoint_state(read_whole(state), state);
  earlier.version = 1;
  nlohmann::json config = nlohmann::json::parse(earlier.config);
  ASSERT_EQ(config["plugin_options"]["jsonl"].erase("eval-split"), 1U);
  earlier.config = config.dump();
  write_whole(state, to_text(earlier));

  const auto loss = [&](Words more) {
    const std::string json = folder_ / ("evaluation" + std::to_string(++runs_) + ".json");
    more.insert(more.begin(), {CONSIST_BINARY_DIR "/bin/consist", "evaluate", "--checkpoint", folder_ / "ck", "--device", "cpu",
                               "--evaluate-sequences", "0", "--json", json});
    const test::ChildResult result = test::run_child(more);
    EXPECT_EQ(result.status, 0) << result.output;
    return nlohmann::json::parse(read_whole(json)).at("loss").get<double>();
  };
  EXPECT_EQ(loss({}), loss(split)) << "an evaluation reads what the run kept for it";
  EXPECT_NE(loss({}), loss({"--jsonl.eval-split", "rows"}));

  const Run refused = run(rows({"--steps", "8", "--checkpoint", folder_ / "ck", "--resume"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("was saved by an earlier version"), HasSubstr("--jsonl.eval-split sequences")));
  const Run resumed = run(with_split({"--steps", "8", "--checkpoint", folder_ / "ck", "--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 5, whole.losses.end()));
}

TEST_F(DataOfRuns, EpochsThatSayNothingAreRefused) {
  const Run both = run(rows({"--epochs", "2", "--steps", "10"}));
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.output, HasSubstr("--epochs and --steps both say how long the run is"));
  const Run endless = run({"--dataset", "synthetic", "--epochs", "1", "--sequence", "16"});
  EXPECT_EQ(endless.status, 2);
  EXPECT_THAT(endless.output, AllOf(HasSubstr("which no run comes to the end of"), HasSubstr("--steps")));
  write_whole(folder_ / "run.toml", "model = \"llama-tiny\"\nsteps = 5\nepochs = 2\n");
  const test::ChildResult file = test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--config", folder_ / "run.toml"});
  EXPECT_EQ(file.status, 2);
  EXPECT_THAT(file.output, HasSubstr("run.toml, line 3: epochs and " + (folder_ / "run.toml") + ", line 2: steps both say"));
  const test::ChildResult printed =
      test::run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--model", "llama-tiny", "--epochs", "3", "--print-config"});
  EXPECT_THAT(printed.output, AllOf(HasSubstr("epochs = 3"), ::testing::Not(HasSubstr("steps ="))));
}

}  // namespace
}  // namespace consist
