// Optimizers of a third party, with ops and kernels of their own (tests/external/lion-and-muon): the losses are those of the same
// optimizers that ship, which are another implementation.
#include <gmock/gmock.h>

#include "tests/external/installed.h"

namespace consist {
namespace {

class OwnOptimizers : public test::Installed {
 protected:
  static void SetUpTestSuite() {
    Installed::SetUpTestSuite();
    plugins_ = built("lion-and-muon");
    model_ = model_folder("LlamaForCausalLM", "llama", "");
  }
  static std::vector<double> losses(const std::string& optimizer, const std::string& rate,
                                    const std::vector<std::string>& layout) {
    std::vector<std::string> words{"--plugin",
                                   plugins_,
                                   "--model",
                                   model_,
                                   "--from-scratch",
                                   "--dataset",
                                   "synthetic",
                                   "--precision",
                                   "fp32",
                                   "--global-batch",
                                   "8",
                                   "--sequence",
                                   "32",
                                   "--steps",
                                   "20",
                                   "--optimizer",
                                   optimizer,
                                   "--learning-rate",
                                   rate};
    words.insert(words.end(), layout.begin(), layout.end());
    return Installed::losses(words);
  }
  static inline std::string plugins_, model_;
};

TEST_F(OwnOptimizers, TheirLossesAreThoseOfTheOnesThatShip) {
  const std::vector<std::string> zero2{"--ranks", "2", "--strategy", "zero2", "--accumulation", "2"};
  for (const auto& [name, rate] : {std::pair{"lion", "3e-4"}, std::pair{"muon", "3e-3"}}) {
    SCOPED_TRACE(name);
    const std::string own = std::string("my-") + name;
    const std::vector<double> expected = losses(name, rate, {});
    ASSERT_EQ(expected.size(), 20u);
    expect_same(losses(own, rate, {}), expected);
    expect_same(losses(own, rate, zero2), expected);
  }
  EXPECT_NE(losses("lion", "3e-4", {}), losses("adamw", "3e-4", {})) << "the optimizer changes nothing";
}

TEST_F(OwnOptimizers, TheUpdateOfSingleElementsIsDividedAndOffloaded) {
  const std::vector<double> expected = losses("my-lion", "3e-4", {});
  expect_same(losses("my-lion", "3e-4",
                     {"--ranks", "2", "--strategy", "zero2", "--zero2.offload-optimizer.device", "cpu", "--zero2.sub-group-size",
                      "9000"}),
              expected);
}

// The op lies in another plugin, which the suite must find too.
TEST_F(OwnOptimizers, TheyConform) {
  for (const std::string name : {"my-lion", "my-muon"}) {
    EXPECT_THAT(consist({"check", plugins_ + "optimizer-" + name + ".so", "--plugin", plugins_}),
                ::testing::HasSubstr("optimizer '" + name + "' conforms"));
  }
  EXPECT_THAT(consist({"check", plugins_ + "kernels-lion-and-muon.so"}),
              ::testing::HasSubstr("kernels 'lion-and-muon' conforms"));
}

}  // namespace
}  // namespace consist
