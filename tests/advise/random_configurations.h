// Legal configurations drawn at random, beside what a search finds. They know nothing of the space that is searched, so that they
// may leave it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/host.h"
#include "core/base/in_parallel.h"
#include "core/plan/found_model.h"
#include "core/plan/plan.h"
#include "launch/predict/choices.h"
#include "launch/search/tune/estimate.h"
#include "launch/search/tune/quick_estimate.h"
#include "launch/search/tune/space.h"

namespace consist::test {

/// Divides the ranks, chooses a micro-batch, recomputation and options of the strategies, each of a few values that are equally
/// likely.
class RandomConfigurations {
 public:
  /// `config` has its global batch.
  RandomConfigurations(RunConfig config, const Machine& machine, PluginHost& host, std::uint64_t seed)
      : config_(std::move(config)), most_tensor_(machine.ranks_per_node), sizes_(model_sizes(config_, host)), random_(seed) {}

  /// The next one, which may turn out to be illegal.
  launch::Choices next() {
    while (true) {
      if (auto choices = draw()) return *std::move(choices);
    }
  }

 private:
  template <typename Value>
  Value one_of(const std::vector<Value>& values) {
    return values[random_() % values.size()];
  }
  bool coin() { return random_() % 2 == 0; }

  /// A divisor of `number` that `takes` accepts; 1 if there is none.
  template <typename Takes>
  std::int64_t divisor(std::int64_t number, const Takes& takes) {
    std::vector<std::int64_t> all;
    for (std::int64_t d = 1; d <= number; ++d) {
      if (number % d == 0 && takes(d)) all.push_back(d);
    }
    return all.empty() ? 1 : one_of(all);
  }

  std::optional<launch::Choices> draw() {
    const auto any = [](std::int64_t) { return true; };
    const std::int64_t tensor =
        divisor(config_.ranks, [&](std::int64_t d) { return d <= most_tensor_ && sizes_.kv_heads % d == 0; });
    const std::int64_t stages = divisor(config_.ranks / tensor, [&](std::int64_t d) { return d <= sizes_.layers; });
    const std::int64_t context = divisor(config_.ranks / tensor / stages, [&](std::int64_t d) {
      return config_.sequence % (2 * d * tensor) == 0 && config_.sequence / d >= 2048;
    });
    const std::int64_t left = config_.ranks / tensor / stages / context;
    const std::int64_t experts = divisor(left, [&](std::int64_t d) { return sizes_.experts > 0 && sizes_.experts % d == 0; });
    if (config_.global_batch % left != 0) return std::nullopt;

    std::string strategy;
    for (const auto& [name, size] : {std::pair{"tp-sp", tensor}, {"cp", context}, {"ep", experts}, {"pipeline", stages}}) {
      if (size > 1) strategy += std::string(strategy.empty() ? "" : "+") + name + "=" + std::to_string(size);
    }
    launch::Choices choices{{"batch", std::to_string(divisor(config_.global_batch / left, any))}};
    add_recomputation(choices);
    if (left > 1 || context > 1 || strategy.empty())
      strategy += (strategy.empty() ? "" : "+") + of_batch(choices, left / experts);
    if (tensor > 1) choices.push_back({"tp-sp.gather-again", coin() ? "true" : "false"});
    if (stages > 1) add_schedule(choices, sizes_.layers / stages);
    choices.insert(choices.begin(), {"strategy", strategy});
    return choices;
  }

  void add_recomputation(launch::Choices& choices) {
    const auto what = one_of<std::string>({"none", "none", "swiglu,rms_norm", "full"});
    choices.push_back({"recompute", what});
    if (what == "none" || coin()) return;
    choices.push_back({"recompute-layers", "0-" + std::to_string(random_() % static_cast<std::uint64_t>(sizes_.layers))});
  }

  /// On one axis or on two, or one strategy within another.
  std::string of_batch(launch::Choices& choices, std::int64_t size) {
    const auto strategy = one_of<std::string>({"ddp", "zero2", "zero3-offload"});
    if (strategy == "zero2") choices.push_back({"zero2.stage", coin() ? "1" : "2"});
    if (strategy == "zero3-offload") choices.push_back({"zero3-offload.reduce-each-micro-batch", coin() ? "true" : "false"});
    const std::int64_t inner = divisor(size, [](std::int64_t d) { return d > 1; });
    if (inner == size || coin()) return strategy;
    const std::string within = std::to_string(inner), between = std::to_string(size / inner);
    return strategy == "ddp" || coin() ? strategy + "=" + between + "x" + within : strategy + "=" + within + "+ddp=" + between;
  }

