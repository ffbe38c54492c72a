// Looks for the best configuration: thousands are estimated, the best of them simulated with few micro-batches, the best of those
// whole.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "launch/predict/prediction.h"
#include "launch/search/tune/around.h"
#include "launch/search/tune/findings.h"
#include "launch/search/tune/other_rates.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

/// A configuration that fits, planned whole.
struct Candidate {
  Choices choices;
  RunConfig config;  ///< of the search with these, batch and accumulation stated
  Prediction prediction;
  Point point = {};                 ///< of the search's space
  bool best_for_memory = false;     ///< no other is both as fast and as small
  bool on_frontier = false;         ///< no other is as fast, as small and, where work's power is known, takes as little energy
  bool best_of_transport = false;   ///< the fastest of its transport, if several are searched
  bool changes_numerics = false;    ///< it has options that the user has not given and that round in another way
  double measured = 0;              ///< seconds of a step; 0: not measured, or it failed
  std::int64_t measured_steps = 0;  ///< of the run that says so
  std::string problem;              ///< of the measurement
};

struct SearchRequest {
  RunConfig config;  ///< `global_batch` is settled
  std::shared_ptr<const Machine> machine;
  Settled settled;
  /// Parts whose options the command line gives: layouts without them are refused. Those of a file's other parts are dropped.
  std::set<std::string> given_parts;
  std::vector<std::string> transports;  ///< that are searched (Space); none: the configuration's
  Objective objective = Objective::tokens;
  Power power;                                            ///< of the machine; known if the objective is energy
  bool exhaustive = false;                                ///< every combination, each planned whole
  std::size_t most_simulated = 100;                       ///< configurations that are simulated with few micro-batches
  std::size_t rows = 10;                                  ///< of result.candidates, at least, if there are so many
  double most_seconds = 0;                                ///< of searching; 0: no limit
  std::function<void(const std::string& text)> progress;  ///< one line, again and again; may be empty. One thread at a time
};

struct SearchResult {
  /// The best by the objective, in its order: of configurations that differ in options of plugins alone the best one. The Pareto
  /// front is among them. Only if nothing else fits do they change the numerics.
  std::vector<Candidate> candidates;
  /// The best of those that differ from the first of them in options that round in another way, if it is better.
  std::optional<Candidate> other_numerics;
  std::size_t estimated = 0;  ///< by arithmetic
  std::size_t compiled = 0;   ///< small steps for that
  std::size_t simulated = 0;  ///< with few micro-batches, if the step has more
  std::size_t whole = 0;      ///< simulated with all of them
  std::size_t too_large = 0;  ///< for the machine's memory
  std::size_t refused = 0;    ///< their parts or sizes do not go together
  /// Relative differences of estimates from what was simulated: the mean and the largest.
  double mean_error = 0, largest_error = 0;
  /// Those that were only estimated and that may still be better, as far as estimates are off; 0 of a search that has converged.
  std::size_t open = 0;
  std::size_t nearly_as_good = 0;  ///< simulated ones of other families within margin_of_ties of the first
  std::vector<OptionSteps> around;      ///< of the first candidate
  std::vector<OtherRates> other_rates;  ///< of the first candidates, as many as may overtake; none for the least memory
  double seconds = 0;              ///< that the search took
  bool ended_early = false;        ///< by `most_seconds`

  bool has_converged() const { return open == 0 && !ended_early; }
};

/// On as many threads as there are cores. Throws UsageError if nothing is legal: the first refusal.
SearchResult search(const SearchRequest& request, PluginHost& host);

}  // namespace consist::launch
