// Memory and operations of a model with an adapter: weights once, and gradients, masters and states of the adapter alone.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/plan/plan.h"
#include "core/record/metrics.h"

namespace consist {
namespace {

PluginHost& adapter_host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

RunConfig large(const std::string& adapter) {
  RunConfig config;
  config.model = "llama-3.1-8b";
  config.precision = "bf16";
  config.strategies = parse_strategies("ddp");
  config.batch = 1;
  config.sequence = 4096;
  config.machine = "h100";
  config.recompute = parse_recompute("full", "");
  config.adapter = adapter;
  if (adapter == "lora") config.plugin_options["lora"] = {{"rank", "16"}, {"targets", "all-linear"}};
  return config;
}

std::int64_t bytes_of(const Program& program, Role role) {
  std::int64_t bytes = 0;
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const Tensor& tensor = program.tensors[id];
    if (tensor.role == role && tensor.state && tensor.storage == static_cast<TensorId>(id))
      bytes += program.bytes(static_cast<TensorId>(id));
  }
  return bytes;
}

TEST(AdapterPlan, AnAdapterOfEightBillionWeightsFitsOneDevice) {
  const Plan plan = plan_run(large("lora"), adapter_host()), whole = plan_run(large("none"), adapter_host());
  // Of each of 32 layers: q and o 2·4096, k and v 4096 + 1024, gate, up and down 4096 + 14336, times the rank.
  const std::int64_t added = std::int64_t{32} * 16 * (2 * 8192 + 2 * 5120 + 3 * 18432);
  const ModelSizes sizes = plan.parts().architecture->sizes(), of_model = whole.parts().architecture->sizes();
  EXPECT_EQ(sizes.parameters, of_model.parameters + added);
  const auto ranks = plan.ranks();
  const Program& step = ranks[0].step->program();
  EXPECT_EQ(bytes_of(step, Role::parameter), 2 * sizes.parameters);
  EXPECT_EQ(bytes_of(step, Role::optimizer_state), 12 * added);  // masters and two moments in f32
  constexpr double gib = 1024.0 * 1024 * 1024;
  EXPECT_LT(static_cast<double>(ranks[0].summary.planned_bytes) / gib, 18);
  EXPECT_GT(static_cast<double>(whole.ranks()[0].summary.planned_bytes) / gib, 100);
}

TEST(AdapterPlan, ProductsOfOneInputAreOneAndSumsAreThoseOfProducts) {
  RunConfig config = large("lora");
  config.recompute = parse_recompute("none", "");
  const Plan plan = plan_run(config, adapter_host());
  std::map<std::string, int> count;
  const auto ranks = plan.ranks();
  for (const Instruction& i : ranks[0].step->program().instructions) ++count[std::string(i.op->name())];
  constexpr int layers = 32;
  EXPECT_EQ(count["add"], 0);
  // q, k and v with their three A; gate and up with their two. What reads the sums of o and down takes no strided view.
  EXPECT_EQ(count["packed_linear"], 2 * layers);
  EXPECT_EQ(count["packed_linear_input_grad"], 2 * layers - 1) << "x of the first layer needs no gradient";
  EXPECT_EQ(count["packed_linear_weight_grad"], 2 * layers);
  EXPECT_EQ(count["linear"], (7 + 4) * layers) << "the seven B, and o and down with their A";
  EXPECT_EQ(count["scale"], 2 * 7 * layers);
}

TEST(AdapterPlan, ModelFlopsAreWithoutGradientsOfFrozenWeights) {
  const Plan plan = plan_run(large("lora"), adapter_host()), whole = plan_run(large("none"), adapter_host());
  const auto flops = [](const Plan& of) { return trained_flops_per_token(*of.parts().architecture, 4096, of.config().freeze); };
  // Two thirds of the products, all of attention, and what the adapter adds.
  EXPECT_NEAR(flops(plan) / flops(whole), 0.69, 0.03);
}

}  // namespace
}  // namespace consist
