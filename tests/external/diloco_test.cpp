// DiLoCo of a third party (tests/external/my-diloco): rounds of steps in which replicas send nothing, and the outer step behind
// them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/weights/model_weights.h"
#include "tests/external/installed.h"

namespace consist {
namespace {

class OwnDiloco : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugins_ = built("my-diloco");
    model_ = model_folder("LlamaForCausalLM", "llama", "");
  }
  static std::vector<double> losses(const std::vector<std::string>& more) {
    std::vector<std::string> words{"--plugin",    plugins_, "--model",    model_, "--from-scratch",
                                   "--precision", "fp32",   "--sequence", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return Installed::losses(words);
  }
  /// Bytes that a rank sent to replicas in the newest run.
  static double sent() {
    const auto traffic = nlohmann::json::parse(ArchiveReader(*folder_ / "losses.h5").text("/comm"));
    return traffic.at("axes").at(0).at("counted_bytes");
  }
  static inline std::string plugins_, model_;
};

// With one step of SGD in a round, what a replica has moved is its gradient times the rate: the outer step is Nesterov's on the
// mean gradient.
TEST_F(OwnDiloco, RoundsOfOneStepAreNesterovsMomentumOnTheMeanGradient) {
  const std::vector<std::string> run{"--dataset", "synthetic", "--ranks", "2",      "--batch", "2",           "--accumulation",
                                     "2",         "--steps",   "20",      "--clip", "0",       "--optimizer", "sgd"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return losses(more);
  };
  const std::vector<double> expected =
      with({"--strategy", "ddp", "--learning-rate", "0.35", "--sgd.momentum", "0.9", "--sgd.nesterov"});
  ASSERT_EQ(expected.size(), 20u);
  expect_same(with({"--strategy", "my-diloco", "--my-diloco.every", "1", "--my-diloco.rate", "0.7", "--my-diloco.momentum", "0.9",
                    "--learning-rate", "0.5", "--sgd.momentum", "0"}),
              expected);
}

/// Weights of a run, one behind the other.
std::vector<float> weights_of(const std::string& folder) {
  const ModelWeights weights(folder);
  std::vector<float> all;
  for (const std::string& name : weights.names()) {
    std::vector<float> values(static_cast<std::size_t>(weights.shape(name).elements()));
    weights.read_f32(name, 0, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Two replicas beside two runs of one rank, each on the sequences of one of the replicas. The dataset gives sequences in the
// order of the file where their number divides the seed.
TEST_F(OwnDiloco, ARoundIsWhatReplicasDoAloneAndThenTheOuterStep) {
  const std::string jsonl = built("masked-ids") + "dataset-masked-ids.so", of_both = *folder_ / "both.jsonl",
                    of_first = *folder_ / "first.jsonl", of_second = *folder_ / "second.jsonl";
  std::ofstream both(of_both), first(of_first), second(of_second);
  for (int sequence = 0; sequence < 8; ++sequence) {
    std::string ids, mask;
    for (int i = 0; i < 16; ++i) {
      ids += (i == 0 ? "" : ", ") + std::to_string((sequence * 37 + i * i * (sequence + 2)) % 512);
      mask += i == 0 ? "0" : ", 1";  // a sequence is not asked for the first token of the next one
    }
    const std::string line = "{\"ids\": [" + ids + "], \"mask\": [" + mask + "]}\n";
    both << line;
    (sequence % 2 == 0 ? first : second) << line;
  }
  for (std::ofstream* file : {&both, &first, &second}) {
    *file << "{\"ids\": [0], \"mask\": [0]}\n";
    file->close();
  }
  const auto run = [&](const std::string& file, const std::string& exported, const std::vector<std::string>& more) {
    // One thread, which each of two ranks has on two cores anyway: products are split by threads, and their rounding with them.
    std::vector<std::string> words{
        "--plugin", jsonl,           "--dataset", "masked-ids", "--masked-ids.file", file, "--seed", "8", "--batch",
        "1",        "--cpu.threads", "1",         "--export",   *folder_ / exported};
    words.insert(words.end(), more.begin(), more.end());
    return losses(words);
  };
  const std::vector<std::string> steps{"--steps", "4", "--learning-rate", "1e-2"};
  run(of_both, "begin", {"--steps", "1", "--learning-rate", "0"});
  const std::vector<double> alone_first = run(of_first, "first", steps), alone_second = run(of_second, "second", steps);
  const std::vector<double> together = run(of_both, "together",
                                           {"--steps", "4", "--learning-rate", "1e-2", "--ranks", "2", "--strategy", "my-diloco",
                                            "--my-diloco.every", "4", "--my-diloco.rate", "0.7", "--my-diloco.momentum", "0.9"});
  const double once = sent();
  ASSERT_EQ(together.size(), 4u);
  for (std::size_t s = 0; s < 4; ++s) EXPECT_NEAR(together[s], (alone_first[s] + alone_second[s]) / 2, 1e-5) << "step " << s + 1;
  EXPECT_GT(std::abs(alone_first[3] - alone_second[3]), 1e-3) << "the replicas learn the same, so that a mean says little";

  const std::vector<float> begin = weights_of(*folder_ / "begin"), one = weights_of(*folder_ / "first"),
                           two = weights_of(*folder_ / "second"), found = weights_of(*folder_ / "together");
  ASSERT_EQ(found.size(), begin.size());
  double furthest = 0, worst = 0;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const double moved = begin[i] - (static_cast<double>(one[i]) + two[i]) / 2;
    // Nesterov's momentum, from zero.
    worst = std::max(worst, std::abs(found[i] - (begin[i] - 0.7 * (moved + 0.9 * moved))));
    furthest = std::max(furthest, std::abs(moved));
  }
  EXPECT_GT(furthest, 1e-2);
  EXPECT_LT(worst, 1e-5);

  // In a round nothing is sent but what all strategies send: the loss, its count, the stop requests.
  const auto bytes = [&](const char* every) {
    run(of_both, std::string("every") + every,
        {"--steps", "4", "--ranks", "2", "--strategy", "my-diloco", "--my-diloco.every", every});
    return sent();
  };
  const double never = bytes("5"), twice = bytes("2");
  EXPECT_LT(never, 200);
  EXPECT_NEAR(once - never, 4.0 * static_cast<double>(begin.size()), 0.01 * once);  // a ring of two sends each element once
  EXPECT_NEAR(twice - never, 2 * (once - never), 0.01 * once);
}

// Within a round replicas have weights and moments of their own, which a checkpoint must hold apart.
TEST_F(OwnDiloco, ARunGoesOnFromTheMiddleOfARound) {
  const std::string folder = *folder_ / "diloco-checkpoints";
  const auto run = [&](const char* steps, const std::string& into, const std::vector<std::string>& more) {
    std::vector<std::string> words{"--dataset",    "synthetic", "--ranks",           "2", "--batch", "2",
                                   "--strategy",   "my-diloco", "--my-diloco.every", "4", "--steps", steps,
                                   "--checkpoint", into};
    words.insert(words.end(), more.begin(), more.end());
    return losses(words);
  };
  const std::vector<double> whole = run("10", *folder_ / "diloco-whole", {});
  ASSERT_EQ(whole.size(), 10u);
  run("6", folder, {});  // two steps into the second round
  const std::vector<double> rest = run("10", folder, {"--resume"});
  ASSERT_EQ(rest.size(), 4u);
  EXPECT_EQ(rest, std::vector<double>(whole.end() - 4, whole.end()));

  const test::ChildResult other = test::run_child({prefix_ + "/bin/consist",
                                                   "train",
                                                   "--plugin",
                                                   plugins_,
                                                   "--model",
                                                   model_,
                                                   "--from-scratch",
                                                   "--precision",
                                                   "fp32",
                                                   "--sequence",
                                                   "16",
                                                   "--dataset",
                                                   "synthetic",
                                                   "--device",
                                                   "cpu",
                                                   "--batch",
                                                   "1",
                                                   "--ranks",
                                                   "4",
                                                   "--strategy",
                                                   "my-diloco",
                                                   "--my-diloco.every",
                                                   "4",
                                                   "--steps",
                                                   "12",
                                                   "--checkpoint",
                                                   folder,
                                                   "--resume"});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.output, ::testing::HasSubstr("is each rank's own"));
}

// A replica may be divided over ranks, by tensors or in stages.
TEST_F(OwnDiloco, ReplicasOfSeveralRanksTrainAsThoseOfOne) {
  const auto with = [&](const char* ranks, const char* strategy) {
    return losses({"--dataset", "synthetic", "--batch", "2", "--accumulation", "2", "--steps", "12", "--learning-rate", "2e-3",
                   "--my-diloco.every", "3", "--ranks", ranks, "--strategy", strategy});
  };
  const std::vector<double> expected = with("2", "my-diloco");
  expect_same(with("4", "my-diloco=2+tp-sp=2"), expected);
  expect_same(with("4", "pipeline=2+my-diloco=2"), expected);
}

// But for the losses, which are not meant to be those of one rank.
TEST_F(OwnDiloco, ItConforms) {
  EXPECT_THAT(consist({"check", plugins_ + "strategy-my-diloco.so", "--plugin", plugins_, "--skip", "*Losses*"}),
              ::testing::HasSubstr("strategy 'my-diloco' conforms"));
  EXPECT_THAT(consist({"check", plugins_ + "kernels-diloco.so"}), ::testing::HasSubstr("kernels 'diloco' conforms"));
}

TEST_F(OwnDiloco, ItRefusesWhatItCannotAverage) {
  const test::ChildResult result =
      test::run_child({prefix_ + "/bin/consist", "explain", "--plugin", plugins_, "--model", model_, "--precision", "bf16",
                       "--ranks", "2", "--strategy", "my-diloco", "--sequence", "16"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, ::testing::HasSubstr("use --precision fp32"));
}

}  // namespace
}  // namespace consist
