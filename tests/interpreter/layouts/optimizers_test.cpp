// Optimizers other than AdamW, whose cells are all the others: under each strategy alone and combined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "consist/error.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

const ModelChoice untied_llama{"llama-tied", R"({"tie_word_embeddings":false})"},
    tied_qwen{"qwen3-untied", R"({"tie_word_embeddings":true})"};

struct OptimizerChoice {
  const char* name;
  Words words;
};

void PrintTo(const OptimizerChoice& choice, std::ostream* out) {
  *out << choice.name;
}

class Optimizers : public ::testing::TestWithParam<OptimizerChoice> {
 protected:
  static bool is_muon() { return GetParam().words[0] == "--optimizer=muon"; }
  /// In fp32 of one model and in bf16 of another by turns.
  static void expect(const std::string& strategy, int ranks, const Words& more = {}) {
    const Words words =
        GetParam().words + Words{"--strategy=" + strategy, "--ranks=" + std::to_string(ranks), "--accumulation=2"} + more;
    static int cells = 0;
    if (++cells % 2 == 0)
      expect_one_rank(untied_llama, words);
    else
      expect_one_rank(tied_qwen, Words{"--precision=bf16"} + words);
  }
};

TEST_P(Optimizers, DataParallel) {
  expect("ddp", 1);
  for (const int ranks : {2, 4}) {
    expect("ddp", ranks, {"--ddp.bucket-size=4Ki"});
    expect("zero2", ranks, {"--zero2.reduce-bucket-size=4000", "--zero2.allgather-bucket-size=4000"});
    expect("zero2", ranks, {"--zero2.stage=1"});
    expect("zero3-offload", ranks);
    expect("zero3-offload", ranks,
           {"--zero3-offload.param-persistence-threshold=100", "--zero3-offload.reduce-bucket-size=4000",
            "--zero3-offload.prefetch-bucket-size=4000", "--zero3-offload.max-reuse-distance=0"});
  }
  expect("ddp", 3, {"--global-batch=12"});
  expect("zero3-offload", 3, {"--global-batch=12", "--zero3-offload.param-persistence-threshold=100"});
}

TEST_P(Optimizers, StatesOnTheHost) {
  if (is_muon()) return;  // whose update needs whole matrices: MuonUnderZero.KeepsItsStatesOnTheDevice
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    const std::string option = std::string("--") + strategy + ".";
    for (const char* update : {"device", "cpu"}) {
      for (const char* ratio : {"1", "0.6"}) {
        expect(strategy, 2,
               {option + "offload-optimizer.device=cpu", option + "sub-group-size=3000",
                option + "offload-optimizer.update=" + update, option + "offload-optimizer.ratio=" + ratio});
      }
    }
  }
  expect("zero3-offload", 2, {"--zero3-offload.offload-optimizer.device=cpu", "--zero3-offload.offload-param.device=cpu"});
}

TEST_P(Optimizers, TensorParallel) {
  for (const int ranks : {2, 4}) {
    const std::string strategy = "tp-sp=" + std::to_string(ranks);
    expect(strategy, ranks);
    expect(strategy, ranks, {"--tp-sp.sequence-parallel=false"});
    expect(strategy, ranks, {"--tp-sp.delay-weight-gradients=true", "--tp-sp.logits-bytes=1500"});
  }
}

TEST_P(Optimizers, Pipelines) {
  for (const char* schedule : {"gpipe", "1f1b", "zero-bubble", "zero-bubble-h2"})
    expect("pipeline=2", 2, {"--pipeline.schedule=" + std::string(schedule)});
}

TEST_P(Optimizers, Compositions) {
  for (const char* data : {"ddp", "zero2", "zero3-offload"}) {
    expect(std::string("tp-sp=2+") + data, 4, {"--recompute=full"});
    expect(std::string("pipeline=2+") + data, 4);
    expect(std::string("tp-sp=2+pipeline=2+") + data, 8);
  }
  expect("tp-sp=2+pipeline=2", 4);
}

TEST_P(Optimizers, OtherDtypes) {
  const Words bf16{"--precision=bf16", "--bf16.states=bf16", "--bf16.gradients=bf16"}, fp8{"--precision=fp8"};
  for (const Words& precision : {bf16, fp8}) {
    for (const char* strategy : {"ddp", "zero2", "zero3-offload", "tp-sp=2", "pipeline=2"})
      expect_one_rank(untied_llama, GetParam().words + precision +
                                        Words{"--strategy=" + std::string(strategy), "--ranks=2", "--accumulation=2"});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Choices, Optimizers,
    ::testing::Values(OptimizerChoice{"sgd", {"--optimizer=sgd"}},
                      OptimizerChoice{"sgd_nesterov", {"--optimizer=sgd", "--sgd.nesterov=true", "--sgd.momentum=0.8"}},
                      OptimizerChoice{"sgd_without_state", {"--optimizer=sgd", "--sgd.momentum=0", "--weight-decay=0.3"}},
                      OptimizerChoice{"lion", {"--optimizer=lion", "--weight-decay=0.3"}},
                      OptimizerChoice{"muon", {"--optimizer=muon"}},
                      OptimizerChoice{"muon_original", {"--optimizer=muon", "--muon.scale=original", "--muon.nesterov=false"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(MuonUnderZero, KeepsItsStatesOnTheDevice) {
  for (const std::string strategy : {"zero2", "zero3-offload"}) {
    const Words words{"--optimizer=muon", "--strategy=" + strategy, "--ranks=2",
                      "--" + strategy + ".offload-optimizer.device=cpu"};
    EXPECT_THROW(compile(config_of(untied_llama, words), 0), UsageError);
  }
}

}  // namespace
}  // namespace consist::interpreter
