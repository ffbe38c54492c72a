// Hybrid sharding of a third party over two mesh axes (tests/external/my-hsdp): what is sent over which of them, and that losses
// are those of one rank.
#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "tests/external/installed.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

class OwnHybridSharding : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugins_ = built("my-hsdp");
    model_ = model_folder("LlamaForCausalLM", "llama", "");
  }
  static std::vector<double> losses(const std::vector<std::string>& layout) {
    std::vector<std::string> words{"--plugin",  plugins_,     "--model",     model_,    "--from-scratch",
                                   "--dataset", "synthetic",  "--precision", "fp32",    "--global-batch",
                                   "16",        "--sequence", "32",          "--steps", "10"};
    words.insert(words.end(), layout.begin(), layout.end());
    return Installed::losses(words);
  }
  /// The instructions of the step that the strategy inserted and that are of this op and queue.
  static std::vector<std::string> inserted(const std::string& op, const std::string& queue,
                                           const std::vector<std::string>& more) {
    std::vector<std::string> words{"explain", "--plugin",    plugins_,      "--device",       "cpu", "--model",
                                   model_,    "--precision", "fp32",        "--sequence",     "32",  "--ranks",
                                   "4",       "--strategy",  "my-hsdp=2x2", "--accumulation", "2"};
    words.insert(words.end(), more.begin(), more.end());
    std::istringstream lines(consist(words));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" = " + op + "(") != std::string::npos && line.find(" comm:" + queue + " ") != std::string::npos &&
          line.find(" by my-hsdp ") != std::string::npos)
        found.push_back(line);
    }
    return found;
  }
  /// The storages of an instruction's outputs, in which those that lie side by side share one ("name f32[8]@5").
  static std::set<std::string> storages(const std::string& line) {
    std::set<std::string> found;
    std::istringstream words(line.substr(line.find(" : "), line.find(" | ") - line.find(" : ")));
    for (std::string word; words >> word;) {
      if (const std::size_t at = word.find('@'); at != std::string::npos)
        found.insert(word.substr(at, word.find_first_of("+,", at) - at));
    }
    return found;
  }
  static inline std::string plugins_, model_;
};

// 21 parameters: 2 layers of 9, embedding, last norm, head.
TEST_F(OwnHybridSharding, ReplicasSendOneMessagePerBucketAndStep) {
  const std::vector<std::string> one = inserted("all_reduce", "data.0", {});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(storages(one[0]).size(), 1u) << "they lie apart, so that each is a message: " << one[0];
  EXPECT_EQ(inserted("reduce_scatter", "data.1", {}).size(), 2u) << "one per micro-batch";

  const std::vector<std::string> several = inserted("all_reduce", "data.0", {"--my-hsdp.bucket-size", "100Ki"});
  EXPECT_GT(several.size(), 3u);
  EXPECT_LT(several.size(), 10u);
  EXPECT_EQ(inserted("reduce_scatter", "data.1", {"--my-hsdp.bucket-size", "100Ki"}).size(), 2 * several.size());
  for (const std::string& bucket : several) EXPECT_EQ(storages(bucket).size(), 1u) << bucket;
  EXPECT_EQ(inserted("all_reduce", "data.0", {"--my-hsdp.bucket-size", "0"}).size(), 21u);
  for (const char* op : {"all_gather", "reduce_scatter"})
    EXPECT_TRUE(inserted(op, "data.0", {}).empty()) << op << " across groups";
}

// Embedding, 2 layers and head in forward and in backward, of each of 2 micro-batches, less the embedding in backward; the norm
// in front of the head is in forward alone, and again with the head.
TEST_F(OwnHybridSharding, ParametersAreGatheredByLayersWithinAGroup) {
  EXPECT_EQ(inserted("all_gather", "data.1", {}).size(), 2u * (4 + 3));
  const std::string summary = consist({"explain", "--plugin", plugins_, "--device", "cpu", "--model", model_, "--precision",
                                       "fp32", "--ranks", "4", "--sequence", "32", "--strategy", "my-hsdp=2x2", "--summary"});
  EXPECT_THAT(summary, HasSubstr("parameters 127 k, 63.6 k of them on this rank"));  // half, since there are two replicas
}

TEST_F(OwnHybridSharding, LossesAreThoseOfOneRank) {
  const std::vector<double> expected = losses({});
  ASSERT_EQ(expected.size(), 10u);
  expect_same(losses({"--ranks", "4", "--strategy", "my-hsdp=2x2", "--accumulation", "2"}), expected);
  expect_same(losses({"--ranks", "4", "--strategy", "my-hsdp=2x2", "--my-hsdp.bucket-size", "100Ki"}), expected);
  expect_same(losses({"--ranks", "2", "--strategy", "my-hsdp=1x2", "--accumulation", "2"}), expected);
  expect_same(losses({"--ranks", "2", "--strategy", "my-hsdp=2x1", "--accumulation", "2"}), expected);
  expect_same(losses({"--ranks", "8", "--strategy", "pipeline=2+my-hsdp=2x2", "--accumulation", "2"}), expected);
}

TEST_F(OwnHybridSharding, ItConforms) {
  EXPECT_THAT(consist({"check", plugins_ + "strategy-my-hsdp.so", "--skip", "*Losses*"}),
              HasSubstr("strategy 'my-hsdp' conforms"));
}

}  // namespace
}  // namespace consist
