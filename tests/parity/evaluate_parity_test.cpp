// `consist evaluate`: the loss of transformers, in every layout, and of checkpoints the one that the run itself has measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/consist_program.h"
#include "tests/parity/reference.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using nlohmann::json;
using test::program;
using ::testing::HasSubstr;

const std::string models = CONSIST_SOURCE_DIR "/tests/golden/hf/";
constexpr std::int64_t sequence = 32, sequences = 7;  // the last round of two sequences at a time is not full

json evaluated(std::vector<std::string> options, const std::string& file) {
  options.insert(options.begin(), {program, "evaluate", "--device=cpu", "--cpu.threads=1", "--json=" + file});
  const test::ChildResult result = test::run_child(options);
  EXPECT_EQ(result.status, 0) << result.output;
  std::ifstream written(file);
  return json::parse(written);
}

std::vector<std::string> on_synthetic(const std::string& model, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model=" + model, "--dataset=synthetic", "--sequence=" + std::to_string(sequence), "--batch=2",
                           "--evaluate-sequences=" + std::to_string(sequences), "--seed=3"});
  return more;
}

/// The rows of a reference, one behind the other, as a file of u16.
std::int64_t write_rows(const std::string& model, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::int64_t count = 0;
  for (const auto& batch : test::read_reference(model).batches) {
    for (const auto& row : batch) {
      for (const std::int32_t token : row) {
        const auto id = static_cast<std::uint16_t>(token);
        file.write(reinterpret_cast<const char*>(&id), sizeof id);
        ++count;
      }
    }
  }
  return count;
}

class EvaluateParity : public ::testing::TestWithParam<const char*> {};

TEST_P(EvaluateParity, TheLossIsThatOfTransformers) {
  const double expected = test::generate_references().at(GetParam()).at("loss");
  const TemporaryFolder temporary;
  const std::string tokens = temporary / "rows.u16";
  const std::int64_t windows = (write_rows(GetParam(), tokens) - 1) / sequence;
  const json made =
      evaluated({"--model=" + models + GetParam(), "--dataset=tokens", "--tokens.files=" + tokens,
                 "--tokens.eval-files=" + tokens, "--tokens.format=u16", "--sequence=32", "--batch=4", "--evaluate-sequences=0"},
                temporary / "made.json");
  EXPECT_NEAR(made.at("loss").get<double>(), expected, 1e-6);
  EXPECT_NEAR(made.at("perplexity").get<double>(), std::exp(expected), 2e-6 * std::exp(expected));
  EXPECT_EQ(made.at("sequences"), windows);
  EXPECT_EQ(made.at("tokens"), windows * sequence);
}
INSTANTIATE_TEST_SUITE_P(Models, EvaluateParity,
                         ::testing::Values("llama-tied", "qwen3-untied", "qwen2.5-window", "mixtral", "qwen3-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(Evaluate, LayoutsGiveTheLossOfOneRank) {
  const TemporaryFolder temporary;
  const std::string model = models + "qwen3-untied";
  const double one = evaluated(on_synthetic(model), temporary / "one.json").at("loss");
  for (const std::string layout : {"ddp", "zero3-offload", "tp-sp=2", "pipeline=2", "cp=2"}) {
    SCOPED_TRACE(layout);
    const json made = evaluated(on_synthetic(model, {"--ranks=2", "--strategy=" + layout}), temporary / (layout + ".json"));
    EXPECT_NEAR(made.at("loss").get<double>(), one, 1e-6);
    EXPECT_EQ(made.at("tokens"), sequences * sequence);
  }
}

TEST(Evaluate, ACheckpointHasTheLossThatItsRunMeasured) {
  const TemporaryFolder temporary;
  for (const std::string precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const std::string checkpoints = temporary / precision;
    const ArchiveReader run = test::train_from_scratch(
        temporary / (precision + ".h5"),
        {"--model=" + models + "qwen3-tied", "--steps=4", "--sequence=32", "--batch=2", "--ranks=2", "--strategy=zero2",
         "--evaluate-every=4", "--evaluate-sequences=9", "--checkpoint=" + checkpoints, "--precision=" + precision});
    // Model, precision, dataset, sequence and batch are the run's; the layout need not be.
    const json made = evaluated({"--checkpoint=" + checkpoints, "--cpu.bf16=emulated"}, temporary / (precision + ".json"));
    EXPECT_NEAR(made.at("loss").get<double>(), test::evaluation_loss(run), precision == "fp32" ? 1e-6 : 1e-4);
    EXPECT_EQ(made.at("sequences"), 9);
  }
}

TEST(Evaluate, SaysWhatItCannotDo) {
  const TemporaryFolder temporary;
  const auto refused = [](std::vector<std::string> options, const std::string& message) {
    options.insert(options.begin(), {program, "evaluate", "--device=cpu"});
    const test::ChildResult result = test::run_child(options);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
  };
  refused({"--model=llama-tiny"}, "--model llama-tiny is a preset, whose weights are random until they are trained");
  refused({"--model=" + models + "qwen3-tied", "--steps=4"}, "--steps has no meaning for consist evaluate");
  refused({"--checkpoint=" + temporary.path().string()}, "there is no checkpoint in that folder");
  refused({"--model=" + models + "qwen3-tied"}, "has no tokenizer.json");
}

}  // namespace
}  // namespace consist
