#include "launch/search/tune/quick_estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "consist/cost.h"
#include "consist/error.h"
#include "core/compile/reduced_step.h"

namespace consist::launch {
namespace {

/// The parts of a configuration that a StepModel depends on, as one text.
std::string key_of(const RunConfig& config) {
  std::string key = text_of(config.strategies) + ";" + transports_text(config) + ";" + config.precision + ";" +
                    config.optimizer_plugin + ";" + std::to_string(config.sequence) + ";" + std::to_string(config.batch) + ";" +
                    std::to_string(config.accumulation) + ";" + what_text(config.recompute) + ";" + text_of(config.offload);
  for (const auto& [owner, options] : config.plugin_options) {
    for (const auto& [option, value] : options) key += ";" + owner + "." + option + "=" + value;
  }
  return key;
}

/// True if this layer of the model is recomputed.
bool is_recomputed(const RecomputeRequest& request, int layer) {
  return request.any() && layer >= request.first_layer && (request.last_layer < 0 || layer <= request.last_layer);
}

/// The work in front of the layers, that of each layer, and that behind them.
std::vector<LayerWork> parts_of(const StepModel& usual, const StepModel& recomputed, const RecomputeRequest& request) {
  std::vector<LayerWork> parts{usual.before};
  for (int layer = 0; layer < usual.layers; ++layer)
    parts.push_back(is_recomputed(request, layer) ? recomputed.layer : usual.layer);
  parts.push_back(usual.after);
  return parts;
}

/// Between two models by the share of layers that are recomputed.
StepModel mixed(const StepModel& usual, const StepModel& recomputed, double share) {
  StepModel m = usual;
  const auto mix = [&](double& figure, double other) { figure += share * (other - figure); };
  mix(m.seconds, recomputed.seconds);
  mix(m.micro_batch_seconds, recomputed.micro_batch_seconds);
  mix(m.update_bytes, recomputed.update_bytes);
  mix(m.layer.kept_bytes, recomputed.layer.kept_bytes);
  mix(m.layer.state_bytes, recomputed.layer.state_bytes);
  m.other_bytes = std::max(m.other_bytes, recomputed.other_bytes);
  for (std::size_t k = 0; k < m.micro_batch_work.size(); ++k) mix(m.micro_batch_work[k], recomputed.micro_batch_work[k]);
  return m;
}

}  // namespace

std::vector<StrategyChoice> QuickEstimates::stages_of(const RunConfig& config) {
  std::vector<StrategyChoice> stages;
  const std::lock_guard lock(making_);
  for (const StrategyChoice& choice : config.strategies) {
    auto known = makes_stages_.find(choice.name);
    if (known == makes_stages_.end()) {
      const auto options = config.plugin_options.find(choice.name);
      const auto strategy = host_.make<ParallelStrategy>(
          "strategy", choice.name,
          options == config.plugin_options.end() ? std::map<std::string, std::string>{} : options->second);
      known = makes_stages_.emplace(choice.name, makes_stages(strategy->axis())).first;
    }
    if (known->second && choice.size > 1) stages.push_back(choice);
  }
  return stages;
}

void QuickEstimates::make(Entry& entry, const RunConfig& config, bool stages) {
  const Plan plan = plan_of_(config);
  entry.batch_ranks = plan.layout().batch_ranks();
  entry.capacity = plan.target().machine->device.memory_bytes.value;
  entry.model = model_of(plan, plan.config().accumulation);
  for (const StrategyUse& use : plan.layout().active) {
    if (makes_stages(use.strategy->axis())) entry.stage_axes = use.axes;
  }
  if (!stages) return;
  entry.costs = std::make_shared<CostModel>(plan.target().machine, plan.layout().mesh, plan.transports().by_axis);
}

/// Returns the entry of the configuration with 1 or 2 micro-batches. Throws UsageError if its model cannot be made.
std::shared_ptr<const QuickEstimates::Entry> QuickEstimates::entry_of(RunConfig config, bool stages) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(lock_);
    std::shared_ptr<Entry>& slot = entries_[key_of(config)];
    if (!slot) slot = std::make_shared<Entry>();
    entry = slot;
  }
  const std::lock_guard lock(entry->making);
  if (!entry->made) {
    entry->made = true;
    try {
      make(*entry, config, stages);
    } catch (const Error& error) {
      entry->refusal = error.what();
    }
  }
  if (!entry->refusal.empty()) throw UsageError(entry->refusal);
  return entry;
}

