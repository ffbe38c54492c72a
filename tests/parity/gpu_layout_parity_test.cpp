// Layouts over GPUs give the losses of one GPU. What runs depends on how many there are: with four all of it, with two the
// strategies alone. Each pair of layout and model is a case, so that processes share them (GTEST_TOTAL_SHARDS, tests/gpu/run.sh).
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <tuple>

#include "tests/conformance/transport/memory.h"
#include "tests/parity/changed_model.h"

namespace consist {
namespace {

using test::ChangedModel;
using test::LayoutComparison;

struct GpuLayout {
  std::string name, strategy;  ///< a strategy that ends in "=" is over all ranks
  int micro_batches;
  bool recompute;
  std::vector<std::string> options = {};
  int ranks = 2;  ///< needed
};
void PrintTo(const GpuLayout& layout, std::ostream* out) {
  *out << layout.name;
}

/// All that are tried, with and without recomputation in turns.
std::vector<GpuLayout> gpu_layouts() {
  std::vector<GpuLayout> all;
  const auto add = [&](GpuLayout layout) {
    layout.recompute = all.size() % 2 != 0;
    all.push_back(layout);
  };
  const std::pair<const char*, const char*> data_parallel[] = {{"ddp", "ddp"}, {"zero2", "zero2"}, {"zero3", "zero3-offload"}};
  for (const auto& [name, strategy] : data_parallel) add({name, strategy, 1, false});
  add({"zero3_on_host",
       "zero3-offload",
       1,
       false,
       {"--zero3-offload.offload-param.device=cpu", "--zero3-offload.offload-optimizer.device=cpu"}});
  add({"tp_sp", "tp-sp=", 1, false});
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    const std::string name = schedule == "zero-bubble" ? "zero_bubble" : schedule;
    add({"pipeline_" + name, "pipeline=", 4, false, {"--pipeline.schedule=" + schedule}});
  }
  for (const auto& [name, strategy] : data_parallel) {
    add({std::string("tp_sp_") + name, std::string("tp-sp=2+") + strategy, 2, false, {}, 4});
    add({std::string("pipeline_") + name, std::string("pipeline=2+") + strategy, 2, false, {}, 4});
  }
  for (const std::string attention : {"gather", "ulysses"})
    add({"cp_" + attention, "cp=", 1, false, {"--cp.attention=" + attention}});
  add({"cp_zero3", "cp=2+zero3-offload", 1, false, {}, 4});
  add({"cp_tp_sp", "cp=2+tp-sp=2", 2, false, {}, 4});
  add({"tp_sp_pipeline", "tp-sp=2+pipeline=2", 2, false, {}, 4});
  add({"activations_on_host", "zero2", 2, false, {"--offload-activations=all"}});
  return all;
}

/// Those of a model with experts: over ranks of their own and over the tensor axis. In one micro-batch: the balance loss of a batch
/// is not the mean of its micro-batches'.
std::vector<GpuLayout> expert_layouts() {
  const std::string room = "--ep.capacity=2", sends = "--ep.dispatch=all-to-all", turns = "--ep.parts=2";
  return {{"ep", "ep=2+ddp", 1, false, {room}},
          {"ep_sends", "ep=2+ddp", 1, true, {room, sends}},
          {"ep_turns", "ep=2+ddp", 1, false, {room, turns}},
          {"ep_turns_sends", "ep=2+ddp", 1, true, {room, turns, sends}},
          {"ep_zero2", "ep=2+zero2", 1, false, {room}},
          {"ep_activations_on_host", "ep=2+zero2", 1, false, {room, "--offload-activations=all"}},
          {"tp_sp", "tp-sp=", 1, false, {"--tp-sp.capacity=2"}},
          {"tp_sp_whole", "tp-sp=", 1, true, {"--tp-sp.experts=whole"}},
          {"cp_gather", "cp=", 1, false},
          {"cp_ring", "cp=", 1, true, {"--cp.attention=ring"}},
          {"pipeline", "pipeline=2", 1, false},
          {"ep_cp", "ep=2+cp=2", 1, false, {room}, 4},
          {"ep_tp_sp", "ep=2+tp-sp=2", 1, false, {"--ep.capacity=4"}, 4},
          {"ep_tp_sp_sends", "ep=2+tp-sp=2", 1, true, {"--ep.capacity=4", sends}, 4},
          {"ep_pipeline", "ep=2+pipeline=2", 1, false, {room}, 4},
          {"ep_zero3", "ep=2+zero3-offload", 1, true, {room}, 4}};
}

class GpuLayoutParity : public ::testing::TestWithParam<std::tuple<GpuLayout, ChangedModel>> {
 protected:
  /// One GPU's curves are computed once per process and model.
  static LayoutComparison& comparison(const ChangedModel& model) {
    static std::map<std::string, std::unique_ptr<LayoutComparison>> made;
    std::unique_ptr<LayoutComparison>& found = made[model.name];
    if (!found) found = std::make_unique<LayoutComparison>(model);
    return *found;
  }
};

TEST_P(GpuLayoutParity, LossesAreThoseOfOneGpu) {
  const auto& [layout, model] = GetParam();
  std::string reason;
  const int gpus = testing::ranks_with_memory("cuda", 4, reason), ranks = gpus < 4 ? 2 : 4;
  if (gpus < layout.ranks) GTEST_SKIP() << "this layout needs " << layout.ranks << " GPUs: " << reason;
  std::vector<std::string> options{
      "--strategy=" + layout.strategy + (layout.strategy.ends_with('=') ? std::to_string(ranks) : ""),
      "--ranks=" + std::to_string(ranks), "--transport=nvlink", "--accumulation=" + std::to_string(layout.micro_batches),
      std::string("--recompute=") + (layout.recompute ? "full" : "none")};
  options.insert(options.end(), layout.options.begin(), layout.options.end());
  comparison(model).expect_losses_of_one_rank(options);
  comparison(model).print_deviations();
}

/// Sizes that the GPU's products and attention take; fewer heads of k and v than ranks.
ChangedModel gpu_model(const char* name, const char* golden, bool tied, const char* precision, const char* tolerance) {
  return {name,
          golden,
          {{"tie_word_embeddings", tied},
           {"hidden_size", 256},
           {"intermediate_size", 512},
           {"num_attention_heads", 4},
           {"head_dim", 64},
           {"num_key_value_heads", 2},
           {"num_hidden_layers", 8},
           {"vocab_size", 102},
           {"max_position_embeddings", 256}},
          precision,
          "cuda",
          {"--sequence=256", "--global-batch=16", "--evaluate-sequences=16", "--learning-rate=2e-4"},
          tolerance};
}
std::string name_of(const ::testing::TestParamInfo<std::tuple<GpuLayout, ChangedModel>>& info) {
  return std::get<1>(info.param).name + ("_" + std::get<0>(info.param).name);
}
// Models change fastest: as many processes as there are models, or a multiple, have one model each.
INSTANTIATE_TEST_SUITE_P(
    Cuda, GpuLayoutParity,
    ::testing::Combine(::testing::ValuesIn(gpu_layouts()),
                       ::testing::Values(gpu_model("llama_bf16", "llama-untied", false, "bf16", "bf16 of 4,096 tokens"),
                                         gpu_model("qwen3_tied_bf16", "qwen3-tied", true, "bf16", "bf16 of 4,096 tokens"),
                                         gpu_model("llama_fp8", "llama-untied", false, "fp8", "fp8 of 4,096 tokens"),
                                         gpu_model("qwen3_tied_fp8", "qwen3-tied", true, "fp8", "fp8 of 4,096 tokens"))),
    name_of);

/// In fp32, where no rounding hides an error, and in bf16, whose tolerance lets a few tokens fall on another expert.
ChangedModel gpu_experts(const char* name, const char* precision) {
  return {name,
          "qwen3-moe",
          {{"hidden_size", 128},
           {"intermediate_size", 256},
           {"moe_intermediate_size", 64},
           {"num_attention_heads", 4},
           {"head_dim", 64},
           {"num_key_value_heads", 2},
           {"num_hidden_layers", 4},
           {"vocab_size", 102},
           {"max_position_embeddings", 256}},
          precision,
          "cuda",
          {"--sequence=256", "--global-batch=16", "--evaluate-sequences=16", "--learning-rate=2e-4"}};
}
INSTANTIATE_TEST_SUITE_P(CudaExperts, GpuLayoutParity,
                         ::testing::Combine(::testing::ValuesIn(expert_layouts()),
                                            ::testing::Values(gpu_experts("qwen3_moe_fp32", "fp32"),
                                                              gpu_experts("qwen3_moe_bf16", "bf16"))),
                         name_of);

}  // namespace
}  // namespace consist
