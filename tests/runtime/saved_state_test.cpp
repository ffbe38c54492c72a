// Files that `consist train` reads and writes: weights of model folders, checkpoints, exported models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "core/weights/model_weights.h"
#include "tests/child_process.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using test::ChildResult;
using test::NamedOptions;
using test::run_child;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string references = CONSIST_SOURCE_DIR "/tests/golden/hf/";

class SavedStateTest : public ::testing::Test {
 protected:
  /// `consist train` of a tiny model on a few sequences, with more options.
  ChildResult train(const std::vector<std::string>& options, const std::string& model = references + "qwen3-tied") const {
    return run_child(command(options, model));
  }
  static std::vector<std::string> command(const std::vector<std::string>& options,
                                          const std::string& model = references + "qwen3-tied") {
    std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                   "train",
                                   "--device",
                                   "cpu",
                                   "--dataset",
                                   "synthetic",
                                   "--sequence",
                                   "32",
                                   "--learning-rate",
                                   "1e-3",
                                   "--model",
                                   model};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  void expect_trained(const std::vector<std::string>& options) const {
    const ChildResult result = train(options);
    ASSERT_EQ(result.status, 0) << result.output;
  }
  void expect_refused(const std::vector<std::string>& options, int status, const std::string& message,
                      const std::string& model = references + "qwen3-tied") const {
    const ChildResult result = train(options, model);
    EXPECT_EQ(result.status, status) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_THAT(result.output, Not(HasSubstr("step 1/")));
  }
  std::string exported(const std::string& folder) const { return read_whole(folder_ / folder + "/model.safetensors"); }

  TemporaryFolder folder_;
};

class ResumeOf : public SavedStateTest, public ::testing::WithParamInterface<NamedOptions> {
 protected:
  /// The options of the configuration and others.
  static std::vector<std::string> with(std::vector<std::string> options) {
    options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
    return options;
  }
};

TEST_P(ResumeOf, ARunIsBitForBitTheUninterruptedOne) {
  expect_trained(with({"--steps", "6", "--export", folder_ / "whole"}));
  expect_trained(with({"--steps", "3", "--checkpoint", folder_ / "saved"}));
  expect_trained(with({"--steps", "6", "--checkpoint", folder_ / "saved", "--resume", "--export", folder_ / "resumed"}));
  ASSERT_FALSE(exported("whole").empty());
  EXPECT_EQ(exported("whole"), exported("resumed"));
}

