// Layouts over GPUs give the losses of one GPU. What runs depends on how many there are: with four all of it, with two the
// strategies alone.
#include <gtest/gtest.h>

#include "tests/conformance/transport/memory.h"
#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;

class GpuLayoutParity : public ::testing::TestWithParam<ChangedModel> {};

TEST_P(GpuLayoutParity, LossesAreThoseOfOneGpu) {
  std::string reason;
  const int gpus = testing::ranks_with_memory("cuda", 4, reason);
  if (gpus < 2) GTEST_SKIP() << "layouts need two GPUs: " << reason;
  const int ranks = gpus < 4 ? 2 : 4;
  std::vector<std::vector<std::string>> layouts;
  const auto add = [&](const std::string& strategy, const char* micro_batches, std::vector<std::string> more = {}) {
    layouts.push_back({"--strategy=" + strategy, "--ranks=" + std::to_string(ranks), "--transport=nvlink",
                       "--accumulation=" + std::string(micro_batches),
                       "--recompute=" + std::string(layouts.size() % 2 == 0 ? "none" : "full")});
    layouts.back().insert(layouts.back().end(), more.begin(), more.end());
  };
  const std::string all = "=" + std::to_string(ranks);
  for (const char* data : {"ddp", "zero2", "zero3-offload"}) add(data, "1");
  add("zero3-offload", "1", {"--zero3-offload.offload_param.device=cpu", "--zero3-offload.offload_optimizer.device=cpu"});
  add("tp-sp" + all, "1");
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble"})
    add("pipeline" + all, "4", {"--pipeline.schedule=" + std::string(schedule)});
  if (ranks == 4) {
    for (const char* data : {"ddp", "zero2", "zero3-offload"}) {
      add(std::string("tp-sp=2+") + data, "2");
      add(std::string("pipeline=2+") + data, "2");
    }
    add("tp-sp=2+pipeline=2", "2");
  }
  test::expect_losses_of_one_rank(GetParam(), layouts);
}

// Sizes that the GPU's products and attention take; fewer heads of k and v than ranks.
nlohmann::json sizes(bool tied) {
  return {{"tie_word_embeddings", tied}, {"hidden_size", 256}, {"intermediate_size", 512},
          {"num_attention_heads", 4},    {"head_dim", 64},     {"num_key_value_heads", 2},
          {"num_hidden_layers", 8},      {"vocab_size", 102}};
}
INSTANTIATE_TEST_SUITE_P(Cuda, GpuLayoutParity,
                         ::testing::Values(ChangedModel{"llama_bf16", "llama-untied", sizes(false), "bf16", "cuda"},
                                           ChangedModel{"qwen3_tied_bf16", "qwen3-tied", sizes(true), "bf16", "cuda"},
                                           ChangedModel{"llama_fp8", "llama-untied", sizes(false), "fp8", "cuda"},
                                           ChangedModel{"qwen3_tied_fp8", "qwen3-tied", sizes(true), "fp8", "cuda"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
