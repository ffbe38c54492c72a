#include "launch/tune/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "consist/error.h"
#include "consist/host.h"
#include "consist/text.h"

namespace consist::launch {
namespace {

/// Results of one layout with one set of its strategies' options.
struct Unit {
  LayoutChoice layout;
  Choices options;
  std::vector<Candidate> candidates;
  int refused = 0, too_large = 0;
  std::string refusal;  ///< the first one
};

class Search {
 public:
  Search(const SearchRequest& request, PluginHost& host) : request_(request), host_(host) {}

  SearchResult run() {
    std::vector<Unit> units;
    for (const LayoutChoice& layout : layouts()) {
      for (const Choices& options : strategy_options(layout)) units.push_back({layout, options, {}, 0, 0, ""});
    }
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t n = next++; n < units.size(); n = next++) try_layout(units[n]);
    };
    std::vector<std::future<void>> others;
    for (int w = 1; w < usable_cores(); ++w) others.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& other : others) other.get();
    return result_of(units);
  }

 private:
  /// Of the strategy that the user has settled, or all.
  std::vector<LayoutChoice> layouts() const {
    const RunConfig& config = request_.config;
    if (!request_.settled.strategy) return launch::layouts(config, model_sizes(config, host_), request_.machine->ranks_per_node);
    const Parts parts = make_parts(config, host_);
    return {{consist::text_of(config.strategies), 1, 1, lay_out(parts.uses, config.ranks).batch_ranks()}};
  }

  SearchResult result_of(std::vector<Unit>& units) const {
    SearchResult result{.ended_early = ended_};
    std::string refusal;
    for (Unit& unit : units) {
      result.refused += unit.refused;
      result.too_large += unit.too_large;
      if (refusal.empty()) refusal = unit.refusal;
      std::move(unit.candidates.begin(), unit.candidates.end(), std::back_inserter(result.candidates));
    }
    auto& all = result.candidates;
    if (all.empty() && result.too_large == 0 && !refusal.empty()) throw UsageError(refusal);
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.prediction.seconds < b.prediction.seconds; });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (Candidate& candidate : all) {
      candidate.best_for_memory = candidate.prediction.most_bytes() < least;
      least = std::min(least, candidate.prediction.most_bytes());
    }
    return result;
  }

  /// Larger micro-batches first: without stages the largest that fits is the fastest or nearly so, and with them small ones,
  /// which fill the stages sooner, compete with large ones, whose products reach more.
  void try_layout(Unit& unit) {
    Choices base;
    if (!request_.settled.strategy) base.push_back({"strategy", unit.layout.strategy});
    base.insert(base.end(), unit.options.begin(), unit.options.end());
    if (request_.settled.batch) {
      try_recompute(unit, base);
      return;
    }
    const std::int64_t sequences = request_.config.global_batch / unit.layout.data;
    if (request_.config.global_batch % unit.layout.data != 0 || sequences == 0) {
      ++unit.refused;
      return;
    }
    constexpr int that_fit = 2;
    int fit = 0;
    for (const std::int64_t batch : micro_batches(sequences, unit.layout.stages)) {
      Choices choices = base;
      choices.push_back({"batch", std::to_string(batch)});  // the accumulation follows
      if (try_recompute(unit, choices)) ++fit;
      if (unit.layout.stages == 1 && fit == that_fit) break;
    }
  }

  /// Recomputation only where the plan does not fit without. Whether it fits without.
  bool try_recompute(Unit& unit, const Choices& choices) {
    if (request_.settled.recompute) return try_one(unit, choices).value_or(false);
    for (const char* recompute : {"none", "swiglu,rms_norm", "full"}) {
      Choices all = choices;
      if (std::string_view(recompute) != "none") all.push_back({"recompute", recompute});
      const std::optional<bool> fits = try_one(unit, all);
      if (!fits) return false;  // refused: so it is with recomputation
      if (*fits) return std::string_view(recompute) == "none";
    }
    return false;
  }

  /// Whether it fits; nothing if it is refused.
  std::optional<bool> try_one(Unit& unit, const Choices& choices) {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    if (ended_ || (request_.most_seconds > 0 && passed > request_.most_seconds)) {
      ended_ = true;
      return std::nullopt;
    }
    try {
      const Plan plan = plan_of(choices);
      Prediction prediction = predict(plan);
      if (!prediction.fits()) {
        ++unit.too_large;
        return false;
      }
      unit.candidates.push_back({choices, std::move(prediction), false, 0, ""});
      return true;
    } catch (const Error& error) {
      ++unit.refused;
      if (unit.refusal.empty()) unit.refusal = error.what();
      return std::nullopt;
    }
  }

  /// The host makes one part after the other.
  Plan plan_of(const Choices& choices) {
    RunConfig config = request_.config;
    if (!request_.settled.batch) config.accumulation = 0;  // follows from the batch and the global batch
    apply(choices, config);
    const std::lock_guard lock(making_);
    ++tried_;
    if (request_.progress) request_.progress(std::to_string(tried_) + " planned; " + text_of(choices));
    return plan_run(std::move(config), host_, {nullptr, request_.machine, false});
  }

  const SearchRequest& request_;
  PluginHost& host_;
  std::mutex making_;
  int tried_ = 0;
  std::atomic<bool> ended_{false};
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

