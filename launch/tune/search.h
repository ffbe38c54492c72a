// Plans and simulates configurations, and keeps those that fit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "launch/predict/prediction.h"
#include "launch/tune/space.h"

namespace consist::launch {

struct Candidate {
  Choices choices;
  Prediction prediction;
  bool best_for_memory = false;  ///< no other is both as fast and as small (on the Pareto front)
  double measured = 0;           ///< seconds of a step; 0: not measured
  std::string problem;           ///< of the measurement
};

struct SearchRequest {
  RunConfig config;  ///< `global_batch` is settled
  std::shared_ptr<const Machine> machine;
  Settled settled;
  double most_seconds = 0;                                ///< of searching; 0: no limit
  std::function<void(const std::string& text)> progress;  ///< one line, again and again; may be empty
};

struct SearchResult {
  std::vector<Candidate> candidates;  ///< that fit, the fastest first
  int refused = 0;                    ///< their parts or sizes do not go together
  int too_large = 0;                  ///< for the machine's memory
  bool ended_early = false;           ///< by `most_seconds`
};

/// On as many threads as there are cores. Throws UsageError if nothing is legal: the first refusal.
SearchResult search(const SearchRequest& request, PluginHost& host);

/// A table of the first `rows` and of the Pareto front of speed and memory.
std::string table_of(const SearchResult& result, std::size_t rows);

/// Why `winner` is faster than `other`: the parts of the step that differ most.
std::string why(const Candidate& winner, const Candidate& other);

}  // namespace consist::launch
