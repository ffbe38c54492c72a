// The road of a third party: install, build a strategy out of tree, list it, train with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/external/installed.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// ddp-plain and trapezoid, built out of tree.
class External : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugin_ = built("ddp-plain") + "strategy-ddp-plain.so";
    schedule_ = built("trapezoid") + "schedule-trapezoid.so";
  }

  struct Curves {
    std::vector<double> loss, grad_norm;
  };
  /// Trains on two ranks on the text that ships, so that the bits of a loss depend on nothing but what a strategy sends: linears
  /// are not packed, which depends on where messages stand (below AVX-512, oneDNN rounds a product of several linears otherwise
  /// than those of each); gradients are not clipped, since their norm is a sum whose parts are those that are late.
  static Curves train(const std::string& precision, std::vector<std::string> strategy) {
    const std::string archive = *folder_ / "run.h5";
    strategy.insert(strategy.begin(),
                    {"train", "--plugin",       plugin_,     "--device", "cpu", "--model",    "llama-tiny", "--ranks",
                     "2",     "--accumulation", "2",         "--batch",  "2",   "--sequence", "64",         "--steps",
                     "5",     "--precision",    precision,   "--pack",   "off", "--clip",     "0",          "--archive",
                     archive, "--overwrite",    "--strategy"});
    const std::string output = consist(strategy);
    EXPECT_THAT(output, HasSubstr("text: 16 files"));  // the corpus was installed too
    const ArchiveReader reader(archive);
    EXPECT_EQ(reader.status(), "finished");
    return {reader.column("loss"), reader.column("grad_norm")};
  }
  static std::size_t all_reduces_of(const std::string& program, const std::string& pass) {
    std::istringstream lines(program);
    std::size_t count = 0;
    for (std::string line; std::getline(lines, line);) {
      count += line.find("= all_reduce(") != std::string::npos && line.find(" by " + pass + " ") != std::string::npos;
    }
    return count;
  }
  static std::string explain(std::vector<std::string> strategy) {
    strategy.insert(strategy.begin(),
                    {"explain", "--plugin", plugin_, "--device", "cpu", "--model", "llama-tiny", "--ranks", "2", "--strategy"});
    return consist(strategy);
  }

  static inline std::string plugin_, schedule_;
};

TEST_F(External, AMovedTreeUsesNothingOfTheBuild) {
  const std::string libraries = test::run_outside({"env", "LD_TRACE_LOADED_OBJECTS=1", prefix_ + "/bin/consist"});
  EXPECT_THAT(libraries, HasSubstr("libconsist.so => " + prefix_));
  EXPECT_THAT(libraries, Not(HasSubstr("not found")));
  EXPECT_THAT(outside_of_installation(libraries), Not(HasSubstr(CONSIST_BINARY_DIR)));

  const std::string plugins = consist({"plugins"});
  EXPECT_THAT(plugins, HasSubstr(prefix_ + "/lib/consist/plugins/strategy-ddp.so"));
  EXPECT_THAT(plugins, HasSubstr(prefix_ + "/lib/consist/plugins/device-cpu.so"));
  EXPECT_THAT(outside_of_installation(plugins), Not(HasSubstr(CONSIST_BINARY_DIR)));
}

TEST_F(External, EveryPublicHeaderIsInstalled) {
  for (const fs::directory_entry& header : fs::directory_iterator(CONSIST_SOURCE_DIR "/core/include/consist")) {
    EXPECT_TRUE(fs::exists(prefix_ + "/include/consist/" + header.path().filename().string())) << header.path();
  }
}

TEST_F(External, ThePluginIsListedWithItsOptions) {
  EXPECT_THAT(consist({"plugins"}), Not(HasSubstr("ddp-plain")));
  EXPECT_THAT(consist({"plugins", "--plugin", plugin_}),
              ::testing::ContainsRegex("strategy +ddp-plain +1\\.0\\.0 +yes +" + plugin_));
  EXPECT_THAT(consist({"plugins", "ddp-plain", "--plugin", plugin_}),
              AllOf(HasSubstr("--ddp-plain.message  (all|each, default all)"),
                    ::testing::ContainsRegex("built for: .*, of which it includes .* strategy\\.h")));
}

TEST_F(External, ItsProgramHasTheMessagesThatItsOptionAsksFor) {
  const std::string all = explain({"ddp-plain"});
  EXPECT_EQ(all_reduces_of(all, "ddp-plain"), 1u);
  EXPECT_EQ(all_reduces_of(all, "ddp"), 0u);
  // llama-tiny: 4 layers of 9 parameters each, embedding, last norm, head.
  EXPECT_EQ(all_reduces_of(explain({"ddp-plain", "--ddp-plain.message", "each"}), "ddp-plain"), 4u * 9 + 3);
}

