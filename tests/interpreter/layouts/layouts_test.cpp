// Ranks x micro-batches at an equal global batch, under each strategy over the data axis and its options.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/interpreter/expect_one_rank.h"

namespace consist::interpreter {
namespace {

class Layouts : public ::testing::TestWithParam<Column> {
 protected:
  void expect(const Words& words) const { expect_one_rank(GetParam(), words); }
};

Words over(const std::string& strategy, int ranks, int accumulation) {
  const int batch = ranks == 3 ? 12 : std::max(8, ranks * accumulation);  // every layout divides it
  return {"--strategy=" + strategy, "--ranks=" + std::to_string(ranks), "--accumulation=" + std::to_string(accumulation),
          "--global-batch=" + std::to_string(batch)};
}

constexpr const char* bucket_sizes[] = {"1Ki", "20Ki", "25Mi"};

TEST_P(Layouts, Ddp) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int accumulation : {1, 2, 4}) {
      const char* const bucket = bucket_sizes[(ranks + accumulation) % 3];
      expect(over("ddp", ranks, accumulation) + Words{"--ddp.bucket-size=" + std::string(bucket)});
    }
  }
}

TEST_P(Layouts, Zero2) {
  for (const int ranks : {2, 3, 4}) {
    for (const int accumulation : {1, 2}) {
      for (const char* stage : {"1", "2"}) {
        expect(over("zero2", ranks, accumulation) + Words{"--zero2.stage=" + std::string(stage),
                                                          "--zero2.reduce-bucket-size=4000",
                                                          "--zero2.allgather-bucket-size=4000"});
      }
    }
  }
  expect(over("zero2", 2, 2) + Words{"--zero2.overlap-comm=false", "--zero2.contiguous-gradients=false"});
  for (const char* reduce_dtype : {"fp32", "bf16"})
    expect(over("zero2", 2, 2) + Words{"--zero2.communication-data-type=" + std::string(reduce_dtype)});
  for (const char* update : {"device", "cpu"}) {
    expect(over("zero2", 2, 2) + Words{"--zero2.offload-optimizer.device=cpu", "--zero2.offload-optimizer.ratio=0.5",
                                       "--zero2.sub-group-size=3000", "--zero2.offload-optimizer.update=" + std::string(update)});
  }
}

const Words given_up{"--zero3-offload.reduce-bucket-size=4000", "--zero3-offload.prefetch-bucket-size=4000",
                     "--zero3-offload.param-persistence-threshold=100", "--zero3-offload.max-reuse-distance=0"};

TEST_P(Layouts, Zero3) {
  for (const int ranks : {2, 3, 4}) {
    for (const int accumulation : {1, 2}) {
      expect(over("zero3-offload", ranks, accumulation) + given_up);
      expect(over("zero3-offload", ranks, accumulation));
    }
  }
  for (const char* reduce_dtype : {"fp32", "bf16"}) {
    expect(over("zero3-offload", 2, 2) + given_up +
           Words{"--zero3-offload.reduce-each-micro-batch=false",
                 "--zero3-offload.communication-data-type=" + std::string(reduce_dtype)});
  }
  expect(over("zero3-offload", 4, 2) + given_up + Words{"--zero3-offload.max-live-parameters=3000"});
  expect(over("zero3-offload", 2, 2) + given_up + Words{"--zero3-offload.overlap-comm=false"});
}

TEST_P(Layouts, Zero3Offload) {
  // Weights on the host are not quantized before they are gathered.
  const bool gathers = GetParam().name == std::string("qwen3_fp8_gathers");
  const std::string parameters = std::string("--zero3-offload.offload-param.device=") + (gathers ? "none" : "cpu");
  for (const char* update : {"device", "cpu"}) {
    for (const char* ratio : {"1", "0.6"}) {
      for (const char* sub_group : {"0", "3000"}) {
        expect(over("zero3-offload", 2, 2) + given_up +
               Words{parameters, "--zero3-offload.offload-optimizer.device=cpu",
                     "--zero3-offload.sub-group-size=" + std::string(sub_group),
                     "--zero3-offload.offload-optimizer.ratio=" + std::string(ratio),
                     "--zero3-offload.offload-optimizer.update=" + std::string(update)});
      }
    }
  }
  expect(over("zero3-offload", 2, 2) + Words{parameters});
}

// A pad token, whose row gets no gradient; biases of q, k and v; gradients that are clipped hard, and not at all.
INSTANTIATE_TEST_SUITE_P(
    Models, Layouts,
    ::testing::Values(
        Column{"llama_fp32", {"llama-untied"}, {"--max-norm=0.01"}}, Column{"qwen3_fp32", {"qwen3-tied"}, {"--max-norm=0"}},
        Column{"padded_fp32", {"qwen3-padded"}}, Column{"biases_fp32", {"qwen2.5-bias"}},
        Column{"llama_bf16", {"llama-untied"}, {"--precision=bf16"}},
        Column{"qwen3_bf16_states", {"qwen3-tied"}, {"--precision=bf16", "--bf16.states=bf16", "--bf16.gradients=bf16"}},
        Column{"llama_fp8", {"llama-untied"}, {"--precision=fp8"}},
        Column{"qwen3_fp8_gathers", {"qwen3-tied"}, {"--precision=fp8", "--fp8.gathers=true"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist::interpreter
