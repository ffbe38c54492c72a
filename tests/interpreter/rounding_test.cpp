// Sums over micro-batches and ranks are made in the dtype that the precision says: with every value rounded to its dtype, a step
// of bf16 differs from one rank's by what f32 rounds, and not by what bf16 does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

const ModelChoice models[] = {{"llama-untied"}, {"qwen3-tied"}};

std::vector<std::string> wrong_if_rounded(const ModelChoice& model, const Words& words) {
  return differences_of_rounded(*compile(config_of(model, words), 256), 5);
}

TEST(Rounding, OfSumsIsThatOfTheGradientsDtype) {
  const Words layouts[] = {
      {"--accumulation=4"},
      {"--accumulation=4", "--pack=off"},
      {"--strategy=ddp", "--ranks=4", "--accumulation=2", "--ddp.bucket-size=20Ki"},
      {"--strategy=zero2", "--ranks=2", "--accumulation=2"},
      {"--strategy=zero2", "--ranks=4", "--accumulation=2", "--zero2.stage=1", "--zero2.reduce-bucket-size=4000"},
      {"--strategy=zero3-offload", "--ranks=2", "--accumulation=4", "--recompute=full",
       "--zero3-offload.reduce-bucket-size=4000"},
      {"--strategy=zero3-offload", "--ranks=4", "--accumulation=2", "--zero3-offload.reduce-each-micro-batch=false"},
      {"--strategy=zero3-offload", "--ranks=2", "--accumulation=2", "--zero3-offload.offload-optimizer.device=cpu"},
      {"--strategy=pipeline=2", "--ranks=2", "--accumulation=4"},
      {"--strategy=pipeline=2+zero2", "--ranks=4", "--accumulation=2", "--pipeline.schedule=zero-bubble"}};
  for (const ModelChoice& model : models) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (Words words : layouts) {
        words = Words{"--precision=" + std::string(precision)} + words;
        EXPECT_THAT(wrong_if_rounded(model, words), IsEmpty()) << text_of(model, words);
      }
    }
  }
}

TEST(Rounding, OfGradientsThatAccumulateInBf16Shows) {
  EXPECT_THAT(wrong_if_rounded(models[0], {"--precision=bf16", "--bf16.gradients=bf16", "--accumulation=4"}), Not(IsEmpty()));
}

TEST(Rounding, OfGradientsThatTravelInBf16Shows) {
  EXPECT_THAT(
      wrong_if_rounded(models[0], {"--precision=bf16", "--strategy=zero2", "--ranks=2", "--zero2.communication-data-type=bf16"}),
      Not(IsEmpty()));
}

// The dtype of one sum, on all ranks: exact numbers do not show it.
TEST(Rounding, OfOneSumInTheWrongDtypeShows) {
  const auto made =
      compile(config_of(models[0], {"--precision=bf16", "--strategy=ddp", "--ranks=2", "--accumulation=4", "--pack=off"}), 256);
  for (Planned& step : made->steps) {
    const Parameter& parameter = step.program.parameters.back();
    const Tensor gradient = step.program[parameter.gradient];
    for (Tensor& tensor : step.program.tensors) {
      if (tensor.storage == gradient.storage && tensor.offset == gradient.offset && tensor.dtype == DType::f32)
        tensor.dtype = DType::bf16;
    }
  }
  EXPECT_THAT(wrong_in_run(*made, 5), IsEmpty());
  EXPECT_THAT(differences_of_rounded(*made, 5), Not(IsEmpty()));
}

}  // namespace
}  // namespace consist::interpreter
