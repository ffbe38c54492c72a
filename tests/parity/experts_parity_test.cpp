// Experts that ranks share, in processes of their own: losses of one rank. All combinations run in the interpreter
// (tests/interpreter/experts_test.cpp).
#include <gtest/gtest.h>

#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

TEST(ExpertsParity, LossesAreThoseOfOneRank) {
  const std::string room = "--ep.capacity=2";
  test::expect_losses_of_one_rank(ChangedModel{"qwen3_moe_fp32", "qwen3-moe", nlohmann::json::object(), "fp32"},
                                  {{"--strategy=ep=2", "--ranks=2", room},
                                   {"--strategy=ep=2+ddp", "--ranks=4", room, "--recompute=full"},
                                   {"--strategy=ep=2+zero3-offload", "--ranks=4", room},
                                   {"--strategy=ep=2+pipeline=2", "--ranks=4", room}});
}

TEST(ExpertsParity, MixtralsLossesAreThoseOfOneRank) {
  test::expect_losses_of_one_rank(
      ChangedModel{"mixtral_fp32", "mixtral", nlohmann::json::object(), "fp32"},
      {{"--strategy=ep=2", "--ranks=2", "--ep.capacity=2", "--accumulation=2"}, {"--strategy=tp-sp=2", "--ranks=2"}});
}

}  // namespace
}  // namespace consist
