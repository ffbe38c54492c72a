#include "launch/measure/steps.h"

#include <algorithm>
#include <iterator>

namespace consist::launch {
namespace {

CalibrationPlan plan_of_kind(const std::string& device_kind) {
  if (device_kind == "cpu") {
    return {.sampled = {{"llama-tiny", 2, 1, 64, "fp32", ""},
                        {"llama-tiny", 2, 8, 128, "fp32", ""},
                        {"qwen3-tiny", 2, 4, 64, "fp32", ""},
                        {"qwen3-tiny", 2, 4, 512, "fp32", ""},
                        {"llama-32m", 1, 1, 128, "fp32", ""},
                        {"llama-32m", 1, 4, 256, "fp32", ""},
                        {"llama-100m", 1, 2, 256, "fp32", ""},
                        {"qwen3-100m", 1, 1, 512, "fp32", ""},
                        {"llama-tiny", 2, 4, 128, "bf16", ""},
                        {"qwen3-tiny", 2, 4, 256, "bf16", ""},
                        {"llama-32m", 1, 2, 256, "bf16", ""}},
            .checked = {{"llama-tiny", 4, 4, 128, "fp32", ""},
                        {"qwen3-tiny", 4, 2, 256, "fp32", ""},
                        {"llama-32m", 2, 2, 256, "fp32", ""},
                        {"llama-tiny", 4, 4, 128, "fp32", "zero2"},
                        {"qwen3-tiny", 4, 2, 256, "fp32", "ddp"},
                        {"llama-32m", 2, 2, 256, "fp32", "zero3-offload"}},
            .reduced = {"llama-32m", 2, 1, 256, "fp32", "ddp"},
            .gathered = {"llama-32m", 2, 1, 256, "fp32", "zero3-offload"},
            .most_bytes = std::int64_t{32} << 20};
  }
  // As many layers as make the mix of a whole model: the LM head alone would draw the power, and with it the clock, of large
  // products.
  return {.sampled = {{"qwen3-0.6b", 28, 1, 4096, "bf16", ""},
                      {"qwen3-0.6b", 28, 8, 4096, "bf16", ""},
                      {"qwen3-0.6b", 28, 32, 1024, "bf16", ""},
                      {"qwen3-0.6b", 4, 8, 4096, "bf16", ""},  // the same under another load
                      {"qwen3-1.7b", 8, 1, 16384, "bf16", ""},
                      {"qwen3-1.7b", 8, 1, 32768, "bf16", ""},
                      {"llama-3.1-8b", 10, 1, 4096, "bf16", ""},
                      {"llama-3.1-8b", 10, 4, 4096, "bf16", ""},
                      {"llama-3.1-8b", 2, 4, 4096, "bf16", ""},  // the same under another load
                      {"llama-3.1-8b", 6, 1, 32768, "bf16", ""},
                      {"llama-3.2-1b", 6, 4, 4096, "bf16", ""},  // heads of 64
                      {"llama-3.2-1b", 6, 1, 8192, "bf16", ""},
                      {"llama-3.2-1b", 3, 1, 32768, "bf16", ""},
                      {"qwen3-4b", 12, 2, 4096, "bf16", ""},
                      {"qwen3-32b", 5, 1, 8192, "bf16", ""},
                      {"qwen3-0.6b", 4, 4, 2048, "fp32", ""},
                      {"qwen3-0.6b", 28, 2, 4096, "fp8", ""},
                      {"llama-3.2-1b", 12, 4, 4096, "fp8", ""},
                      {"llama-3.2-3b", 12, 2, 4096, "fp8", ""},
                      {"llama-3.1-8b", 10, 1, 4096, "fp8", ""},
                      {"llama-3.1-8b", 10, 4, 4096, "fp8", ""}},
          .checked = {{"qwen3-1.7b", 14, 4, 4096, "bf16", ""},
                      {"llama-3.1-8b", 12, 2, 4096, "bf16", ""},
                      {"qwen3-8b", 8, 2, 8192, "bf16", ""},
                      {"qwen3-1.7b", 14, 4, 4096, "bf16", "zero2"},
                      {"qwen3-0.6b", 28, 4, 4096, "bf16", "ddp"},
                      {"llama-3.1-8b", 12, 2, 4096, "bf16", "zero3-offload"}},
          .reduced = {"llama-3.1-8b", 4, 1, 4096, "bf16", "ddp"},
          .gathered = {"llama-3.1-8b", 10, 1, 4096, "bf16", "zero3-offload"},
          .most_bytes = std::int64_t{1} << 30};
}

/// Adds steps of a model that the kind's plan does not have.
void add_steps(CalibrationPlan& plan, const std::string& model, bool on_processor) {
  const std::int64_t sequence = on_processor ? 128 : 4096;
  const std::string precision = on_processor ? "fp32" : "bf16";
  for (const std::int64_t batch : {1, 2, 4}) plan.sampled.push_back({model, 1, batch, sequence, precision, ""});
  if (!on_processor) plan.sampled.push_back({model, 1, 4, sequence, "fp8", ""});
  for (const char* strategy : {"", "zero3-offload"}) plan.checked.push_back({model, 2, 3, sequence, precision, strategy});
}

}  // namespace

CalibrationPlan calibration_plan(const std::string& device_kind, const std::vector<std::string>& models) {
  const CalibrationPlan all = plan_of_kind(device_kind);
  if (models.empty()) return all;
  CalibrationPlan plan{
      .sampled = {}, .checked = {}, .reduced = all.reduced, .gathered = all.gathered, .most_bytes = all.most_bytes};
  plan.reduced.model = plan.gathered.model = models.front();
  for (const std::string& model : models) {
    const auto is_of = [&](const CalibrationStep& step) { return step.model == model; };
    if (std::none_of(all.sampled.begin(), all.sampled.end(), is_of)) {
      add_steps(plan, model, device_kind == "cpu");
      continue;
    }
    std::copy_if(all.sampled.begin(), all.sampled.end(), std::back_inserter(plan.sampled), is_of);
    std::copy_if(all.checked.begin(), all.checked.end(), std::back_inserter(plan.checked), is_of);
  }
  return plan;
}

}  // namespace consist::launch