INSTANTIATE_TEST_SUITE_P(Configurations, ResumeOf,
                         ::testing::Values(NamedOptions{"fp32", {"--batch", "2"}},
                                           NamedOptions{"bf16",
                                                        {"--batch", "2", "--precision", "bf16", "--cpu.bf16", "emulated"}},
                                           NamedOptions{"two_ranks_fp32", {"--batch", "1", "--ranks", "2"}},
                                           NamedOptions{"two_ranks_bf16_accumulated",
                                                        {"--batch", "1", "--ranks", "2", "--accumulation", "2", "--precision",
                                                         "bf16", "--cpu.bf16", "emulated"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(SavedStateTest, ACutOffCheckpointIsRefusedAndTheOneBeforeUsed) {
  expect_trained({"--steps", "8", "--batch", "1", "--export", folder_ / "whole"});
  expect_trained({"--steps", "6", "--batch", "1", "--checkpoint", folder_ / "saved", "--checkpoint-every", "2"});
  fs::resize_file(folder_ / "saved/step-00000006/rank-00000.safetensors", 1000);
  const ChildResult result =
      train({"--steps", "8", "--batch", "1", "--checkpoint", folder_ / "saved", "--resume", "--export", folder_ / "resumed"});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step 6 cannot be used"));
  EXPECT_THAT(result.output, HasSubstr("resumed after step 4"));
  EXPECT_EQ(exported("whole"), exported("resumed"));
}

TEST_F(SavedStateTest, NoSoundCheckpointIsAnErrorAndNoNewBeginning) {
  expect_trained({"--steps", "2", "--batch", "1", "--checkpoint", folder_ / "saved"});
  fs::resize_file(folder_ / "saved/step-00000002/rank-00000.safetensors", 1000);
  expect_refused({"--steps", "4", "--batch", "1", "--checkpoint", folder_ / "saved", "--resume"}, 1, "rank-00000.safetensors");
}

TEST_F(SavedStateTest, ResumingWithoutACheckpointBeginsAtTheStartAndSaysSo) {
  const ChildResult result = train({"--steps", "2", "--batch", "1", "--checkpoint", folder_ / "saved", "--resume"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("there is no checkpoint in"));
  EXPECT_TRUE(fs::exists(folder_ / "saved/step-00000002/state.json"));
}

TEST_F(SavedStateTest, AFileSizeLimitLeavesTheCheckpointBefore) {
  expect_trained({"--steps", "2", "--batch", "1", "--checkpoint", folder_ / "saved"});
  std::vector<std::string> limited{"bash", "-c", "ulimit -f 100; exec \"$0\" \"$@\""};
  for (const std::string& word : command({"--batch", "1", "--steps", "4", "--checkpoint", folder_ / "saved", "--resume"}))
    limited.push_back(word);
  const ChildResult result = run_child(limited);
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("File too large"));
  EXPECT_TRUE(fs::exists(folder_ / "saved/step-00000002/state.json"));
  EXPECT_FALSE(fs::exists(folder_ / "saved/step-00000004"));
  expect_trained({"--steps", "4", "--batch", "1", "--checkpoint", folder_ / "saved", "--resume"});
}

TEST_F(SavedStateTest, ACheckpointOfAnotherRunIsRefused) {
  expect_trained({"--steps", "2", "--batch", "2", "--checkpoint", folder_ / "saved"});
  const std::vector<std::string> resume{"--checkpoint", folder_ / "saved", "--resume"};
  const auto with = [&](std::vector<std::string> options) {
    options.insert(options.end(), resume.begin(), resume.end());
    return options;
  };
  expect_refused(with({"--steps", "1", "--batch", "2"}), 2, "at least as many steps");
  expect_refused(with({"--steps", "4", "--batch", "1"}), 2, "sequences");
  expect_refused(with({"--steps", "4", "--batch", "2", "--seed", "5"}), 2, "seed");
  expect_refused(with({"--steps", "4", "--batch", "2"}), 1, "tensors", references + "llama-tied");
  expect_refused({"--steps", "4", "--batch", "2", "--checkpoint", folder_ / "saved"}, 2, "--resume");
}

TEST_F(SavedStateTest, TheSameCommandTwiceGoesOnInTheSameArchive) {
  const auto run = [&](const char* steps, std::vector<std::string> more = {}) {
    std::vector<std::string> options{
        "--steps",  steps,       "--batch",         "1", "--checkpoint", folder_ / "saved", "--checkpoint-every", "2",
        "--resume", "--archive", folder_ / "run.h5"};
    options.insert(options.end(), more.begin(), more.end());
    return train(options);
  };
  ASSERT_EQ(run("5").status, 0);
  const std::vector<double> whole = ArchiveReader(folder_ / "run.h5").column("loss");
  ASSERT_EQ(whole.size(), 5U);
  // As a kill after step 5 would leave it: the row of a step whose checkpoint is not there.
  fs::remove_all(folder_ / "saved/step-00000005");
  const ChildResult gone_on = run("8");
  ASSERT_EQ(gone_on.status, 0) << gone_on.output;
  EXPECT_THAT(gone_on.output, HasSubstr("resumed after step 4"));
  const ArchiveReader archive(folder_ / "run.h5");
  EXPECT_EQ(archive.status(), "finished");
  EXPECT_EQ(archive.column("step"), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  const std::vector<double> loss = archive.column("loss");
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), loss.begin())) << "the rows before, and step 5 as it was";
  std::vector<std::string> kinds;
  for (const ArchiveEvent& event : archive.events()) kinds.push_back(event.kind + " " + event.text);
  EXPECT_THAT(kinds, ::testing::Contains(R"(resumed {"step": 4})"));
  EXPECT_FALSE(fs::exists(folder_ / "run.h5.partial"));

  const std::string before = read_whole(folder_ / "run.h5");
  const ChildResult finished = run("8");
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("nothing is left to do"));
  EXPECT_EQ(read_whole(folder_ / "run.h5"), before);

  const ChildResult other = run("9", {"--clip", "0.5"});
  EXPECT_EQ(other.status, 2) << other.output;
  EXPECT_THAT(other.output, ::testing::AllOf(HasSubstr("is of another run"), HasSubstr("clip: 1.0 in the archive, 0.5 now")));
  EXPECT_EQ(read_whole(folder_ / "run.h5"), before);
}

TEST_F(SavedStateTest, ARunEndedBehindItsLastCheckpointIsCompletedByResuming) {
  const std::vector<std::string> options{
      "--steps",  "2",         "--batch",          "1",        "--ranks",        "2", "--checkpoint", folder_ / "saved",
      "--resume", "--archive", folder_ / "run.h5", "--export", folder_ / "model"};
  ASSERT_EQ(train(options).status, 0);
  const std::string exported_then = exported("model");
  fs::remove_all(folder_ / "model");
  const ChildResult again = train(options);
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(exported("model"), exported_then);
  EXPECT_EQ(ArchiveReader(folder_ / "run.h5").column("step").size(), 2U);
  const ChildResult finished = train(options);
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("nothing is left to do"));
}

