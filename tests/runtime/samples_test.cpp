// Samples of text during training: what they are, and that training does not notice them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/consist_program.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using test::NamedOptions;
using test::program;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> samples{"--sample-every=2", "--sample-prompt=The moon", "--sample-tokens=9"};

class Samples : public ::testing::Test {
 protected:
  test::ChildResult train(std::vector<std::string> options) const {
    options.insert(options.begin(), {program, "train", "--model=llama-tiny", "--device=cpu", "--cpu.threads=1",
                                     "--cpu.bf16=emulated", "--batch=1", "--sequence=16", "--learning-rate=3e-3"});
    if (std::none_of(options.begin(), options.end(), [](const std::string& option) { return option.starts_with("--steps="); }))
      options.push_back("--steps=5");
    return test::run_child(options);
  }
  static std::vector<std::string> with(std::vector<std::string> options, const std::vector<std::string>& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  static std::string whole(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

class SamplesIn : public Samples, public ::testing::WithParamInterface<NamedOptions> {};

TEST_P(SamplesIn, LeaveTheWeightsAsTheyAreBitForBit) {
  const std::vector<std::string> layout = with(GetParam().options, {"--evaluate-every=2", "--evaluate-sequences=4"});
  const test::ChildResult plain = train(with(layout, {"--export=" + (folder_ / "plain")}));
  ASSERT_EQ(plain.status, 0) << plain.output;
  EXPECT_THAT(plain.output, Not(HasSubstr("sample after")));
  // Few tokens: with zero3-offload each gathers all parameters.
  const test::ChildResult sampled = train(with(
      layout, {"--sample-every=2", "--sample-prompt=The moon", "--sample-tokens=3", "--export=" + (folder_ / "sampled")}));
  ASSERT_EQ(sampled.status, 0) << sampled.output;
  EXPECT_THAT(sampled.output, HasSubstr("sample after step 2: \""));
  EXPECT_THAT(sampled.output, HasSubstr("sample after step 4: \""));
  EXPECT_THAT(sampled.output, Not(HasSubstr("sample after step 3")));
  EXPECT_EQ(whole(folder_ / "plain/model.safetensors"), whole(folder_ / "sampled/model.safetensors"));
}
INSTANTIATE_TEST_SUITE_P(Layouts, SamplesIn,
                         ::testing::Values(NamedOptions{"one", {}}, NamedOptions{"ddp", {"--ranks=2"}},
                                           NamedOptions{"zero3", {"--ranks=2", "--strategy=zero3-offload"}}),
                         [](const auto& info) { return info.param.name; });

/// The sample after the last step is what generate writes from the checkpoint of that step.
TEST_F(Samples, AreWhatGenerateWritesFromTheCheckpoint) {
  const test::ChildResult trained =
      train(with(samples, {"--steps=4", "--checkpoint=" + (folder_ / "checkpoints"), "--archive=" + (folder_ / "run.h5")}));
  ASSERT_EQ(trained.status, 0) << trained.output;
  const test::ChildResult generated = test::run_child({program, "generate", "--checkpoint=" + (folder_ / "checkpoints"),
                                                       "--device=cpu", "--cpu.threads=1", "--prompt=The moon", "--max-tokens=9",
                                                       "--temperature=0", "--ignore-eos", "--json=" + (folder_ / "made.json")});
  ASSERT_EQ(generated.status, 0) << generated.output;
  std::ifstream file(folder_ / "made.json");
  const std::string text = nlohmann::json::parse(file).at("text");
  std::vector<nlohmann::json> events;
  for (const ArchiveEvent& event : ArchiveReader(folder_ / "run.h5").events()) {
    if (event.kind == "sample") events.push_back(nlohmann::json::parse(event.text));
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at("step"), 2);
  EXPECT_EQ(events[1].at("step"), 4);
  EXPECT_EQ(events[1].at("text"), text);
}

/// Whatever dataset a run has says which tokenizer it is of: samples and `generate --checkpoint` take that one.
TEST_F(Samples, AreOfTheTokenizerThatTheDatasetSays) {
  std::ofstream rows(folder_ / "rows.jsonl");
  for (int row = 0; row < 40; ++row) rows << "{\"text\": \"The moon rose over the valley and the river, row " << row << "\"}\n";
  rows.close();
  const std::vector<std::string> jsonl{"--dataset=jsonl", "--jsonl.files=" + (folder_ / "rows.jsonl")},
      mixture{"--dataset=jsonl@a=1+synthetic=1", "--jsonl@a.files=" + (folder_ / "rows.jsonl")};
  for (const std::vector<std::string>& dataset : {jsonl, mixture}) {
    SCOPED_TRACE(dataset.front());
    const std::string checkpoints = folder_ / dataset.front().substr(10, 7);
    const test::ChildResult trained = train(with(with(samples, dataset), {"--steps=2", "--checkpoint=" + checkpoints}));
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_THAT(trained.output, HasSubstr("sample after step 2: \""));
    const test::ChildResult generated =
        test::run_child({program, "generate", "--checkpoint=" + checkpoints, "--device=cpu", "--cpu.threads=1",
                         "--prompt=The moon", "--max-tokens=9", "--temperature=0"});
    EXPECT_EQ(generated.status, 0) << generated.output;
  }
  const test::ChildResult nowhere = train(with(samples, {"--dataset=synthetic"}));
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.output, HasSubstr("the dataset 'synthetic' knows of none"));
}

/// A run on conversations: its chat template goes with the export, and samples, `generate --chat` and evaluations use it.
TEST_F(Samples, OfConversationsAreAnswers) {
  std::ofstream rows(folder_ / "rows.jsonl");
  for (int row = 0; row < 40; ++row)
    rows << "{\"messages\": [{\"role\": \"user\", \"content\": \"what of the moon and row " << row
         << "?\"}, {\"role\": \"assistant\", \"content\": \"it rose over the valley\"}]}\n";
  rows.close();
  const std::string jinja =
      "{% for m in messages %}<{{ m.role }}> {{ m.content }} </{{ m.role }}>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant> {% endif %}";
  std::ofstream(folder_ / "own.jinja") << jinja;
  const std::vector<std::string> data{"--dataset=jsonl", "--jsonl.files=" + (folder_ / "rows.jsonl"), "--jsonl.format=chat"};
  const std::string checkpoints = folder_ / "checkpoints", exported = folder_ / "exported";
  const test::ChildResult trained =
      train(with(with(samples, data), {"--jsonl.template=" + (folder_ / "own.jinja"), "--steps=2", "--checkpoint=" + checkpoints,
                                       "--export=" + exported, "--archive=" + (folder_ / "run.h5")}));
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_EQ(whole(exported + "/chat_template.jinja"), jinja);
  const auto prompt_of = [&](const std::vector<std::string>& options) {
    const std::string json = folder_ / "made.json";
    const test::ChildResult result = test::run_child(
        with({program, "generate", "--device=cpu", "--cpu.threads=1", "--prompt=The moon", "--max-tokens=2", "--json=" + json,
              "--overwrite"},
             options));
    EXPECT_EQ(result.status, 0) << result.output;
    std::ifstream file(json);
    return nlohmann::json::parse(file).at("prompt_tokens");
  };
  const nlohmann::json of_checkpoint = prompt_of({"--checkpoint=" + checkpoints, "--chat"});
  EXPECT_EQ(prompt_of({"--model=" + exported, "--chat"}), of_checkpoint);
  EXPECT_LT(prompt_of({"--model=" + exported}).size(), of_checkpoint.size());
  const test::ChildResult evaluated = test::run_child(
      with({program, "evaluate", "--model=" + exported, "--device=cpu", "--cpu.threads=1", "--sequence=16"}, data));
  EXPECT_EQ(evaluated.status, 0) << evaluated.output;
}

/// They belong to a run's configuration: its archive and --print-config have them, and a run from either writes the same samples.
TEST_F(Samples, AreRepeatedFromTheArchiveAndFromAPrintedConfiguration) {
  const auto texts = [&](const char* name) {
    std::vector<std::string> found;
    for (const ArchiveEvent& event : ArchiveReader(folder_ / name).events()) {
      if (event.kind == "sample") found.push_back(event.text);
    }
    return found;
  };
  const test::ChildResult first = train(with(samples, {"--archive=" + (folder_ / "first.h5")}));
  ASSERT_EQ(first.status, 0) << first.output;
  const nlohmann::json config = nlohmann::json::parse(ArchiveReader(folder_ / "first.h5").text("/config"));
  EXPECT_EQ(config.at("sample_every"), 2);
  EXPECT_EQ(config.at("sample_prompt"), "The moon");
  EXPECT_EQ(config.at("sample_tokens"), 9);
  ASSERT_EQ(texts("first.h5").size(), 2U);

  const test::ChildResult again =
      test::run_child({program, "train", "--config=" + (folder_ / "first.h5"), "--archive=" + (folder_ / "again.h5")});
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(texts("again.h5"), texts("first.h5"));

  const test::ChildResult printed = train(with(samples, {"--print-config"}));
  ASSERT_EQ(printed.status, 0) << printed.output;
  EXPECT_THAT(printed.output, AllOf(HasSubstr("sample-every = 2\n"), HasSubstr("sample-prompt = \"The moon\"\n"),
                                    HasSubstr("sample-tokens = 9\n")));
  std::ofstream(folder_ / "run.toml") << printed.output;
  const test::ChildResult from_file =
      test::run_child({program, "train", "--config=" + (folder_ / "run.toml"), "--archive=" + (folder_ / "file.h5")});
  ASSERT_EQ(from_file.status, 0) << from_file.output;
  EXPECT_EQ(texts("file.h5"), texts("first.h5"));
}

/// Samples change nothing that is trained: a run may go on in its archive with other samples.
TEST_F(Samples, MayDifferInARunThatGoesOnInItsArchive) {
  const std::vector<std::string> places{"--checkpoint=" + (folder_ / "checkpoints"), "--archive=" + (folder_ / "run.h5")};
  const test::ChildResult first = train(with(places, {"--steps=2"}));
  ASSERT_EQ(first.status, 0) << first.output;
  const test::ChildResult second = train(with(with(places, samples), {"--steps=4", "--resume"}));
  EXPECT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, HasSubstr("sample after step 4"));
}

TEST_F(Samples, SayWhatTheyCannotDo) {
  const auto refused = [&](const std::vector<std::string>& options, const std::string& message) {
    const test::ChildResult result = train(options);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
  };
  refused({"--sample-every=2"}, "--sample-every needs the text that samples go on from: --sample-prompt TEXT");
  refused(with(samples, {"--ranks=2", "--strategy=pipeline=2"}), "--sample-every does not go with a pipeline");
  refused(with(samples, {"--ranks=2", "--strategy=cp=2"}), "the layout divides sequences over ranks (strategy cp)");
  refused({"--sample-every=1", "--sample-prompt=a", "--sample-tokens=1000000"}, "together more than the model's");
  const test::ChildResult without = train({"--steps=1", "--sample-tokens=5"});
  EXPECT_EQ(without.status, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("--sample-tokens has no effect here; it needs --sample-every N"));
}

}  // namespace
}  // namespace consist
