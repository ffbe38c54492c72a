// Estimates and simulates points of a space, on all cores, and keeps what it finds out.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "core/plan/transports.h"
#include "core/plugin/host.h"
#include "launch/search/tune/findings.h"
#include "launch/search/tune/quick_estimate.h"
#include "launch/search/tune/search.h"
#include "launch/search/tune/space.h"

namespace consist::launch {

enum class Depth : unsigned char {
  quick,      ///< by arithmetic; where there is none, simulated
  simulated,  ///< with few micro-batches
  whole,
};

class Trier {
 public:
  Trier(const SearchRequest& request, PluginHost& host);

  const Space& space() const noexcept { return space_; }
  const Findings& found() const noexcept { return found_; }
  Findings& found() noexcept { return found_; }

  /// Tries those that were not tried so deep. What is late, after `until` seconds of the search, is left out; 0: nothing is.
  void try_all(const Points& points, Depth depth, double until = 0);

  /// The configuration, laid out for the search's machine. THREADS: any.
  Plan plan_of(RunConfig config);
  /// Its batch and accumulation stated. Throws UsageError where the sequences of a step are not divided by them.
  RunConfig config_of(const Point& point) const;

  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  bool left_out_some() const noexcept { return left_out_; }
  std::string first_refusal() const { return refusal_; }
  std::size_t compiled_small_steps() const { return 2 * estimates_.models(); }

 private:
  Known try_one(const Point& point, Depth depth);

  const SearchRequest& request_;
  PluginHost& host_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Space space_;
  Findings found_;
  const AutomaticTransports automatic_;
  std::mutex making_;  // the host makes one part after the other
  QuickEstimates estimates_;
  std::string refusal_;  // the first one
  std::size_t tried_ = 0;
  std::atomic<bool> left_out_{false};
};

}  // namespace consist::launch
