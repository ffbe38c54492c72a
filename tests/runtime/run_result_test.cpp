// The figures of a run, each against what it is made from.
#include "core/record/run_result.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "consist/error.h"
#include "core/plan/found_model.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/record/metrics.h"
#include "tests/golden_config.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

using nlohmann::json;

const std::string golden = CONSIST_SOURCE_DIR "/tests/golden/hf/";

/// docs/metrics.md, from the numbers of a Hugging Face config.json.
double model_flops_by_hand(const json& config, std::int64_t sequence) {
  const double hidden = config.at("hidden_size"), layers = config.at("num_hidden_layers"),
               heads = config.at("num_attention_heads"), kv_heads = config.at("num_key_value_heads"),
               ffn = config.at("intermediate_size"), vocabulary = config.at("vocab_size");
  const double head_dim =
      config.contains("head_dim") && !config["head_dim"].is_null() ? config["head_dim"].get<double>() : hidden / heads;
  const double layer = hidden * heads * head_dim * 2 + hidden * kv_heads * head_dim * 2 + 3 * hidden * ffn;
  return 6 * (layers * layer + hidden * vocabulary) + 6 * layers * heads * head_dim * static_cast<double>(sequence);
}

TEST(ExpertLoad, IsThatOfTheLeastBalancedRouter) {
  const std::vector<Router> routers{{.layer = 0, .experts = 4}, {.layer = 2, .experts = 2}};
  EXPECT_DOUBLE_EQ(largest_load(std::vector<float>{2, 2, 2, 2, 4, 4, 0, 0}, routers), 1);
  EXPECT_DOUBLE_EQ(largest_load(std::vector<float>{2, 2, 4, 0, 3, 5, 0, 0}, routers), 2);
  EXPECT_DOUBLE_EQ(largest_load(std::vector<float>{2, 2, 2, 2, 0, 6, 0, 0}, routers), 2) << "of two experts";
  EXPECT_DOUBLE_EQ(largest_load(std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0}, routers), 0);
  EXPECT_DOUBLE_EQ(largest_load({}, {}), 0);
}

TEST(ModelFlops, AreSixPerWeightOfAProductAndCausalAttention) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  for (const std::string model : {"llama-untied", "qwen3-tied", "llama-tied"}) {
    RunConfig config;
    config.model = golden + model;
    const ModelSizes sizes = model_sizes(config, host);
    for (const std::int64_t sequence : {16, 4096})
      EXPECT_DOUBLE_EQ(model_flops_per_token(sizes, sequence), model_flops_by_hand(test::golden_config(model), sequence))
          << model;
  }
}

// Query q sees min(q + 1, window) keys; attention's FLOPs are 12 per key, head and element of a head.
TEST(ModelFlops, CountTheKeysOfAWindowOnly) {
  const std::int64_t window = 64, sequence = 1000;
  const ModelSizes sizes{.layers = 5, .heads = 3, .head_dim = 8, .window = window, .windowed_layers = 2};
  double keys = 0;
  for (std::int64_t q = 0; q < sequence; ++q)
    keys += 3.0 * (static_cast<double>(q) + 0.5) + 2.0 * std::min(static_cast<double>(q) + 0.5, static_cast<double>(window));
  const double expected = 12.0 * 3 * 8 * keys / static_cast<double>(sequence);
  EXPECT_NEAR(model_flops_per_token(sizes, sequence), expected, 1e-3 * expected);
}

TEST(SteadyState, IsTheMedianBehindTheWarmUp) {
  // Ten steps: two of warm-up (slow), eight behind.
  const std::vector<double> seconds{9, 8, 5, 1, 2, 3, 4, 6, 7, 10};
  const Steady steady = steady_state(seconds);
  EXPECT_EQ(steady.first_step, 3);
  EXPECT_EQ(steady.steps, 8);
  EXPECT_DOUBLE_EQ(steady.median_seconds, 4.5);
  EXPECT_DOUBLE_EQ(steady.low_seconds, 2);
  EXPECT_DOUBLE_EQ(steady.high_seconds, 7);
  EXPECT_EQ(steady_state(std::vector<double>(100, 1.0)).steps, 90) << "ten steps of warm-up at most";
  EXPECT_EQ(steady_state(std::vector<double>{3}).median_seconds, 3);
}

