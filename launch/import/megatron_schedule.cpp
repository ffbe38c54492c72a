#include "launch/import/megatron_schedule.h"

#include <cmath>

#include "consist/text.h"
#include "core/base/lower.h"

namespace consist::megatron {
namespace {

using readers::as_text;
using readers::StoredValues;
using readers::Target;

constexpr std::int64_t most_steps = 1'000'000'000'000;
constexpr double most_samples = 1e15;

class Schedule {
 public:
  Schedule(const StoredValues& values, Target& target) : values_(values), target_(target) {}

  void read() {
    RunConfig& config = target_.config;
    if (values_.has("train-samples")) {
      if (values_.has("train-iters"))
        values_.refuse("train-samples", "is given beside train-iters, which Megatron-LM refuses, too");
      values_.state("train-samples", "steps", config.steps, steps_of("train-samples", 0));
    } else if (values_.has("train-iters")) {
      values_.state("train-iters", "steps", config.steps, values_.whole("train-iters", 0, 1, most_steps));
    } else {
      target_.differs("train-iters is absent: --steps " + as_text(config.steps));
    }
    if (values_.has("lr")) values_.state("lr", "learning-rate", config.learning_rate, values_.number("lr", 0));
    const std::string style = values_.choice("lr-decay-style", "linear", {"constant", "linear", "cosine", "WSD"});
    schedule_ = lower(style);
    values_.state("lr-decay-style", "schedule", config.schedule, schedule_);
    const char* const names[] = {"lr-decay-iters",     "lr-decay-samples",    "lr-warmup-iters", "lr-warmup-samples",
                                 "lr-warmup-fraction", "lr-warmup-init",      "min-lr",          "lr-wsd-decay-style",
                                 "lr-wsd-decay-iters", "lr-wsd-decay-samples"};
    const bool ours = config.schedule == schedule_;
    for (const char* name : names)
      values_.note(name, ours ? "options of --schedule " + schedule_
                              : "--schedule " + config.schedule + " is given and goes before the file");
    if (!ours) return;
    until_ = values_.has("lr-decay-samples") ? steps_of("lr-decay-samples", 0)
                                             : values_.whole("lr-decay-iters", config.steps, 1, most_steps);
    read_warmup();
    if (schedule_ != "constant") read_decay();
  }

 private:
  /// Samples as steps of the global batch, the nearest.
  std::int64_t steps_of(const char* name, std::int64_t fallback) const {
    const double samples = values_.number(name, static_cast<double>(fallback));
    if (!(samples >= 0 && samples <= most_samples))
      values_.refuse(name, "is " + as_text(samples) + "; it must be a number of samples");
    const auto batch = static_cast<double>(target_.config.global_batch);
    if (batch <= 0 && samples > 0)
      values_.refuse(name,
                     "counts samples, so that steps follow from global-batch-size, which is not given; give --global-batch");
    if (samples == 0) return 0;
    const double steps = samples / batch;
    const std::int64_t nearest = std::llround(steps);
    if (static_cast<double>(nearest) != steps)
      values_.note(name, as_text(steps) + " steps of " + as_text(batch) + " samples: taken as " + as_text(nearest));
    return nearest;
  }

  void derive(const char* from, const char* option, const std::string& text) {
    target_.derive_plugin(from, schedule_, option, text);
  }

  void read_warmup() {
    std::int64_t warmup = 0;
    if (values_.has("lr-warmup-fraction")) {
      const double fraction = values_.number("lr-warmup-fraction", 0);
      if (!(fraction >= 0 && fraction <= 1))
        values_.refuse("lr-warmup-fraction", "is " + as_text(fraction) + "; it must be from 0 to 1");
      const double steps = fraction * static_cast<double>(until_);
      warmup = std::llround(steps);
      if (static_cast<double>(warmup) != steps)
        values_.note("lr-warmup-fraction", as_text(steps) + " steps: taken as " + as_text(warmup));
    } else if (values_.has("lr-warmup-samples")) {
      warmup = steps_of("lr-warmup-samples", 0);
    } else {
      warmup = values_.whole("lr-warmup-iters", 0, 0, most_steps);
    }
    derive("warm-up", "warmup", as_text(warmup));
    // Step k has init + (peak - init) k/w, so that the first one has init.
    if (warmup > 0) derive("warm-up", "warmup-from", as_text(values_.number("lr-warmup-init", 0)));
  }

  void read_decay() {
    const double peak = target_.config.learning_rate, least = values_.number("min-lr", 0);
    if (least < 0 || least > peak)
      values_.refuse("min-lr", "is " + as_text(least) + "; it must be from 0 to the peak " + as_text(peak));
    derive("min-lr", "final-rate", as_text(peak > 0 ? least / peak : 0.0));
    if (until_ != target_.config.steps) derive("lr-decay-iters", "decay-until", as_text(until_));
    if (schedule_ != "wsd") return;
    const std::string shape = values_.choice("lr-wsd-decay-style", "exponential", {"linear", "cosine", "minus_sqrt"});
    derive("lr-wsd-decay-style", "decay-shape", shape == "minus_sqrt" ? "1-sqrt" : shape);
    if (!values_.has("lr-wsd-decay-iters") && !values_.has("lr-wsd-decay-samples"))
      values_.refuse("lr-wsd-decay-iters", "is not given, which the style WSD needs");
    const std::int64_t decay = values_.has("lr-wsd-decay-samples") ? steps_of("lr-wsd-decay-samples", 0)
                                                                   : values_.whole("lr-wsd-decay-iters", 0, 0, until_);
    derive("lr-wsd-decay-iters", "decay", as_text(static_cast<double>(decay) / static_cast<double>(until_)));
  }

  const StoredValues& values_;
  Target& target_;
  std::string schedule_;
  std::int64_t until_ = 0;
};

}  // namespace

void read_schedule(const StoredValues& values, Target& target) {
  Schedule(values, target).read();
}

}  // namespace consist::megatron