std::optional<StageEstimate> QuickEstimates::in_stages(const RunConfig& config, const StrategyChoice& stages, const Entry& entry,
                                                       const std::vector<LayerWork>& parts, int micro_batches) {
  std::shared_ptr<const ParallelStrategy> strategy;
  {
    const auto options = config.plugin_options.find(stages.name);
    const std::lock_guard lock(making_);
    strategy = host_.make<ParallelStrategy>(
        "strategy", stages.name, options == config.plugin_options.end() ? std::map<std::string, std::string>{} : options->second);
  }
  const auto* const estimator = dynamic_cast<const StageEstimator*>(strategy.get());
  if (estimator == nullptr) return std::nullopt;
  return estimator->estimate_stages({.parts = parts,
                                    .has_collectives = entry.model.has_collectives,
                                    .message_seconds = entry.costs->message_seconds(entry.model.message_bytes, entry.stage_axes),
                                    .ranks = stages.size,
                                    .micro_batches = micro_batches});
}

std::optional<Estimate> QuickEstimates::of(const RunConfig& config) {
  const std::vector<StrategyChoice> stages = stages_of(config);
  if (stages.size() > 1) return std::nullopt;
  // A layout's sequences of a rank are known once it is laid out; the number of micro-batches follows.
  RunConfig asked = config;
  for (const StrategyChoice& choice : stages) asked.plugin_options.erase(choice.name);
  asked.recompute.first_layer = 0;
  asked.recompute.last_layer = -1;
  const int micro_batches = config.accumulation;
  asked.accumulation = stages.empty() ? std::min(fewest_micro_batches(1), micro_batches) : fewest_micro_batches(1);
  asked.global_batch = 0;
  const auto entry = entry_of(asked, !stages.empty());
  const StepModel* model = &entry->model;
  StepModel between;
  std::vector<LayerWork> parts;
  const RecomputeRequest& request = config.recompute;
  if (request.any() && (request.first_layer > 0 || request.last_layer >= 0)) {
    asked.recompute = {};
    const auto usual = entry_of(asked, !stages.empty());
    parts = parts_of(usual->model, entry->model, request);
    const int last = request.last_layer < 0 ? usual->model.layers - 1 : request.last_layer;
    between = mixed(usual->model, entry->model, static_cast<double>(last - request.first_layer + 1) / usual->model.layers);
    model = &between;
  } else {
    parts = parts_of(*model, *model, {});
  }

  Estimate estimate{.whole = false};
  double bytes = model->bytes();
  if (stages.empty()) {
    estimate.seconds = model->seconds + std::max(0, micro_batches - model->micro_batches) * model->micro_batch_seconds;
  } else {
    const std::optional<StageEstimate> in = in_stages(config, stages.front(), *entry, parts, micro_batches);
    if (!in) return std::nullopt;
    estimate.seconds = in->seconds;
    bytes = std::max(in->bytes + model->other_bytes, model->update_bytes / stages.front().size);
  }
  estimate.bytes = std::llround(bytes);
  estimate.fits = entry->capacity == 0 || bytes <= entry->capacity;
  // No rank has less than the mean of all stages.
  const double states = std::max(model->state_bytes(), model->update_bytes) / (stages.empty() ? 1 : stages.front().size);
  estimate.states_fit = entry->capacity == 0 || states <= entry->capacity;
  if (power_.is_known()) {
    const int count = stages.empty() ? 1 : stages.front().size;
    WorkSeconds work{};
    for (std::size_t k = 0; k < work.size(); ++k)
      work[k] = (micro_batches * model->micro_batch_work[k] + std::max(0.0, model->update_work[k])) / count;
    estimate.joules = config.ranks * joules_of(power_, estimate.seconds, work);
  }
  return estimate;
}

std::size_t QuickEstimates::models() const {
  const std::lock_guard lock(lock_);
  return entries_.size();
}

}  // namespace consist::launch
