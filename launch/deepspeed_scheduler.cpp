// Formulas and defaults are those of deepspeed/runtime/lr_schedules.py (DeepSpeed 0.19.6).
#include "launch/deepspeed_scheduler.h"

#include <algorithm>
#include <string_view>

#include "core/files/json_input.h"

namespace consist::deepspeed {
namespace {

constexpr std::int64_t most_steps = 1'000'000'000'000;

class Scheduler {
 public:
  Scheduler(const Json& block, Target& target) : block_(block), target_(target), rate_(target.config.learning_rate) {}

  void read() {
    const Json type = block_.value("type", Json(nullptr));
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
      target_.refuse("scheduler.type", "is " + shown(type) + "; here it may be WarmupLR, WarmupDecayLR or WarmupCosineLR");
    cosine_ = type == "WarmupCosineLR";
    decays_ = type != "WarmupLR";
    refuse_foreign_parameters(type);
    target_.state("scheduler.type", type, "schedule", rate_.decay,
                  cosine_   ? LearningRate::Decay::cosine
                  : decays_ ? LearningRate::Decay::linear
                            : LearningRate::Decay::constant);
    target_.state("scheduler.type", type, "schedule-counting", rate_.counting, LearningRate::Counting::deepspeed);
    if (!cosine_) read_peak();
    read_warmup();
    if (decays_) read_end();
  }

 private:
  static std::string name(const char* parameter) { return std::string("scheduler.params.") + parameter; }
  bool has(const char* parameter) const { return block_.contains(parameter); }
  /// The parameter, or DeepSpeed's default.
  Json value(const char* parameter, const Json& fallback) const { return block_.value(parameter, fallback); }

  void refuse_foreign_parameters(const Json& type) const {
    constexpr std::string_view of_rates[] = {"warmup_min_lr", "warmup_max_lr"};
    constexpr std::string_view of_cosine[] = {"warmup_min_ratio", "cos_min_ratio"};
    for (const auto& [key, ignored] : block_.items()) {
      const bool foreign =
          cosine_ ? std::count(std::begin(of_rates), std::end(of_rates), key) != 0
                  : std::count(std::begin(of_cosine), std::end(of_cosine), key) != 0 || (key == "total_num_steps" && !decays_);
      if (foreign) target_.refuse(name(key.c_str()), "is given, which " + type.get<std::string>() + " does not have");
    }
    if (const Json last = value("last_batch_iteration", Json(-1)); last != -1)
      target_.refuse(name("last_batch_iteration"), "is " + shown(last) + "; here it must be -1 (--resume continues a schedule)");
  }

  void read_peak() {
    const Json peak = value("warmup_max_lr", Json(nullptr));
    if (is_auto(peak)) {
      target_.resolve(name("warmup_max_lr"), peak, "learning-rate", rate_.peak);
    } else if (!peak.is_null()) {
      target_.state(name("warmup_max_lr"), peak, "learning-rate", rate_.peak, target_.number(name("warmup_max_lr"), peak));
    } else if (decays_) {  // WarmupLR has the optimizer's rate
      target_.stated.erase("learning-rate");  // the scheduler's rate replaces the optimizer's
      target_.absent(name("warmup_max_lr"), "learning-rate", rate_.peak, 1e-3);
    }
  }

  void read_warmup() {
    const Json steps = value("warmup_num_steps", Json(nullptr));
    if (is_auto(steps)) {
      target_.resolve(name("warmup_num_steps"), steps, "warmup", rate_.warmup_steps);
      if (rate_.warmup_steps == 0) return;
    } else if (steps.is_null()) {
      target_.absent(name("warmup_num_steps"), "warmup", rate_.warmup_steps, std::int64_t{1000});
    } else {
      // Fewer than 2 are 2.
      const std::int64_t given = target_.whole(name("warmup_num_steps"), steps, 0, most_steps);
      target_.state(name("warmup_num_steps"), steps, "warmup", rate_.warmup_steps, std::max<std::int64_t>(given, 2));
    }

    const Json shape = value("warmup_type", Json(nullptr));
    if (shape.is_null() || is_auto(shape)) {
      target_.absent(name("warmup_type"), "warmup-shape", rate_.warmup, LearningRate::Warmup::log);
    } else if (shape == "log" || shape == "linear") {
      target_.state(name("warmup_type"), shape, "warmup-shape", rate_.warmup, warmup_of(shape.get<std::string>()));
    } else {
      target_.refuse(name("warmup_type"), "is " + shown(shape) + "; it may be \"log\" or \"linear\"");
    }

    const char* parameter = cosine_ ? "warmup_min_ratio" : "warmup_min_lr";
    const Json least = value(parameter, Json(nullptr));
    if (least.is_null() || is_auto(least)) {
      target_.absent(name(parameter), "warmup-from", rate_.warmup_from, std::optional<double>(0));
    } else {
      const double given = target_.number(name(parameter), least);
      target_.state(name(parameter), least, "warmup-from", rate_.warmup_from,
                    std::optional<double>(cosine_ ? given * rate_.peak : given));
    }
  }

  void read_end() {
    if (cosine_) {
      const Json ratio = value("cos_min_ratio", Json(nullptr));
      if (ratio.is_null() || is_auto(ratio)) {
        target_.absent(name("cos_min_ratio"), "final-rate", rate_.final_fraction, 1e-4);
      } else {
        target_.state(name("cos_min_ratio"), ratio, "final-rate", rate_.final_fraction,
                      target_.number(name("cos_min_ratio"), ratio));
      }
    } else {  // back to where warm-up began
      const Json least = value("warmup_min_lr", Json(0.0));
      const double from = is_auto(least) ? 0.0 : least.get<double>();
      target_.state(name("warmup_min_lr"), least, "final-rate", rate_.final_fraction, rate_.peak > 0 ? from / rate_.peak : 0.0);
    }
    RunConfig& config = target_.config;
    const Json total = value("total_num_steps", Json("auto"));
    if (is_auto(total)) {
      target_.resolve(name("total_num_steps"), total, "steps", config.steps);
    } else {
      target_.state(name("total_num_steps"), total, "steps", config.steps,
                    target_.whole(name("total_num_steps"), total, 1, most_steps));
    }
    rate_.steps = config.steps;
  }

  const Json& block_;
  Target& target_;
  LearningRate& rate_;
  bool cosine_ = false, decays_ = false;
};

}  // namespace

void read_scheduler(const Json& block, Target& target) {
  Scheduler(block, target).read();
}

}  // namespace consist::deepspeed
