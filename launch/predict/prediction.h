// The predicted seconds and memory of a step on a machine that need not be present, and the parts of its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/cost/power.h"
#include "core/cost/simulator.h"
#include "core/cost/step_time.h"
#include "core/plan/links.h"
#include "core/plan/plan.h"
#include "launch/predict/costs.h"

namespace consist::launch {

/// The ranks with one program.
struct RankMemory {
  int rank = 0;   ///< one of them
  int ranks = 1;  ///< so many
  std::int64_t bytes = 0, host_bytes = 0;
};

/// Instructions of one op on tensors that are named alike but for their layer, on the path that sets the step's time.
struct PathItem {
  std::string label;  ///< "linear model.layers.*.mlp.up_proj"
  int instructions = 0;
  double seconds = 0;
};

struct Prediction {
  std::string machine;                 ///< the name of the one that it is for
  StepTime time;                       ///< of a step, mean of the stages
  double tokens_per_second = 0;        ///< of all ranks
  double model_flops = 0;              ///< per second and rank
  double model_flops_utilization = 0;  ///< of the peak of the precision's products; fraction, 0..1
  std::vector<RankMemory> memory;  ///< by stage
  std::vector<PathItem> path;      ///< the longest first
  std::vector<AxisLinks> links;    ///< by axis of the mesh
  std::string transports;          ///< chosen_transports(): what a command says that is to come to these links
  std::int64_t capacity = 0;       ///< bytes of device memory that a plan may take; 0: not known

  std::int64_t checkpoint_bytes = 0;  ///< that all ranks write, each value once

  std::int64_t most_bytes() const;
  bool fits() const { return capacity == 0 || most_bytes() <= capacity; }
};

/// "model.layers.12.mlp.up_proj" as "model.layers.*.mlp.up_proj".
std::string without_numbers(const std::string& name);

/// Dense peak of a rank's device for products of the plan's precision, FLOP/s; 0: not known.
double peak_of(const Plan& plan);

/// Compiles on as many threads, at most. Throws what compiling throws. `plan` is laid out, for a machine.
Prediction predict(const Plan& plan, int threads = 1);
/// From the programs of these ranks, which are the plan's and need no summary, and their simulation.
Prediction predict(const Plan& plan, const std::vector<PlannedRank>& ranks, const Simulation& simulation);

/// Joules of all ranks in a step, from the parts of its time. REQUIRES: power.is_known().
double joules_of(const Prediction& prediction, const Power& power, int ranks);

/// By the configuration's --price for the machine and by the power that its file has; without either that is not known.
Costs costs_of(const Prediction& prediction, const Plan& plan, const Power& power);

/// "Predicted for Consist's own programs and kernels on a machine with h200's figures; ...", a line: what a prediction is not.
std::string scope_text(const std::string& machine);

/// For people. `power`: of the plan's machine (power_named).
std::string text_of(const Prediction& prediction, const Plan& plan, const Power& power);
/// docs/predict.md lists the keys.
nlohmann::ordered_json json_of(const Prediction& prediction, const Plan& plan, const Power& power);

}  // namespace consist::launch
