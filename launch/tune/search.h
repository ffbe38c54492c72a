// Plans and simulates configurations, and keeps those that fit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "launch/predict/prediction.h"
#include "launch/tune/findings.h"
#include "launch/tune/space.h"

namespace consist::launch {

/// A configuration that fits, planned whole.
struct Candidate {
  Choices choices;
  RunConfig config;  ///< of the search with these, batch and accumulation stated
  Prediction prediction;
  bool best_for_memory = false;     ///< no other is both as fast and as small (on the Pareto front)
  bool best_of_transport = false;   ///< the fastest of its transport, if several are searched
  bool changes_precision = false;   ///< it has options of the precision that the user has not given
  double measured = 0;              ///< seconds of a step; 0: not measured, or it failed
  std::int64_t measured_steps = 0;  ///< of the run that says so
  std::string problem;              ///< of the measurement
};

struct SearchRequest {
  RunConfig config;  ///< `global_batch` is settled
  std::shared_ptr<const Machine> machine;
  Settled settled;
  std::vector<std::string> transports;  ///< that are searched (Space); none: the configuration's
  Objective objective = Objective::tokens;
  Power power;                                            ///< of the machine; known if the objective is energy
  bool exhaustive = false;                                ///< every combination, each planned whole
  std::size_t least = 2000;                               ///< configurations that are simulated before the search ends by itself
  std::size_t rows = 10;                                  ///< of result.candidates, at least, if there are so many
  double most_seconds = 0;                                ///< of searching; 0: no limit
  std::function<void(const std::string& text)> progress;  ///< one line, again and again; may be empty. One thread at a time
};

struct SearchResult {
  /// The best by the objective, in its order: of configurations that differ in options of plugins alone the best one. The Pareto
  /// front is among them.
  std::vector<Candidate> candidates;
  std::size_t whole = 0;      ///< configurations that fit, planned and simulated whole
  std::size_t shortened = 0;  ///< planned and simulated with fewer micro-batches alone (estimate.h)
  std::size_t too_large = 0;  ///< planned; for the machine's memory
  std::size_t refused = 0;    ///< their parts or sizes do not go together
  double seconds = 0;         ///< that the search took
  bool ended_early = false;   ///< by `most_seconds`
};

/// On as many threads as there are cores. Throws UsageError if nothing is legal: the first refusal.
SearchResult search(const SearchRequest& request, PluginHost& host);

/// Whether any configuration fits, as far as small micro-batches, full recomputation and the options that save the most memory
/// say. Throws as search().
bool anything_fits(const SearchRequest& request, PluginHost& host);

}  // namespace consist::launch