TEST_F(External, ItsLossesAreThoseOfDdp) {
  for (const std::string precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const Curves expected = train(precision, {"ddp"});
    ASSERT_EQ(expected.loss.size(), 5u);
    ASSERT_LT(expected.loss.back(), expected.loss.front()) << "nothing was learnt, so that equal losses would say little";
    for (const char* message : {"all", "each"}) {
      // Two ranks: a sum of two has no order, so the numbers are the same to the last bit.
      const Curves found = train(precision, {"ddp-plain", "--ddp-plain.message", message});
      EXPECT_EQ(found.loss, expected.loss) << message;
      // Squares of gradients that are late are added up apart, and the two strategies are late with others.
      EXPECT_THAT(found.grad_norm, ::testing::Pointwise(::testing::DoubleNear(3e-6), expected.grad_norm)) << message;
    }
  }
}

/// The fenced blocks of a language, in order, one after the other, without empty lines.
std::string blocks_of(const std::string& page, const std::string& language) {
  const std::string fence = "```" + language + "\n";
  std::string code;
  for (std::size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at + 1)) {
    const std::size_t begin = at + fence.size();
    code += page.substr(begin, page.find("```", begin) - begin);
  }
  return code;
}

std::string without_empty_lines(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += line.empty() ? "" : line + "\n";
  return result;
}

TEST_F(External, AScheduleSetsTheRateOfEachStep) {
  const std::string archive = *folder_ / "schedule.h5";
  const std::string output = consist({"train",      "--plugin",         schedule_,   "--device",         "cpu",  "--model",
                                      "llama-tiny", "--dataset",        "synthetic", "--sequence",       "8",    "--batch",
                                      "1",          "--steps",          "6",         "--learning-rate",  "1e-3", "--schedule",
                                      "trapezoid",  "--trapezoid.rise", "1",         "--trapezoid.fall", "4",    "--archive",
                                      archive});
  EXPECT_THAT(output, HasSubstr("learning rate 0.001, constant, to zero in the last 4 steps after 1 step of warm-up"));
  const std::vector<double> expected{5e-4, 1e-3, 1e-3, 7.5e-4, 5e-4, 2.5e-4};
  EXPECT_THAT(ArchiveReader(archive).column("learning_rate"), ::testing::Pointwise(::testing::DoubleNear(1e-15), expected));
  EXPECT_THAT(consist({"check", schedule_, "--option", "fall=3"}), HasSubstr("schedule 'trapezoid' conforms"));
}

// Whoever types what docs/plugins.md prints has the plugin that this test builds.
TEST_F(External, WhatTheDocumentPrintsIsTheWholePlugin) {
  const std::string page = read_whole(CONSIST_SOURCE_DIR "/docs/plugins.md");
  const std::string folder = CONSIST_SOURCE_DIR "/tests/external/ddp-plain/";
  EXPECT_EQ(without_empty_lines(blocks_of(page, "cpp")), without_empty_lines(read_whole(folder + "strategy.cpp")));
  EXPECT_EQ(without_empty_lines(blocks_of(page, "cmake")), without_empty_lines(read_whole(folder + "CMakeLists.txt")));
}

TEST_F(External, AProjectWithoutABuildTypeIsOptimized) {
  EXPECT_THAT(read_whole(installed_ + "/ddp-plain/CMakeCache.txt"), HasSubstr("CMAKE_BUILD_TYPE:STRING=Release"));
}

TEST_F(External, TheInstallationHasDocumentsWhoseLinksLeadSomewhereAndTheExamples) {
  EXPECT_TRUE(fs::exists(prefix_ + "/share/doc/consist/docs/plugins.md"));
  for (const char* example : {"ddp-plain/strategy.cpp", "my-hsdp/README.md", "squared-relu/op.cpp", "mistral/model.cpp"})
    EXPECT_TRUE(fs::exists(prefix_ + "/share/consist/examples/" + example)) << example;
  const std::string output =
      test::run_outside({"python3", CONSIST_SOURCE_DIR "/tests/checks/links.py", prefix_ + "/share/doc/consist"});
  EXPECT_THAT(output, HasSubstr(" pages, 0 links lead nowhere"));
}