  void add_schedule(launch::Choices& choices, std::int64_t layers_of_stage) {
    const auto schedule = one_of<std::string>({"1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"});
    if (schedule != "interleaved" || layers_of_stage < 2) {
      choices.push_back({"pipeline.schedule", schedule == "interleaved" ? "1f1b" : schedule});
      return;
    }
    choices.push_back({"pipeline.schedule", schedule});
    choices.push_back({"pipeline.chunks", std::to_string(2 + random_() % static_cast<std::uint64_t>(layers_of_stage - 1))});
  }

  RunConfig config_;
  std::int64_t most_tensor_;
  ModelSizes sizes_;
  std::mt19937_64 random_;
};

struct Drawn {
  std::size_t drawn = 0, legal = 0, simulated = 0, whole = 0;
  double best = 0;                                         ///< seconds of the fastest that was simulated
  std::vector<std::pair<double, launch::Choices>> faster;  ///< than was asked, with their seconds
};

/// Draws until so many are legal and fit, or `enough` of them take less than `(1 - tolerance) * best`, and says which do. What is
/// clearly slower is estimated, or simulated with few micro-batches, alone.
class Draws {
 public:
  Draws(RunConfig config, std::shared_ptr<const Machine> machine, PluginHost& host)
      : config_(std::move(config)), machine_(std::move(machine)), host_(host) {}

  Drawn faster_than(double best, std::size_t legal, std::uint64_t seed, double tolerance = 0.01, std::size_t enough = SIZE_MAX) {
    RandomConfigurations random(config_, *machine_, host_, seed);
    Drawn result;
    while (result.legal < legal && result.faster.size() < enough) {
      std::vector<launch::Choices> drawn(4 * static_cast<std::size_t>(usable_cores()));
      for (launch::Choices& choices : drawn) choices = random.next();
      std::vector<std::optional<Step>> steps(drawn.size());
      in_parallel(drawn.size(), usable_cores(), [&](std::size_t n) { steps[n] = step_of(drawn[n], best); });
      for (std::size_t n = 0; n < drawn.size() && result.legal < legal && result.faster.size() < enough; ++n) {
        ++result.drawn;
        if (!steps[n]) continue;
        const Step& step = *steps[n];
        ++result.legal;
        result.simulated += step.depth == Depth::simulated ? 1 : 0;
        result.whole += step.depth == Depth::whole ? 1 : 0;
        if (step.depth == Depth::estimated) continue;
        result.best = result.best == 0 ? step.seconds : std::min(result.best, step.seconds);
        if (step.seconds < (1 - tolerance) * best) result.faster.emplace_back(step.seconds, drawn[n]);
      }
    }
    return result;
  }

 private:
  enum class Depth : unsigned char { estimated, simulated, whole };
  struct Step {
    double seconds = 0;
    Depth depth = Depth::estimated;
  };

  Plan plan_of(RunConfig config) {
    const std::lock_guard lock(making_);
    return plan_run(std::move(config), host_, {nullptr, machine_, false});
  }

  /// Nothing of what is refused or does not fit.
  std::optional<Step> step_of(const launch::Choices& choices, double best) {
    // Estimates of a few layers are off by a fifth, few micro-batches by less than a percent but for what builds up in many.
    constexpr double slower_by_estimate = 1.4, slower_by_few = 1.1;
    try {
      RunConfig config = config_;
      config.batch = config.accumulation = 0;
      apply(choices, config);
      Plan plan = plan_of(config);
      if (const auto quick = quick_.of(plan.config()); quick && quick->seconds > slower_by_estimate * best)
        return quick->fits ? std::optional(Step{quick->seconds}) : std::nullopt;
      const int stages = launch::stages_of(plan.layout());
      const launch::Estimate few = launch::estimate(plan, stages, false);
      if (!few.fits) return std::nullopt;
      if (few.whole || few.seconds > slower_by_few * best) return Step{few.seconds, few.whole ? Depth::whole : Depth::simulated};
      Plan whole = plan_of(config);
      const launch::Estimate all = launch::estimate(whole, stages, true);
      return all.fits ? std::optional(Step{all.seconds, Depth::whole}) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // its parts or sizes do not go together
    }
  }

  RunConfig config_;
  std::shared_ptr<const Machine> machine_;
  PluginHost& host_;
  std::mutex making_;
  launch::QuickEstimates quick_{[this](RunConfig config) { return plan_of(std::move(config)); }, host_, making_, {}};
};

}  // namespace consist::test