TEST(Mfu, IsOfThePeakInTheRunsPrecision) {
  const DeviceInfo device{
      .peak_flops_fp32 = 67e12, .peak_flops_tf32 = 495e12, .peak_flops_bf16 = 989e12, .peak_flops_fp8 = 1979e12};
  EXPECT_EQ(peak_flops(device, "fp32"), 67e12);
  EXPECT_EQ(peak_flops(device, "tf32"), 495e12);
  EXPECT_EQ(peak_flops(device, "bf16"), 989e12);
  EXPECT_EQ(peak_flops(device, "fp8"), 1979e12);
  EXPECT_EQ(peak_flops(device, "int4"), 0);
  RunResult result{.model_flops = 400e12, .peak_flops = 989e12};
  EXPECT_DOUBLE_EQ(result.mfu().value(), 400.0 / 989);
  EXPECT_DOUBLE_EQ(json::parse(result_json(result)).at("mfu").get<double>(), 400.0 / 989);
  result.peak_flops = 0;
  EXPECT_FALSE(result.mfu().has_value());
  EXPECT_TRUE(json::parse(result_json(result)).at("mfu").is_null());
  EXPECT_TRUE(json::parse(result_json(result)).at("peak_flops_per_second").is_null());
}

/// One run, whose archive the tests below read.
class ArchiveOfARun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    archive_ = new ArchiveReader(test::train_from_scratch(
        *folder_ / "run.h5", {"--model=" + golden + "llama-untied", "--sequence=16", "--batch=2", "--accumulation=2", "--ranks=2",
                              "--steps=6", "--evaluate-every=3", "--evaluate-sequences=5", "--precision=bf16", "--linear.warmup=2",
                              "--schedule=linear", "--linear.final-rate=0.5", "--checkpoint=" + (*folder_ / "ck")}));
  }
  static void TearDownTestSuite() {
    delete archive_;
    delete folder_;
    archive_ = nullptr;
    folder_ = nullptr;
  }
  static json text(const std::string& path) { return json::parse(archive_->text(path)); }
  static double sum(const std::string& column) {
    const std::vector<double> values = archive_->column(column);
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  static TemporaryFolder* folder_;
  static ArchiveReader* archive_;
};
TemporaryFolder* ArchiveOfARun::folder_ = nullptr;
ArchiveReader* ArchiveOfARun::archive_ = nullptr;

TEST_F(ArchiveOfARun, HasRatesThatFollowFromItsSteps) {
  const json result = text("/result");
  const Steady steady = steady_state(archive_->column("seconds"));
  constexpr double sequences = 2 * 2 * 2, tokens = sequences * 16;
  for (const double recorded : archive_->column("tokens")) EXPECT_EQ(recorded, tokens);
  EXPECT_DOUBLE_EQ(result.at("tokens_per_second").get<double>(), tokens / steady.median_seconds);
  EXPECT_DOUBLE_EQ(result.at("samples_per_second").get<double>(), sequences / steady.median_seconds);
  const std::vector<double> seconds = archive_->column("seconds"), samples = archive_->column("samples_per_second");
  for (std::size_t i = 0; i < seconds.size(); ++i) EXPECT_DOUBLE_EQ(samples[i], sequences / seconds[i]);
  const double model_flops = tokens / steady.median_seconds / 2 * model_flops_by_hand(test::golden_config("llama-untied"), 16);
  EXPECT_NEAR(result.at("model_flops_per_second").get<double>() / model_flops, 1, 1e-12);
  EXPECT_TRUE(result.at("mfu").is_null()) << "a processor's peak is not known";
  if (result.at("bound_flops_per_second").is_null()) {
    EXPECT_TRUE(result.at("share_of_bound").is_null());
    EXPECT_NE(result.at("bound_problem"), "");
  } else {
    EXPECT_DOUBLE_EQ(result.at("share_of_bound").get<double>(),
                     result.at("model_flops_per_second").get<double>() / result.at("bound_flops_per_second").get<double>());
  }
}