class HfFolder : public SavedStateTest, public ::testing::WithParamInterface<const char*> {
 protected:
  /// Loads the folder's weights and exports them untrained.
  std::string pass_through() const {
    const ChildResult result = run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--device", "cpu", "--dataset", "synthetic",
                                          "--sequence", "16", "--batch", "1", "--steps", "1", "--learning-rate", "0", "--model",
                                          references + GetParam(), "--export", folder_ / "exported"});
    EXPECT_EQ(result.status, 0) << result.output;
    return folder_ / "exported";
  }
};

TEST_P(HfFolder, ComesOutAsItWentInAtALearningRateOfZero) {
  const ModelWeights before(references + GetParam()), after(pass_through());
  ASSERT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    ASSERT_EQ(before.shape(name), after.shape(name)) << name;
    const auto elements = static_cast<std::size_t>(before.shape(name).elements());
    std::vector<float> a(elements), b(elements);
    before.read_f32(name, 0, a);
    after.read_f32(name, 0, b);
    EXPECT_EQ(a, b) << name;
  }
}

TEST_P(HfFolder, IsLoadedByTransformersWithTheSameLoss) {
  const char* python = std::getenv("CONSIST_TORCH_PYTHON");
  if (python == nullptr || *python == '\0') {
    GTEST_SKIP() << "CONSIST_TORCH_PYTHON names no Python with tests/golden/requirements.txt installed";
  }
  const std::string folder = pass_through();
  const nlohmann::json reference = nlohmann::json::parse(std::ifstream(references + GetParam() + "/reference.json"));
  write_whole(folder_ / "tokens.json", reference["batches"][0].dump());
  const ChildResult result =
      run_child({python, CONSIST_SOURCE_DIR "/tests/golden/check_hf_export.py", folder, folder_ / "tokens.json"});
  ASSERT_EQ(result.status, 0) << result.output;
  const nlohmann::json loaded = nlohmann::json::parse(result.output.substr(result.output.find('{')));
  const double expected = reference["losses"][0].get<double>();
  EXPECT_NEAR(loaded["loss"].get<double>() / expected, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(References, HfFolder,
                         ::testing::Values("llama-untied", "llama-tied", "llama-rope-scaled", "qwen3-tied", "qwen3-untied",
                                           "qwen2.5-bias"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

TEST_F(SavedStateTest, WeightsThatDoNotFitTheConfigurationAreRefusedByName) {
  const std::string model = folder_ / "model";
  fs::create_directory(model);
  const auto put = [&](const std::string& from, const char* file) {
    fs::copy_file(references + from + "/" + file, model + "/" + file, fs::copy_options::overwrite_existing);
  };
  put("llama-untied", "config.json");
  expect_refused({"--steps", "1", "--batch", "1"}, 2, "--from-scratch", model);
  write_whole(model + "/pytorch_model.bin", "x");
  expect_refused({"--steps", "1", "--batch", "1"}, 2, "convert it with transformers", model);
  put("llama-tied", "model.safetensors");
  expect_refused({"--steps", "1", "--batch", "1"}, 1, "'model.embed_tokens.weight' has the shape", model);
  put("llama-untied", "model.safetensors");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(model + "/config.json"));
  config["num_hidden_layers"] = 1;
  write_whole(model + "/config.json", config.dump());
  expect_refused({"--steps", "1", "--batch", "1"}, 1, "have no place in the model", model);
  config["num_hidden_layers"] = 3;
  write_whole(model + "/config.json", config.dump());
  expect_refused({"--steps", "1", "--batch", "1"}, 1, "model.layers.2.", model);
}

TEST_F(SavedStateTest, AnExportThatIsThereAlreadyIsReplacedOnlyWhenAsked) {
  const std::vector<std::string> options{"--steps", "1", "--batch", "1", "--export", folder_ / "model"};
  expect_trained(options);
  const std::string first = exported("model");
  expect_refused(options, 2, "--overwrite");
  EXPECT_EQ(exported("model"), first);
  expect_trained({"--steps", "2", "--batch", "1", "--export", folder_ / "model", "--overwrite"});
  EXPECT_NE(exported("model"), first);
}

TEST_F(SavedStateTest, TextIsReadByTheTokenizerInTheModelsFolderUnlessAnotherIsNamed) {
  const std::string model = folder_ / "model", own = model + "/tokenizer.json";
  const auto train_on_text = [&](const std::string& which, std::vector<std::string> options) {
    std::vector<std::string> words{CONSIST_BINARY_DIR "/bin/consist",
                                   "train",
                                   "--device=cpu",
                                   "--sequence=32",
                                   "--batch=1",
                                   "--steps=1",
                                   "--model=" + which,
                                   "--text.documents=line"};
    words.insert(words.end(), options.begin(), options.end());
    const ChildResult result = run_child(words);
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  };
  EXPECT_THAT(train_on_text("llama-tiny", {"--export=" + model}), HasSubstr("by the tokenizer that ships"));
  const std::string shipped = CONSIST_SOURCE_DIR "/datasets/text/";
  EXPECT_EQ(read_whole(own), read_whole(shipped + "tokenizer.json")) << "the tokenizer that it was trained with goes with it";
  EXPECT_EQ(read_whole(model + "/tokenizer_config.json"), read_whole(shipped + "tokenizer_config.json"));
  fs::copy_file(CONSIST_SOURCE_DIR "/tests/golden/tokenizer/qwen.json", own, fs::copy_options::overwrite_existing);
  EXPECT_THAT(train_on_text(model, {"--export=" + (folder_ / "again")}), HasSubstr("by " + own));
  EXPECT_EQ(read_whole(folder_ / "again/tokenizer.json"), read_whole(own));
  const std::string other = CONSIST_SOURCE_DIR "/tests/golden/tokenizer/gpt2.json";
  EXPECT_THAT(train_on_text(model, {"--text.tokenizer=" + other, "--export=" + (folder_ / "foreign")}), HasSubstr("by " + other));
  EXPECT_EQ(read_whole(folder_ / "foreign/tokenizer.json"), read_whole(other));
  EXPECT_FALSE(fs::exists(folder_ / "foreign/tokenizer_config.json")) << "which is of the tokenizer that was not used";
}

TEST_F(SavedStateTest, WeightsWithoutATokenizerAreNotTrainedOnTextByAnother) {
  const ChildResult result = run_child({CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=text",
                                        "--sequence=16", "--batch=1", "--steps=1", "--model=" + references + "qwen3-tied"});
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_THAT(result.output,
              HasSubstr("has no tokenizer.json, and its weights were trained with one: name it with --text.tokenizer"));
}

/// transformers 4 takes the embedding for the head, transformers 5 trains the head by itself.
TEST_F(SavedStateTest, ATiedModelWithAHeadOfOtherValuesIsRefused) {
  const std::string model = folder_ / "model";
  fs::create_directory(model);
  const auto load = [&](float changed_by, std::int64_t rows_less) {
    const ModelWeights golden(references + "qwen3-tied");
    std::vector<TensorSource> tensors;
    for (const std::string& name : golden.names()) {
      tensors.push_back({name, DType::f32, golden.shape(name), [&golden, name](void* to, std::int64_t first, std::int64_t count) {
                           golden.read_f32(name, first, {static_cast<float*>(to), static_cast<std::size_t>(count)});
                         }});
    }
    const Shape table = golden.shape("model.embed_tokens.weight");
    tensors.push_back({"lm_head.weight", DType::f32, Shape{table[0] - rows_less, table[1]},
                       [&](void* to, std::int64_t first, std::int64_t count) {
                         auto* values = static_cast<float*>(to);
                         golden.read_f32("model.embed_tokens.weight", first, {values, static_cast<std::size_t>(count)});
                         if (first == 0) values[77] += changed_by;
                       }});
    write_model_weights(model, tensors, default_max_file_bytes, true);
  };
  fs::copy_file(references + "qwen3-tied/config.json", model + "/config.json");
  const std::vector<std::string> options{"--steps", "1", "--batch", "1"};
  load(0, 0);
  EXPECT_EQ(train(options, model).status, 0) << "the same values twice are no contradiction";
  load(0.5F, 0);
  expect_refused(options, 1, "'lm_head.weight' differs from 'model.embed_tokens.weight' (first at element 77)", model);
  load(0, 1);
  expect_refused(options, 1, "'lm_head.weight' has the shape [106,48], the model needs [107,48]", model);
}

TEST_F(SavedStateTest, AModelsTokenizerGoesWithItsExport) {
  const std::string model = folder_ / "model", text = "{\"model_max_length\": 77}";
  expect_trained({"--steps", "1", "--batch", "1", "--export", model});
  EXPECT_FALSE(fs::exists(model + "/tokenizer_config.json"));
  write_whole(model + "/tokenizer_config.json", text);
  write_whole(model + "/vocab.json", "{}");
  write_whole(model + "/generation_config.json", "{\"top_k\": 3}");
  write_whole(model + "/README.md", "not of the tokenizer");
  ASSERT_EQ(train({"--steps", "1", "--batch", "1", "--export", folder_ / "again"}, model).status, 0);
  EXPECT_EQ(read_whole(folder_ / "again/tokenizer_config.json"), text);
  EXPECT_EQ(read_whole(folder_ / "again/vocab.json"), "{}");
  EXPECT_EQ(read_whole(folder_ / "again/generation_config.json"), "{\"top_k\": 3}");
  EXPECT_FALSE(fs::exists(folder_ / "again/README.md"));
  // Onto itself: the files stay.
  ASSERT_EQ(train({"--steps", "1", "--batch", "1", "--export", model, "--overwrite"}, model).status, 0);
  EXPECT_EQ(read_whole(model + "/tokenizer_config.json"), text);
}

}  // namespace
}  // namespace consist