std::string row_of(const Candidate& c) {
  char line[120];
  std::snprintf(line, sizeof line, "%10.2f %10s %11s %6.1f%% %6s ", c.prediction.seconds * 1e3,
                c.measured > 0      ? fixed_text(c.measured * 1e3, 2).c_str()
                : c.problem.empty() ? ""
                                    : "failed",
                bytes_text(c.prediction.most_bytes()).c_str(), 100 * c.prediction.model_flops_utilization,
                c.best_for_memory ? "*" : "");
  return line + text_of(c.choices) + "\n";
}

}  // namespace

SearchResult search(const SearchRequest& request, PluginHost& host) {
  return Search(request, host).run();
}

std::string table_of(const SearchResult& result, std::size_t rows) {
  std::string text = " PREDICTED   MEASURED      MEMORY     MFU PARETO CONFIGURATION\n      (ms)       (ms)\n";
  std::size_t shown = 0;
  for (std::size_t n = 0; n < result.candidates.size(); ++n) {
    const Candidate& candidate = result.candidates[n];
    if (n >= rows && !candidate.best_for_memory) continue;
    text += row_of(candidate);
    ++shown;
  }
  if (shown < result.candidates.size()) text += "  and " + std::to_string(result.candidates.size() - shown) + " slower ones\n";
  return text + "PARETO: no other configuration is both as fast and as small.\n";
}

std::string why(const Candidate& winner, const Candidate& other) {
  const auto parts_of = [](const Prediction& p) {
    std::map<std::string, double> parts{{"products", p.shares.products},
                                        {"attention", p.shares.attention},
                                        {"memory-bound ops", p.shares.memory},
                                        {"the optimizer", p.shares.optimizer},
                                        {"the pipeline's bubble", p.shares.pipeline},
                                        {"copies from and to the host", p.shares.host}};
    for (const auto& [axis, seconds] : p.shares.communication) parts["exposed communication"] += seconds;
    return parts;
  };
  std::map<std::string, double> less = parts_of(other.prediction);
  for (const auto& [name, seconds] : parts_of(winner.prediction)) less[name] -= seconds;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, seconds] : less) sorted.emplace_back(seconds, name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text;
  constexpr std::size_t most = 3;
  const double difference = other.prediction.seconds - winner.prediction.seconds;
  for (std::size_t n = 0; n < most && n < sorted.size(); ++n) {
    if (std::abs(sorted[n].first) < 0.05 * std::abs(difference)) break;
    text += (text.empty() ? "" : ", ") + fixed_text(std::abs(sorted[n].first) * 1e3, 2) + " ms " +
            (sorted[n].first > 0 ? "less" : "more") + " of " + sorted[n].second;
  }
  return text;
}

}  // namespace consist::launch