/// CMake breaks its messages into lines, where depends on the length of the paths in them.
std::string in_one_line(const std::string& message) {
  std::istringstream words(message);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST_F(External, AHeaderThatWasEditedInPlaceFailsThePluginsBuild) {
  const std::string header = prefix_ + "/include/consist/strategy.h", whole = read_whole(header);
  const fs::file_time_type written = fs::last_write_time(header);
  write_whole(header, whole + "\nnamespace consist { class Added; }\n");
  const test::ChildResult edited = test::run_child({CMAKE_COMMAND, "--build", installed_ + "/ddp-plain"});
  EXPECT_NE(edited.status, 0);
  EXPECT_THAT(in_one_line(edited.output), HasSubstr("are not those that this Consist was built with: strategy.h differ"));
  write_whole(header, whole);
  fs::last_write_time(header, written);  // tests beside this one use the plugin, so that it must not be built again
  test::run_outside({CMAKE_COMMAND, "--build", installed_ + "/ddp-plain"});
}

/// Mistral, built out of tree.
class ExternalMistral : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugin_ = built("mistral") + "model-mistral.so";
  }
  static std::vector<double> losses(const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), {"--plugin", plugin_, "--model", model, "--from-scratch", "--dataset", "synthetic",
                               "--global-batch", "4", "--sequence", "40", "--steps", "4"});
    return Installed::losses(more);
  }

  static inline std::string plugin_;
};

TEST_F(ExternalMistral, WithoutItsWindowItIsLlama) {
  const std::vector<double> llama = losses(model_folder("LlamaForCausalLM", "llama", ""), {});
  ASSERT_EQ(llama.size(), 4u);
  EXPECT_EQ(losses(model_folder("MistralForCausalLM", "mistral", R"(, "sliding_window": null)"), {}), llama);
  EXPECT_EQ(losses(model_folder("MistralForCausalLM", "mistral", R"(, "sliding_window": 40)"), {}), llama);
  EXPECT_NE(losses(model_folder("MistralForCausalLM", "mistral", R"(, "sliding_window": 8)"), {}), llama);
}

TEST_F(ExternalMistral, WithItsWindowEveryLayoutTrainsItAlike) {
  const std::string model = model_folder("MistralForCausalLM", "mistral", R"(, "sliding_window": 8)");
  const std::vector<double> expected = losses(model, {"--accumulation", "2"});
  for (const char* strategy : {"tp-sp=2", "pipeline=2", "zero2"}) {
    const std::vector<double> found = losses(model, {"--ranks", "2", "--strategy", strategy, "--accumulation", "2"});
    EXPECT_THAT(found, ::testing::Pointwise(::testing::DoubleNear(1e-5), expected)) << strategy;
  }
  EXPECT_THAT(consist({"explain", "--plugin", plugin_, "--model", "mistral-7b-v0.1", "--sequence", "8192", "--batch", "1",
                       "--device", "cpu"}),
              HasSubstr("window=4096"));
}

// From the installed tree alone.
TEST_F(External, CheckRunsTheSuiteOfThePluginsKind) {
  const std::string output = consist({"check", plugin_, "--option", "message=each", "--timeout", "100", "--skip", "*Losses*"});
  EXPECT_THAT(output, HasSubstr("StrategyConformance.ProgramsAreLegalAndTheSameEachTime"));
  EXPECT_THAT(output, HasSubstr("consist check: strategy 'ddp-plain' conforms"));
  EXPECT_THAT(outside_of_installation(output), Not(HasSubstr(CONSIST_BINARY_DIR)));
  EXPECT_THAT(consist({"check", prefix_ + "/lib/consist/plugins/dataset-synthetic.so"}),
              ::testing::AllOf(HasSubstr("DatasetConformance"), HasSubstr("dataset 'synthetic' conforms")));
}

class OwnParts : public test::Installed {
 protected:
  static std::vector<double> losses(std::vector<std::string> words) {
    words.insert(words.begin(), {"--sequence", "32", "--steps", "6"});
    return Installed::losses(words);
  }
};

// An op that Consist does not have, its kernel for a device that it has, and a model that uses it.
TEST_F(OwnParts, AnOpWithItsKernelIsSplitByTensorParallelism) {
  const std::string plugins = built("squared-relu");
  const std::vector<std::string> words{"--plugin", plugins, "--model", "plain-decoder-tiny", "--learning-rate", "3e-3"};
  auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<double> one = losses(with({"--batch", "4"}));
  expect_same(losses(with({"--strategy", "tp-sp=2", "--ranks", "2", "--batch", "4"})), one);
  expect_same(losses(with({"--strategy", "zero2", "--ranks", "2", "--batch", "2"})), one);
  EXPECT_THAT(consist({"explain", "--plugin", plugins, "--model", "plain-decoder-tiny", "--device", "cpu", "--ranks", "2",
                       "--strategy", "tp-sp=2", "--sequence", "32"}),
              ::testing::ContainsRegex("= squared_relu\\([^)]*\\) : [^|]*\\{tensor:S2\\}"));  // its channels
  EXPECT_THAT(consist({"check", plugins + "kernels-squared-relu.so"}),
              ::testing::AllOf(HasSubstr("KernelsConformance"), HasSubstr("kernels 'squared-relu' conforms\n")));
  EXPECT_THAT(consist({"check", plugins + "model-plain-decoder.so", "--plugin", plugins + "kernels-squared-relu.so"}),
              HasSubstr("model 'plain-decoder' conforms\n"));
  for (const std::string other : {"lion-and-muon", "my-diloco"})
    EXPECT_THAT(consist({"check", built(other) + (other == "my-diloco" ? "kernels-diloco.so" : "kernels-lion-and-muon.so")}),
                HasSubstr("conforms\n"));
}

