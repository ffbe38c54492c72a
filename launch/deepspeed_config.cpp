#include "launch/deepspeed_config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "consist/error.h"
#include "launch/deepspeed_keys.h"

namespace consist {
namespace {

using Json = nlohmann::json;

bool is_auto(const Json& value) {
  return value.is_string() && value.get<std::string>() == "auto";
}

/// A number as options write it: whole where it is.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

class Reader {
 public:
  Reader(std::string path, const DeepspeedContext& context, RunConfig& config)
      : path_(std::move(path)), context_(context), config_(config) {}

  std::set<std::string> run(const Json& root) {
    read_stage(root);
    visit(root, "");
    read_scheduler();
    return std::move(stated_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw UsageError("--deepspeed-config " + path_ + ": " + key + " " + why);
  }
  void note(const std::string& key, const Json& value, const std::string& what) {
    config_.notes.push_back("deepspeed " + key + " " + value.dump() + ": " + what);
  }

  double number(const std::string& key, const Json& value) const {
    if (!value.is_number()) refuse(key, "is " + value.dump() + "; it must be a number or \"auto\"");
    return value.get<double>();
  }
  std::int64_t whole(const std::string& key, const Json& value) const {
    const double read = number(key, value);
    if (read != std::floor(read) || read < 1 || read > 1e15)
      refuse(key, "is " + value.dump() + "; it must be a whole number of at least 1");
    return static_cast<std::int64_t>(read);
  }

  /// `option` takes the value of `key`, unless the command line has given it another.
  template <typename T>
  void state(const std::string& key, const Json& value, const std::string& option, T& target, const T& wanted) {
    if (context_.given(option) && target != wanted) {
      std::ostringstream given;
      given << target;
      refuse(key, "is " + value.dump() + ", but --" + option + " " + given.str() + " is given; leave one of them out");
    }
    target = wanted;
    stated_.insert(option);
    note(key, value, "--" + option);
  }
  template <typename T>
  void resolve(const std::string& key, const Json& value, const std::string& option, const T& current) {
    std::ostringstream text;
    text << current;
    note(key, value, "--" + option + " " + text.str());
  }

  /// The stage comes first: which keys have an effect depends on it.
  void read_stage(const Json& root) {
    const auto zero = root.find("zero_optimization");
    const bool given = zero != root.end() && zero->is_object() && zero->contains("stage");
    if (given) {
      const double read = number("zero_optimization.stage", zero->at("stage"));
      if (read != 0 && read != 1 && read != 2 && read != 3)
        refuse("zero_optimization.stage", "is " + zero->at("stage").dump() + "; it must be 0, 1, 2 or 3");
      stage_ = static_cast<int>(read);
    }
    strategy_ = stage_ == 3 ? "zero3-offload" : stage_ > 0 ? "zero2" : "ddp";
    if (context_.given("strategy")) {
      const bool there = std::any_of(config_.strategies.begin(), config_.strategies.end(),
                                     [&](const StrategyChoice& s) { return s.name == strategy_; });
      if (!there)
        refuse("zero_optimization.stage", std::to_string(stage_) + " is the strategy " + strategy_ + ", but --strategy " +
                                              text_of(config_.strategies) + " is given");
    } else {
      config_.strategies = {{strategy_, 0}};
      stated_.insert("strategy");
    }
    if (stage_ == 1 || stage_ == 2) set_option("zero_optimization.stage", Json(stage_), "stage", std::to_string(stage_));
    config_.notes.push_back("deepspeed zero_optimization.stage " + std::to_string(stage_) + (given ? "" : " (its default)") +
                            ": --strategy " + strategy_);
  }

  void visit(const Json& object, const std::string& prefix) {
    for (const auto& [name, value] : object.items()) {
      const std::string key = prefix + name;
      const auto* rule = std::find_if(std::begin(deepspeed_rules), std::end(deepspeed_rules),
                                      [&](const DeepspeedRule& r) { return r.path == key; });
      if (rule == std::end(deepspeed_rules)) refuse(key, "is not known here");
      apply(*rule, key, value);
    }
  }

  void apply(const DeepspeedRule& rule, const std::string& key, const Json& value) {
    const bool enabled = value.is_object() ? value.value("enabled", Json(true)) != Json(false) && !value.empty()
                                           : value != Json(false) && !value.is_null();
    const bool asked_for = rule.key == DeepspeedKey::count || rule.key == DeepspeedKey::flag || rule.key == DeepspeedKey::only;
    if (asked_for && (stage_ < rule.least_stage || stage_ > rule.most_stage)) {
      note(key, value, "no effect at stage " + std::to_string(stage_));
      return;
    }
    switch (rule.key) {
      case DeepspeedKey::own:
        read_own(key, value);
        break;
      case DeepspeedKey::count:
        read_count(key, value, std::string(rule.argument));
        break;
      case DeepspeedKey::flag:
        if (!is_auto(value) && !value.is_boolean()) refuse(key, "is " + value.dump() + "; it must be true, false or \"auto\"");
        if (is_auto(value)) {
          note(key, value, "the default of --" + strategy_ + "." + std::string(rule.argument));
        } else {
          set_option(key, value, std::string(rule.argument), value.get<bool>() ? "true" : "false");
        }
        break;
      case DeepspeedKey::no_effect:
      case DeepspeedKey::ignored_group:
        note(key, value, "no effect here: " + std::string(rule.argument));
        break;
      case DeepspeedKey::only:
        read_only_value(rule, key, value);
        break;
      case DeepspeedKey::group:
        if (!value.is_object()) refuse(key, "is " + value.dump() + "; it must be an object");
        visit(value, key + ".");
        break;
      case DeepspeedKey::off:
        if (enabled) refuse(key, "is asked for, which is not done here");
        note(key, value, "off");
        break;
    }
  }

  void read_only_value(const DeepspeedRule& rule, const std::string& key, const Json& value) {
    std::istringstream list{std::string(rule.argument)};
    for (std::string legal; std::getline(list, legal, '|');) {
      if (Json::parse(legal) != value) continue;
      note(key, value, "as it is here");
      return;
    }
    refuse(key, "is " + value.dump() + ", which is not done here; it may be " + std::string(rule.argument));
  }

  void set_option(const std::string& key, const Json& value, const std::string& option, const std::string& text) {
    auto& options = config_.plugin_options[strategy_];
    const auto [known, is_new] = options.emplace(option, text);
    const std::string name = "--" + strategy_ + "." + option;
    if (!is_new && known->second != text && !stated_options_.contains(option))
      refuse(key, "is " + value.dump() + ", but " + name + " " + known->second + " is given; leave one of them out");
    known->second = text;
    stated_options_.insert(option);
    note(key, value, name + " " + text);
  }

  /// Sizes that are "auto" are what Hugging Face's integration makes of them, from the hidden size.
  void read_count(const std::string& key, const Json& value, const std::string& option) {
    if (!is_auto(value)) {
      set_option(key, value, option, number_text(number(key, value)));
      return;
    }
    const double hidden = static_cast<double>(context_.hidden());
    if (option == "reduce_bucket_size") {
      set_option(key, value, option, number_text(hidden * hidden));
    } else if (option == "prefetch_bucket_size") {
      set_option(key, value, option, number_text(std::floor(0.9 * hidden * hidden)));
    } else if (option == "param_persistence_threshold") {
      set_option(key, value, option, number_text(10 * hidden));
    } else {
      note(key, value, "the default of --" + strategy_ + "." + option);
    }
  }

  void read_own(const std::string& key, const Json& value) {
    if (key == "train_batch_size") {
      read_sized(key, value, "global-batch", config_.global_batch);
    } else if (key == "train_micro_batch_size_per_gpu") {
      read_sized(key, value, "batch", config_.batch);
    } else if (key == "gradient_accumulation_steps") {
      read_sized(key, value, "accumulation", config_.accumulation);
    } else if (key == "gradient_clipping") {
      read_real(key, value, "clip", config_.optimizer.max_norm);
    } else if (key == "optimizer.type") {
      if (value != "AdamW" && value != "Adam" && value != "FusedAdam" && value != "DeepSpeedCPUAdam")
        refuse(key, "is " + value.dump() + "; the optimizer here is AdamW (DeepSpeed's Adam in its default mode)");
      note(key, value, "AdamW");
    } else if (key == "optimizer.params.lr") {
      read_real(key, value, "learning-rate", config_.learning_rate.peak);
    } else if (key == "optimizer.params.betas") {
      read_betas(key, value);
    } else if (key == "optimizer.params.eps") {
      read_real(key, value, "epsilon", config_.optimizer.epsilon);
    } else if (key == "optimizer.params.weight_decay") {
      read_real(key, value, "weight-decay", config_.optimizer.weight_decay);
    } else if (key == "bf16.enabled" || key == "bfloat16.enabled") {
      read_bf16(key, value);
    } else if (key == "communication_data_type") {
      read_wire(key, value);
    } else if (key.starts_with("scheduler.")) {
      scheduler_[key.substr(key.rfind('.') + 1)] = value;
    } else if (key.ends_with(".device")) {
      read_offload(key, value);
    }
  }

  void read_wire(const std::string& key, const Json& value) {
    if (value.is_null() || is_auto(value)) {
      note(key, value, "gradients travel in the dtype in which the precision makes them");
    } else if (stage_ > 0 && (value == "bf16" || value == "bfp16" || value == "fp32")) {
      set_option(key, value, "communication_data_type", value == "fp32" ? "fp32" : "bf16");
    } else if (value == "fp32") {
      note(key, value, "as it is here");
    } else {
      refuse(key, "is " + value.dump() + "; it may be null, \"auto\", \"fp32\" or, from stage 1 on, \"bf16\"");
    }
  }

  template <typename T>
  void read_sized(const std::string& key, const Json& value, const std::string& option, T& target) {
    if (is_auto(value))
      note(key, value, target > 0 ? "--" + option + " " + std::to_string(target) : "follows from batch, accumulation and ranks");
    else
      state(key, value, option, target, static_cast<T>(whole(key, value)));
  }
  void read_real(const std::string& key, const Json& value, const std::string& option, double& target) {
    if (is_auto(value))
      resolve(key, value, option, target);
    else
      state(key, value, option, target, number(key, value));
  }
  void read_betas(const std::string& key, const Json& value) {
    if (is_auto(value)) {
      resolve(key, value, "beta1", config_.optimizer.beta1);
      resolve(key, value, "beta2", config_.optimizer.beta2);
      return;
    }
    if (!value.is_array() || value.size() != 2) refuse(key, "is " + value.dump() + "; it must be two numbers or \"auto\"");
    state(key, value, "beta1", config_.optimizer.beta1, number(key, value[0]));
    state(key, value, "beta2", config_.optimizer.beta2, number(key, value[1]));
  }

  void read_bf16(const std::string& key, const Json& value) {
    if (is_auto(value)) {
      resolve(key, value, "precision", config_.precision);
      return;
    }
    if (!value.is_boolean()) refuse(key, "is " + value.dump() + "; it must be true, false or \"auto\"");
    // fp8 has bf16 weights, so that asking for it does not contradict the file.
    const bool has_bf16 = context_.given("precision") && config_.precision != "fp32";
    if (value.get<bool>() && has_bf16)
      resolve(key, value, "precision", config_.precision);
    else
      state(key, value, "precision", config_.precision, std::string(value.get<bool>() ? "bf16" : "fp32"));
  }

  void read_offload(const std::string& key, const Json& value) {
    const bool of_parameters = key.find("offload_param") != std::string::npos;
    if (value != "cpu" && value != "none" && !value.is_null())
      refuse(key, "is " + value.dump() + "; here it may be \"cpu\" or \"none\"");
    if (value == "cpu" && stage_ < (of_parameters ? 3 : 1))
      refuse(key, "is \"cpu\", which needs stage " + std::string(of_parameters ? "3" : "1, 2 or 3"));
    if (stage_ < (of_parameters ? 3 : 1)) {
      note(key, value, "no effect at stage " + std::to_string(stage_));
      return;
    }
    set_option(key, value, of_parameters ? "offload_param.device" : "offload_optimizer.device", value == "cpu" ? "cpu" : "none");
  }

  /// The keys of a scheduler mean something together only.
  void read_scheduler() {
    if (scheduler_.empty()) return;
    const Json type = scheduler_.value("type", Json(nullptr));
    if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
      refuse("scheduler.type", "is " + type.dump() + "; here it may be WarmupLR, WarmupDecayLR or WarmupCosineLR");
    const bool constant = type == "WarmupLR", cosine = type == "WarmupCosineLR";
    const LearningRate::Decay decay = constant ? LearningRate::Decay::constant
                                      : cosine ? LearningRate::Decay::cosine
                                               : LearningRate::Decay::linear;
    if (context_.given("schedule") && config_.learning_rate.decay != decay)
      refuse("scheduler.type", "is " + type.dump() + ", but another --schedule is given");
    config_.learning_rate.decay = decay;
    note("scheduler.type", type, std::string("--schedule ") + (constant ? "constant" : cosine ? "cosine" : "linear"));
    const Json lowest = cosine ? scheduler_.value("cos_min_ratio", Json(1e-4)) : Json(0.0);  // DeepSpeed's default
    if (!constant)
      state(cosine ? "scheduler.params.cos_min_ratio" : "scheduler.type", lowest, "final-rate",
            config_.learning_rate.final_fraction, number("scheduler.params.cos_min_ratio", lowest));
    const Json shape = scheduler_.value("warmup_type", Json("log"));  // DeepSpeed's default
    if (shape != "linear" && !is_auto(shape))
      refuse("scheduler.params.warmup_type",
             "is " + shape.dump() + (scheduler_.contains("warmup_type") ? "" : " by default") + "; here warm-up is \"linear\"");
    note("scheduler.params.warmup_type", shape, "linear");
    const Json rate = scheduler_.value("warmup_max_lr", Json("auto"));
    read_real("scheduler.params.warmup_max_lr", rate, "learning-rate", config_.learning_rate.peak);
    const Json warmup = scheduler_.value("warmup_num_steps", Json(1000));  // DeepSpeed's default
    if (is_auto(warmup))
      resolve("scheduler.params.warmup_num_steps", warmup, "warmup", config_.learning_rate.warmup_steps);
    else
      state("scheduler.params.warmup_num_steps", warmup, "warmup", config_.learning_rate.warmup_steps,
            static_cast<std::int64_t>(number("scheduler.params.warmup_num_steps", warmup)));
    const Json total = scheduler_.value("total_num_steps", Json("auto"));
    if (is_auto(total))
      resolve("scheduler.params.total_num_steps", total, "steps", config_.steps);
    else
      state("scheduler.params.total_num_steps", total, "steps", config_.steps, whole("scheduler.params.total_num_steps", total));
    config_.learning_rate.steps = config_.steps;
  }

  std::string path_;
  const DeepspeedContext& context_;
  RunConfig& config_;
  int stage_ = 0;
  std::string strategy_;
  std::set<std::string> stated_, stated_options_;
  Json scheduler_ = Json::object();
};

}  // namespace

namespace {

/// Puts the value of "a.b=VALUE" where the file has, or would have, a.b.
void replace_value(const std::string& path, const std::string& replacement, Json& root, RunConfig& config) {
  const std::size_t equals = replacement.find('=');
  const std::string key = replacement.substr(0, equals);
  if (equals == std::string::npos || key.empty() || equals + 1 == replacement.size())
    throw UsageError("--deepspeed-set '" + replacement + "' must be KEY=VALUE, such as zero_optimization.sub_group_size=1e9");
  std::string pointer = "/" + key;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  const std::string text = replacement.substr(equals + 1);
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) value = text;
  try {
    Json& target = root[Json::json_pointer(pointer)];
    config.notes.push_back("deepspeed " + key + " " + value.dump() + " (--deepspeed-set) in place of " +
                           (target.is_null() ? "nothing" : target.dump()) + " in " + path);
    target = std::move(value);
  } catch (const Json::exception&) {
    throw UsageError("--deepspeed-set " + replacement + ": " + path + " has no object that could hold " + key);
  }
}

}  // namespace

std::set<std::string> apply_deepspeed_config(const std::string& path, const DeepspeedContext& context, RunConfig& config) {
  std::ifstream file(path);
  if (!file) throw SystemError("--deepspeed-config " + path + " cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  Json root = Json::parse(text.str(), nullptr, false);
  if (root.is_discarded() || !root.is_object()) throw DataError("--deepspeed-config " + path + " is no JSON object");
  for (const std::string& replacement : context.replacements) replace_value(path, replacement, root, config);
  return Reader(path, context, config).run(root);
}

}  // namespace consist
