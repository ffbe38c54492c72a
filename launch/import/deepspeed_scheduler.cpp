// Formulas and defaults are those of deepspeed/runtime/lr_schedules.py (DeepSpeed 0.19.6).
#include "launch/import/deepspeed_scheduler.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "consist/json_input.h"

namespace consist::deepspeed {
namespace {

constexpr std::int64_t most_steps = 1'000'000'000'000;

class Scheduler {
 public:
  Scheduler(const Json& block, Target& target) : block_(block), target_(target), peak_(target.config.learning_rate) {}

  void read() {
    const Json type = block_.value("type", Json(nullptr));
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
      target_.refuse("scheduler.type", "is " + shown(type) + "; here it may be WarmupLR, WarmupDecayLR or WarmupCosineLR");
    cosine_ = type == "WarmupCosineLR";
    decays_ = type != "WarmupLR";
    schedule_ = cosine_ ? "cosine" : decays_ ? "linear" : "constant";
    refuse_foreign_parameters(type);
    target_.state("scheduler.type", type, "schedule", target_.config.schedule, schedule_);
    target_.state_plugin("scheduler.type", type, schedule_, "counting", "deepspeed");
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
      target_.resolve(name("warmup_max_lr"), peak, "learning-rate", peak_);
    } else if (!peak.is_null()) {
      target_.state(name("warmup_max_lr"), peak, "learning-rate", peak_, target_.number(name("warmup_max_lr"), peak));
    } else if (decays_) {                     // WarmupLR has the optimizer's rate
      target_.stated.erase("learning-rate");  // the scheduler's rate replaces the optimizer's
      target_.absent(name("warmup_max_lr"), "learning-rate", peak_, 1e-3);
    }
  }

  /// An option of the schedule: what the parameter says, or DeepSpeed's default.
  template <typename Text>
  void read_option(const char* parameter, const char* option, const std::string& fallback, const Text& text) {
    const Json given = value(parameter, Json(nullptr));
    if (given.is_null() || is_auto(given)) {
      target_.absent_plugin(name(parameter), schedule_, option, fallback);
    } else {
      target_.state_plugin(name(parameter), given, schedule_, option, text(given));
    }
  }

  void read_warmup() {
    const Json steps = value("warmup_num_steps", Json(nullptr));
    if (is_auto(steps)) {
      target_.keep_plugin(name("warmup_num_steps"), steps, schedule_, "warmup");
      const auto& options = target_.config.plugin_options[schedule_];
      const auto given = options.find("warmup");
      if (given == options.end() || given->second == "0") return;
    } else {
      read_option("warmup_num_steps", "warmup", "1000", [&](const Json& given) {
        // Fewer than 2 are 2.
        return as_text(std::max<std::int64_t>(target_.whole(name("warmup_num_steps"), given, 0, most_steps), 2));
      });
    }
    read_option("warmup_type", "warmup-shape", "log", [&](const Json& shape) {
      if (shape != "log" && shape != "linear")
        target_.refuse(name("warmup_type"), "is " + shown(shape) + "; it may be \"log\" or \"linear\"");
      return shape.get<std::string>();
    });
    const char* parameter = cosine_ ? "warmup_min_ratio" : "warmup_min_lr";
    read_option(parameter, "warmup-from", "0", [&](const Json& least) {
      const double given = target_.number(name(parameter), least);
      return as_text(cosine_ ? given * peak_ : given);
    });
  }

  void read_end() {
    if (cosine_) {
      read_option("cos_min_ratio", "final-rate", "0.0001",
                  [&](const Json& ratio) { return as_text(target_.number(name("cos_min_ratio"), ratio)); });
    } else {  // back to where warm-up began
      const Json least = value("warmup_min_lr", Json(0.0));
      const double from = is_auto(least) ? 0.0 : target_.number(name("warmup_min_lr"), least);
      target_.state_plugin(name("warmup_min_lr"), least, schedule_, "final-rate", as_text(peak_ > 0 ? from / peak_ : 0.0));
    }
    RunConfig& config = target_.config;
    const Json total = value("total_num_steps", Json("auto"));
    if (is_auto(total) && config.epochs > 0) {
      target_.resolve(name("total_num_steps"), total, "epochs", config.epochs);
    } else if (is_auto(total)) {
      target_.resolve(name("total_num_steps"), total, "steps", config.steps);
    } else if (config.epochs > 0) {
      target_.refuse(name("total_num_steps"), "is " + shown(total) + ", but --epochs " + std::to_string(config.epochs) +
                                                  " is given; leave one of them out");
    } else {
      target_.state(name("total_num_steps"), total, "steps", config.steps,
                    target_.whole(name("total_num_steps"), total, 1, most_steps));
    }
  }

  const Json& block_;
  Target& target_;
  double& peak_;
  std::string schedule_;  ///< the plugin
  bool cosine_ = false, decays_ = false;
};

}  // namespace

void read_scheduler(const Json& block, Target& target) {
  Scheduler(block, target).read();
}

}  // namespace consist::deepspeed