TEST_F(OwnParts, ThePageOnKernelsPrintsTheWholePlugin) {
  const std::string page = read_whole(CONSIST_SOURCE_DIR "/docs/kernels.md"),
                    folder = CONSIST_SOURCE_DIR "/tests/external/squared-relu/";
  EXPECT_EQ(without_empty_lines(blocks_of(page, "cpp")),
            without_empty_lines(read_whole(folder + "op.cpp") + "\n" + read_whole(folder + "cpu_kernels.cpp")));
  EXPECT_EQ(without_empty_lines(blocks_of(page, "cmake")), without_empty_lines(read_whole(folder + "CMakeLists.txt")));
}

TEST_F(OwnParts, AnObserverIsToldOfEachStepAndOneThatFailsEndsNothing) {
  const std::string plugin = built("notes-observer") + "observer-notes.so", file = *folder_ / "run.txt";
  const std::vector<std::string> words{"train",
                                       "--plugin",
                                       plugin,
                                       "--device",
                                       "cpu",
                                       "--model",
                                       "llama-tiny",
                                       "--sequence",
                                       "32",
                                       "--steps",
                                       "4",
                                       "--batch",
                                       "1",
                                       "--ranks",
                                       "2",
                                       "--observe",
                                       "notes",
                                       "--notes.file",
                                       file,
                                       "--checkpoint",
                                       *folder_ / "checkpoints"};
  EXPECT_THAT(consist(words), Not(HasSubstr("switched off")));
  const std::string text = read_whole(file);
  EXPECT_THAT(text, ::testing::StartsWith("step,loss,grad_norm,learning_rate,seconds,tokens\n1,"));
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("\n4,"), Not(HasSubstr("\n5,")), HasSubstr("# checkpoint of step 4"),
                                     HasSubstr("# finished\n")));
  std::vector<std::string> failing = words;
  failing.back() = *folder_ / "others";
  failing.insert(failing.end(), {"--notes.fail-at", "2"});
  const std::string output = consist(failing);  // which expects status 0
  EXPECT_THAT(output, ::testing::AllOf(HasSubstr("observer 'notes' failed and is switched off"), HasSubstr("step 4/4")));
  EXPECT_THAT(read_whole(file), Not(HasSubstr("\n2,")));
}

TEST_F(OwnParts, ADatasetOfExamplesWithLossMasksTrainsTheSameInEveryLayout) {
  const std::string plugin = built("masked-ids") + "dataset-masked-ids.so", file = *folder_ / "examples.jsonl";
  std::string text, unmasked;
  for (int example = 0; example < 400; ++example) {
    std::string ids, mask, ones;
    for (int i = 0; i < 5 + example % 17; ++i) {
      const std::string comma = i == 0 ? "" : ", ";
      ids += comma + std::to_string((example * 7 + i * i * 3) % 50 + i % 3);
      mask += comma + (i < 2 + example % 4 ? "0" : "1");
      ones += comma + "1";
    }
    text += "{\"ids\": [" + ids + "], \"mask\": [" + mask + "]}\n";
    unmasked += "{\"ids\": [" + ids + "], \"mask\": [" + ones + "]}\n";
  }
  const auto write = [&](const std::string& content) { std::ofstream(file) << content; };
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--plugin", plugin, "--dataset", "masked-ids", "--masked-ids.file", file, "--model", "llama-tiny",
                             "--learning-rate", "1e-3"});
    return more;
  };
  write(text);
  const std::vector<double> one = losses(with({"--batch", "8"}));
  expect_same(losses(with({"--batch", "2", "--accumulation", "4"})), one);
  expect_same(losses(with({"--batch", "2", "--accumulation", "2", "--ranks", "2"})), one);
  expect_same(losses(with({"--batch", "4", "--ranks", "2", "--strategy", "zero2"})), one);
  expect_same(losses(with({"--batch", "4", "--accumulation", "2", "--ranks", "2", "--strategy", "pipeline=2"})), one);
  write(unmasked);
  EXPECT_GT(std::abs(losses(with({"--batch", "8"})).front() / one.front() - 1), 1e-5) << "the mask changes nothing";
  EXPECT_THAT(consist({"check", plugin, "--option", "file=" + file, "--skip", "*Losses*"}),
              HasSubstr("dataset 'masked-ids' conforms"));
}

}  // namespace
}  // namespace consist
