// States that one rank keeps on the host: the numbers of a rank that keeps all on its device, to the bit.
#include <gtest/gtest.h>

#include <string>

#include "consist/error.h"
#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class OffloadOnOneRank : public ::testing::TestWithParam<Column> {
 protected:
  static std::int64_t bytes_on_host(const RankPrograms& programs) {
    std::int64_t bytes = 0;
    for (const Tensor& tensor : programs.steps.front().program.tensors) {
      if (tensor.state && tensor.space == MemorySpace::host) bytes += programs.steps.front().program.local(tensor.storage).elements();
    }
    return bytes;
  }
  void expect_same(const std::string& strategy, Words words, const Words& options) const {
    const Column& column = GetParam();
    words = column.precision + words;
    const std::string text = strategy + " " + text_of(column.model, words + options);
    const auto plain = compile(config_of(column.model, words), 0),
               offloaded = compile(config_of(column.model, Words{"--strategy=" + strategy} + words + options), 0);
    EXPECT_EQ(bytes_on_host(*plain), 0) << text;
    EXPECT_GT(bytes_on_host(*offloaded), 0) << text;
    const Outcome expected = run(*plain, {}), found = run(*offloaded, {.order = 7});
    EXPECT_EQ(found.losses, expected.losses) << text;
    EXPECT_EQ(found.grad_norms, expected.grad_norms) << text;
    EXPECT_EQ(found.values, expected.values) << text;
  }
};

TEST_P(OffloadOnOneRank, TrainsAsWithout) {
  const Words optimizer{"--zero3-offload.offload-optimizer.device=cpu"};
  for (const Words& more : {Words{"--accumulation=1"}, Words{"--accumulation=2", "--recompute=full"}}) {
    expect_same("zero3-offload", more, optimizer);
    expect_same("zero3-offload", more, optimizer + Words{"--zero3-offload.sub-group-size=500"});
    expect_same("zero3-offload", more, optimizer + Words{"--zero3-offload.offload-optimizer.update=cpu"});
    expect_same("zero2", more, Words{"--zero2.offload-optimizer.device=cpu"});
  }
}

TEST(OffloadOfParametersOnOneRank, IsRefused) {
  try {
    compile(config_of({"llama-tied"}, {"--strategy=zero3-offload", "--zero3-offload.offload-param.device=cpu"}), 0);
    FAIL() << "one rank has parameters on the host";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("offload the optimizer's states alone"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadOnOneRank,
                         ::testing::Values(Column{"llama_fp32", {"llama-tied"}},
                                           Column{"llama_bf16", {"llama-untied"}, {"--precision=bf16"}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