TEST_F(ArchiveOfARun, SaysWhereItsTimeWent) {
  const json result = text("/result");
  EXPECT_NEAR(result.at("step_seconds").get<double>(), sum("seconds"), 1e-9);
  EXPECT_NEAR(result.at("data_seconds").get<double>(), sum("data_seconds"), 1e-9);
  double named = 0;
  for (const char* part : {"start", "step", "data", "evaluation", "checkpoint"}) {
    const double seconds = result.at(std::string(part) + "_seconds");
    EXPECT_GT(seconds, 0) << part;
    named += seconds;
  }
  EXPECT_GE(result.at("total_seconds").get<double>() * 1.01 + 0.02, named) << "the clock of processes ticks in 10 ms";
  EXPECT_LT(result.at("total_seconds").get<double>(), 60);
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(result.at("ended").get<double>(), now, 600);
}

TEST_F(ArchiveOfARun, HasItsEvaluationsAsColumns) {
  const std::vector<ArchivedEvaluation> evaluations = archive_->evaluations();
  ASSERT_EQ(evaluations.size(), 2U);
  EXPECT_EQ(evaluations[0].step, 3);
  EXPECT_EQ(evaluations[1].step, 6);
  double seconds = 0;
  for (const ArchivedEvaluation& evaluation : evaluations) {
    EXPECT_EQ(evaluation.sequences, 5);
    seconds += evaluation.seconds;
  }
  const json result = text("/result");
  EXPECT_EQ(result.at("evaluation_loss"), evaluations[1].loss);
  EXPECT_EQ(result.at("evaluation_sequences"), 5);
  EXPECT_NEAR(result.at("evaluation_seconds").get<double>(), seconds, 1e-9);
  EXPECT_LT(evaluations[0].time, evaluations[1].time);
}

TEST_F(ArchiveOfARun, HasTheVersionsOfWhatItRestsOn) {
  const json environment = text("/environment");
  for (const char* what : {"host", "system", "processor", "device"}) EXPECT_NE(environment.at(what), "") << what;
  EXPECT_GE(environment.at("usable_cores"), 1);
  EXPECT_EQ(environment.at("planned_for"), (json{{"machine", "cpu"}, {"origin", "the device's"}}));
  const std::string onednn = environment.at("versions").at("onednn");
  EXPECT_EQ(std::count(onednn.begin(), onednn.end(), '.'), 2) << onednn;
}

TEST_F(ArchiveOfARun, HasTheLearningRateOfEachStep) {
  const std::vector<double> expected{1e-3 / 3, 1e-3 * 2 / 3, 1e-3, 1e-3 * 0.875, 1e-3 * 0.75, 1e-3 * 0.625};
  const std::vector<double> rates = archive_->column("learning_rate");
  ASSERT_EQ(rates.size(), expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-12) << "step " << i + 1;
}

// Where the processor has bf16 instructions, the run measures once which way is faster, and says so.
TEST_F(ArchiveOfARun, SaysHowItMultipliesBf16AndWhy) {
  const json chosen = text("/config").at("chosen_options"), notes = text("/environment").at("device_notes");
  if (chosen.empty()) {
    EXPECT_NE(text("/environment").at("device").get<std::string>().find("bf16 emulated"), std::string::npos);
    GTEST_SKIP() << "this processor leaves nothing to choose";
  }
  const std::string way = chosen.at("cpu").at("bf16");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].get<std::string>().find("bf16 products " + way), std::string::npos) << notes;
  EXPECT_NE(notes[0].get<std::string>().find("FLOP/s"), std::string::npos) << notes;
  EXPECT_NE(text("/environment").at("device").get<std::string>().find("bf16 " + way), std::string::npos);
}

}  // namespace
}  // namespace consist
