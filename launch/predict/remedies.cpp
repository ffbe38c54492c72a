#include "launch/predict/remedies.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "consist/error.h"
#include "consist/text.h"
#include "launch/predict/choices.h"

namespace consist::launch {
namespace {

/// The same sequences a step, in more and smaller micro-batches.
Choices smaller_batch(const RunConfig& config, std::int64_t divisor) {
  return {{"batch", std::to_string(config.batch / divisor)}, {"accumulation", std::to_string(config.accumulation * divisor)}};
}

std::vector<Choices> candidates(const RunConfig& config) {
  std::vector<Choices> all;
  if (!config.recompute.any()) {
    all.push_back({{"recompute", "swiglu,rms_norm"}});
    all.push_back({{"recompute", "full"}});
  }
  for (std::int64_t divisor = 2; divisor <= config.batch; divisor *= 2) {
    if (config.batch % divisor != 0) break;
    all.push_back(smaller_batch(config, divisor));
    if (config.recompute.any()) continue;
    all.push_back(smaller_batch(config, divisor));
    all.back().push_back({"recompute", "full"});
  }
  if (config.precision != "fp32") {
    const Choice states{config.precision + ".states", "bf16"};
    all.push_back({states});
    all.push_back({states, {"recompute", "full"}});
  }
  if (config.ranks > 1) {
    const std::string ranks = std::to_string(config.ranks);
    for (const std::string& strategy :
         {std::string("zero2"), std::string("zero3-offload"), "tp-sp=" + ranks, "pipeline=" + ranks}) {
      if (text_of(config.strategies) == strategy) continue;
      all.push_back({{"strategy", strategy}});
      all.push_back({{"strategy", strategy}, {"recompute", "full"}});
    }
    all.push_back({{"strategy", "zero3-offload"}, {"zero3-offload.offload_optimizer.device", "cpu"}});
    all.push_back({{"strategy", "zero3-offload"}, {"zero3-offload.offload_optimizer.device", "cpu"}, {"recompute", "full"}});
  }
  return all;
}

}  // namespace

std::vector<Remedy> remedies_for(const Plan& plan, PluginHost& host) {
  std::vector<Remedy> found;
  for (const Choices& changes : candidates(plan.config())) {
    try {
      RunConfig config = plan.config();
      apply(changes, config);
      // The batch of a rank follows from that of all.
      if (std::none_of(changes.begin(), changes.end(), [](const Choice& c) { return c.option == "batch"; })) config.batch = 0;
      const Plan changed = plan_run(std::move(config), host, {nullptr, plan.target().machine});
      Prediction prediction = predict(changed);
      if (prediction.fits()) found.push_back({text_of(changes), std::move(prediction)});
    } catch (const Error&) {
      continue;  // these parts do not go together, or sizes do not divide
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Remedy& a, const Remedy& b) { return a.prediction.seconds < b.prediction.seconds; });
  return found;
}

std::string text_of(const std::vector<Remedy>& remedies, const Prediction& asked) {
  std::string text;
  for (const Remedy& remedy : remedies) {
    const double slower = remedy.prediction.seconds / asked.seconds - 1;
    text += "'" + remedy.options + "' fits: " + bytes_text(remedy.prediction.most_bytes()) + ", a step " +
            fixed_text(100 * std::abs(slower), 0) + "% " + (slower < 0 ? "faster" : "slower") + "\n";
  }
  return text;
}

}  // namespace consist::launch
