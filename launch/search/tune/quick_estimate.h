// Steps by arithmetic: a few layers are compiled and simulated, the others take as long as they do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/cost/power.h"
#include "core/plan/plan.h"
#include "launch/search/tune/estimate.h"
#include "launch/search/tune/step_model.h"

namespace consist::launch {

/// Estimates of configurations of one search. Those that differ in the options of strategies that make stages, in recomputed
/// layers and in the number of micro-batches share a StepModel. THREADS: any.
class QuickEstimates {
 public:
  using PlanOf = std::function<Plan(RunConfig)>;

  /// `plan_of`: thread-safe; it makes plans that are laid out. `making`: held while the host makes parts, by plan_of, too.
  QuickEstimates(PlanOf plan_of, PluginHost& host, std::mutex& making, Power power)
      : plan_of_(std::move(plan_of)), host_(host), making_(making), power_(std::move(power)) {}

  /// `config`: as plan_of takes it. Nothing where a strategy that makes stages has no estimate of its own, or no two of the
  /// model's layers are alike. Throws what planning throws.
  std::optional<Estimate> of(const RunConfig& config);

  /// Models that were made: two small compilations each.
  std::size_t models() const;

 private:
  struct Entry {
    std::mutex making;
    bool made = false;
    std::string refusal;  ///< why there is none
    StepModel model;
    std::shared_ptr<const CostModel> costs;
    AxisSet stage_axes;
    double capacity = 0;
    int batch_ranks = 1;
  };
  std::shared_ptr<const Entry> entry_of(RunConfig config, bool stages);
  void make(Entry& entry, const RunConfig& config, bool stages);
  std::optional<StageEstimate> in_stages(const RunConfig& config, const StrategyChoice& stages, const Entry& entry,
                                         const std::vector<LayerWork>& parts, int micro_batches);
  std::vector<StrategyChoice> stages_of(const RunConfig& config);

  PlanOf plan_of_;
  PluginHost& host_;
  std::mutex& making_;
  Power power_;
  mutable std::mutex lock_;  // of what follows
  std::map<std::string, std::shared_ptr<Entry>> entries_;
  std::map<std::string, bool> makes_stages_;
};

}  // namespace consist::launch
