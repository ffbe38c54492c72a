// Tensor parallel runs give the losses of one rank: models whose heads, words and channels ranks share in every way there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/archive/reader.h"
#include "tests/child_process.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"

namespace consist {
namespace {

using Json = nlohmann::json;

/// What is changed in a golden model's config.json.
struct Case {
  const char* name;
  const char* golden;
  Json changes;
  const char* precision;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class TensorParallelParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    std::ifstream golden(std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/" + GetParam().golden + "/config.json");
    Json config = Json::parse(golden);
    config.update(GetParam().changes);
    std::ofstream(folder_ / "config.json") << config;
  }

  struct Curves {
    std::vector<double> loss, grad_norm;
    double evaluation = 0;
  };

  Curves train(const std::vector<std::string>& make_up) const {
    const std::string archive = folder_ / "run.h5";
    std::vector<std::string> command{CONSIST_BINARY_DIR "/bin/consist",
                                     "train",
                                     "--device=cpu",
                                     "--dataset=synthetic",
                                     "--from-scratch",
                                     "--overwrite",
                                     "--model=" + (folder_ / ""),
                                     "--precision=" + std::string(GetParam().precision),
                                     "--sequence=16",
                                     "--steps=10",
                                     "--global-batch=4",
                                     "--learning-rate=1e-3",
                                     "--evaluate-every=10",
                                     "--evaluate-sequences=8",
                                     "--archive=" + archive};
    command.insert(command.end(), make_up.begin(), make_up.end());
    const test::ChildResult result = test::run_child(command);
    if (result.status != 0) throw std::runtime_error(result.output);
    const ArchiveReader reader(archive);
    Curves curves{reader.column("loss"), reader.column("grad_norm")};
    for (const ArchiveEvent& event : reader.events()) {
      if (event.kind == "evaluation") curves.evaluation = Json::parse(event.text).at("loss").get<double>();
    }
    return curves;
  }

  TemporaryFolder folder_;
};

TEST_P(TensorParallelParity, LossesAreThoseOfOneRank) {
  const Curves expected = train({"--strategy=ddp", "--ranks=1"});
  ASSERT_EQ(expected.loss.size(), 10U);
  ASSERT_GT(expected.evaluation, 0);
  ASSERT_LT(expected.loss.back(), expected.loss.front()) << "nothing was learnt, so that equal losses would say little";
  const double tolerance = test::layout_loss_tolerance(GetParam().precision);
  double worst = 0;
  std::vector<std::vector<std::string>> layouts = {
      {"--strategy=tp-sp=2", "--ranks=2"},
      {"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.sequence-parallel=false"},
      {"--strategy=tp-sp=2", "--ranks=2", "--accumulation=2", "--tp-sp.logits-bytes=1500",
       "--tp-sp.delay-weight-gradients=false"},
      {"--strategy=tp-sp=2", "--ranks=2", "--tp-sp.overlap-parts=4", "--tp-sp.gather-again"},
      {"--strategy=tp-sp=4", "--ranks=4", "--accumulation=4", "--recompute", "full"},
      {"--strategy=tp-sp=2+ddp", "--ranks=4", "--accumulation=2", "--ddp.bucket-size=10Ki"},
  };
  // Stretches of single sequences, which only a vocabulary that divides allows.
  if (GetParam().golden != std::string("llama-untied"))
    layouts.push_back({"--strategy=tp-sp=2", "--ranks=2", "--accumulation=4", "--tp-sp.overlap-parts=2", "--tp-sp.gather-again"});
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(testing::PrintToString(layout));
    const Curves found = train(layout);
    ASSERT_EQ(found.loss.size(), expected.loss.size());
    for (std::size_t step = 0; step < found.loss.size(); ++step) {
      EXPECT_NEAR(found.loss[step] / expected.loss[step], 1, tolerance) << "loss of step " << step + 1;
      // Norms are sums over all elements: no part may be counted twice or left out.
      EXPECT_NEAR(found.grad_norm[step] / expected.grad_norm[step], 1, 10 * tolerance) << "grad_norm of step " << step + 1;
      worst = std::max(worst, std::abs(found.loss[step] / expected.loss[step] - 1));
    }
    EXPECT_NEAR(found.evaluation / expected.evaluation, 1, tolerance) << "loss of the evaluation";
  }
  std::printf("largest relative deviation of a loss: %.2g (tolerance %.2g)\n", worst, tolerance);
}

// llama-tied: as many key/value heads as heads. qwen3: two key/value heads for four ranks. llama-untied: 101 words, which nobody
// can share. biases: Qwen2.5's, of q, k and v.
INSTANTIATE_TEST_SUITE_P(
    MakeUps, TensorParallelParity,
    testing::Values(Case{"llama_tied_fp32", "llama-tied", Json::object(), "fp32"},
                    Case{"llama_tied_bf16", "llama-tied", Json::object(), "bf16"},
                    Case{"qwen3_tied_fp32", "qwen3-untied", {{"tie_word_embeddings", true}}, "fp32"},
                    Case{"qwen3_tied_bf16", "qwen3-untied", {{"tie_word_embeddings", true}}, "bf16"},
                    Case{"llama_untied_fp32", "llama-untied", Json::object(), "fp32"},
                    Case{"biases_fp32",
                         "qwen2.5-bias",
                         {{"hidden_size", 64}, {"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"vocab_size", 96}},
                         "fp32"}),
    [](const auto& info) { return std::string(info.param.name); });

/// Refused before anything starts, with the reason.
TEST(TensorParallel, RefusesWhatRanksCannotShare) {
  const std::string golden = std::string(CONSIST_SOURCE_DIR) + "/tests/golden/hf/";
  const auto refused = [&](const std::string& model, const std::string& ranks, const std::string& sequence, const char* why) {
    const test::ChildResult result = test::run_child(
        {CONSIST_BINARY_DIR "/bin/consist", "train", "--device=cpu", "--dataset=synthetic", "--from-scratch",
         "--model=" + golden + model, "--sequence=" + sequence, "--steps=1", "--ranks=" + ranks, "--strategy=tp-sp=" + ranks});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.output, testing::HasSubstr(why));
  };
  refused("qwen3-tied", "2", "16", "the number of attention heads is 7");
  refused("llama-rope-scaled", "3", "16", "which the ranks cannot share equally; choose a multiple of 3");
  refused("llama-tied", "4", "18", "--sequence is 18");
}

}  // namespace
}  // namespace consist
