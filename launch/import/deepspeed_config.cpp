#include "launch/import/deepspeed_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "core/base/lower.h"
#include "core/passes/offload_activations.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/deepspeed_keys.h"
#include "launch/import/deepspeed_optimizer.h"
#include "launch/import/deepspeed_scheduler.h"

namespace consist {
namespace {

using readers::is_auto;
using readers::Json;
using readers::KeyRule;
using readers::Target;

constexpr std::int64_t most_elements = 1'000'000'000'000'000;  // of a plugin's options; more than any machine has

class Reader final : public readers::KeyReader {
 public:
  explicit Reader(Target& target) : KeyReader(target), optimizer_(target) {}

  void run(Json root) {
    readers::drop_nulls(root, "", target_);
    if (const auto zero = root.find("zero_optimization"); zero != root.end() && zero->is_boolean()) {
      target_.note("zero_optimization", *zero, *zero == true ? "stage 1 (its old form)" : "stage 0 (its old form)");
      *zero = Json{{"stage", *zero == true ? 1 : 0}};
    }
    read_stage(root);
    optimizer_.begin(root);
    read_all(root, {[&] { optimizer_.finish(); },
                    [&] {
                      target_.absent("gradient_clipping; from 0.19.3 on it is 1", "clip", config_.optimizer.max_norm, 0.0);
                      if (!scheduler_.empty()) deepspeed::read_scheduler(scheduler_, target_);
                    },
                    [&] { finish_zero(); }, [&] { read_gradient_dtype(); }});
  }

 private:
  /// A strategy that the value of a key amounts to.
  struct Asked {
    StrategyChoice strategy;
    const char* key;
    int value;
  };

  /// The stage and the tensor-parallel size come first: which keys have an effect depends on the strategy.
  void read_stage(const Json& root) {
    const Json* stage = readers::find_value(root, "zero_optimization", "stage");
    if (stage != nullptr) stage_ = static_cast<int>(target_.whole("zero_optimization.stage", *stage, 0, 3));
    strategy_ = stage_ == 3 ? "zero3-offload" : stage_ > 0 ? "zero2" : "ddp";
    std::vector<Asked> all{{{strategy_, 0}, "zero_optimization.stage", stage_}};
    if (const Json* size = readers::find_value(root, "tensor_parallel", "autotp_size"); size != nullptr && !is_auto(*size)) {
      const auto tp = static_cast<int>(target_.whole("tensor_parallel.autotp_size", *size, 0, 65'536));
      if (tp > 1) all.insert(all.begin(), {{"tp-sp", tp}, "tensor_parallel.autotp_size", tp});
    }
    // Groups of so many ranks divide parameters, gradients and states; each group has them all.
    if (const Json* size = readers::find_value(root, "zero_optimization", "mics_shard_size"); size != nullptr && stage_ == 3) {
      const char* const key = "zero_optimization.mics_shard_size";
      const auto group = static_cast<int>(target_.whole(key, *size, -1, 65'536));
      if (group == 0) target_.refuse(key, "is 0; it must be a number of ranks, or -1 for all");
      if (group > 0) {
        all.back() = {{strategy_, group}, key, group};
        all.push_back({{"ddp", 0}, key, group});
      }
    }
    std::vector<StrategyChoice> strategies;
    for (const Asked& asked : all) strategies.push_back(asked.strategy);
    if (target_.context.given("strategy") && !target_.source.command_line_first) refuse_other_strategies(all);
    target_.state_strategies("zero_optimization.stage " + std::to_string(stage_) + (stage != nullptr ? "" : " (its default)"),
                             strategies);
    if (stage_ == 1 || stage_ == 2) set_option("zero_optimization.stage", Json(stage_), "stage", std::to_string(stage_));
  }

  /// Throws if the command line has another strategy than the file.
  void refuse_other_strategies(const std::vector<Asked>& all) const {
    for (const Asked& asked : all) {
      const bool there = std::any_of(config_.strategies.begin(), config_.strategies.end(), [&](const StrategyChoice& s) {
        return s.name == asked.strategy.name && (asked.strategy.size == 0 || s.size == asked.strategy.size);
      });
      if (!there) {
        target_.refuse(asked.key, std::to_string(asked.value) + " is the strategy " + text_of({asked.strategy}) +
                                      ", but --strategy " + text_of(config_.strategies) + " is given");
      }
    }
  }

  const KeyRule* rule_of(const std::string& key) const override {
    const auto* rule = std::find_if(std::begin(deepspeed_rules), std::end(deepspeed_rules),
                                    [&](const DeepspeedRule& r) { return r.path == key; });
    return rule == std::end(deepspeed_rules) ? nullptr : rule;
  }

  void apply(const KeyRule& general, const std::string& key, const Json& value) override {
    const auto& rule = static_cast<const DeepspeedRule&>(general);
    const bool asked_for = rule.key == DeepspeedKey::count || rule.key == DeepspeedKey::flag || rule.key == DeepspeedKey::only;
    if (asked_for && (stage_ < rule.least_stage || stage_ > rule.most_stage)) {
      target_.note(key, value, "no effect at stage " + std::to_string(stage_));
    } else if (rule.key == DeepspeedKey::count) {
      read_count(key, value, std::string(rule.argument));
    } else if (rule.key == DeepspeedKey::flag && is_auto(value)) {
      target_.note(key, value, "the default of --" + strategy_ + "." + std::string(rule.argument));
    } else if (rule.key == DeepspeedKey::flag) {
      set_option(key, value, std::string(rule.argument), target_.truth(key, value) ? "true" : "false");
    } else {
      KeyReader::apply(rule, key, value);
    }
  }

  void set_option(const std::string& key, const Json& value, const std::string& option, const std::string& text) {
    target_.state_plugin(key, value, strategy_, option, text);
  }

  /// Sizes that are "auto" are what Hugging Face's integration makes of them, from the hidden size.
  void read_count(const std::string& key, const Json& value, const std::string& option) {
    if (option == "offload-optimizer.ratio") {
      if (is_auto(value)) return target_.note(key, value, "the default of --" + strategy_ + "." + option);
      return set_option(key, value, option, readers::as_text(target_.number(key, value)));
    }
    if (!is_auto(value)) {
      // sys.maxsize and the like mean "no limit".
      const bool all = value.is_number() && value.get<double>() > static_cast<double>(most_elements);
      const std::int64_t size = all ? most_elements : target_.whole(key, value, 0, most_elements);
      return set_option(key, value, option, std::to_string(size));
    }
    const std::int64_t hidden = target_.context.sizes().hidden;
    if (option == "reduce-bucket-size") {
      set_option(key, value, option, std::to_string(hidden * hidden));
    } else if (option == "prefetch-bucket-size") {
      set_option(key, value, option, std::to_string(hidden * hidden * 9 / 10));
    } else if (option == "param-persistence-threshold") {
      set_option(key, value, option, std::to_string(10 * hidden));
    } else {
      target_.note(key, value, "the default of --" + strategy_ + "." + option);
    }
  }

  void read_own(const std::string& key, const Json& value) override {
    constexpr std::int64_t most_sequences = 1'000'000'000'000;
    if (key == "train_batch_size") {
      read_sized(key, value, "global-batch", config_.global_batch, most_sequences);
    } else if (key == "train_micro_batch_size_per_gpu") {
      read_sized(key, value, "batch", config_.batch, std::int64_t{1'000'000'000});
    } else if (key == "gradient_accumulation_steps") {
      read_sized(key, value, "accumulation", config_.accumulation, 65'536);
    } else if (key == "gradient_clipping") {
      target_.state_real(key, value, "clip", config_.optimizer.max_norm);
    } else if (key.starts_with("optimizer")) {
      optimizer_.read(key, value);
    } else if (key == "bf16.enabled" || key == "bfloat16.enabled") {
      read_bf16(key, value);
    } else if (key == "fp16.enabled") {
      if (value != false && !is_auto(value))
        target_.refuse(key,
                       "is " + shown(value) + ": training in fp16, with a scaled loss, is not done here; bf16 is (bf16.enabled)");
      target_.note(key, value, "off");
    } else if (key == "data_types.grad_accum_dtype") {
      gradient_dtype_ = value;
    } else if (key == "communication_data_type") {
      read_reduce_dtype(key, value);
    } else if (key.starts_with("scheduler.")) {
      scheduler_[key.substr(key.rfind('.') + 1)] = value;
    } else if (key == "zero_optimization.mics_shard_size" && (stage_ < 3 || value == -1)) {
      target_.note(key, value, stage_ < 3 ? "no effect at stage " + std::to_string(stage_) : "all ranks divide parameters");
    } else if (key == "tensor_parallel.autotp_size" || key == "zero_optimization.mics_shard_size") {
      target_.note(key, value, "--strategy " + text_of(config_.strategies));
    } else if (key == "activation_checkpointing.partition_activations") {
      // It divides them over the ranks of tensor parallelism.
      if (!is_auto(value) && target_.truth(key, value) && config_.strategies.front().name == "tp-sp")
        target_.refuse(key, "is true, which is not done here (tp-sp divides activations by tokens)");
      target_.note(key, value, "no effect here: there is no tensor parallelism to divide them over");
    } else if (key == "activation_checkpointing.cpu_checkpointing") {
      read_cpu_checkpointing(key, value);
    } else if (key.ends_with(".device")) {
      read_offload(key, value, value);
    } else if (key.starts_with("zero_optimization.cpu_offload")) {  // as it was written once
      const bool asked = target_.truth(key, value);
      read_offload(key == "zero_optimization.cpu_offload" ? key : "zero_optimization.offload_param", value,
                   Json(asked ? "cpu" : "none"));
    }
  }

  /// It moves what checkpointed layers keep: their inputs.
  void read_cpu_checkpointing(const std::string& key, const Json& value) {
    if (is_auto(value) || !target_.truth(key, value)) return target_.note(key, value, "off");
    if (!config_.recompute.any())
      return target_.note(key, value, "no effect without --recompute, whose layers' inputs it moves to the host");
    target_.stated.insert("offload-activations");
    if (target_.context.given("offload-activations"))
      return target_.note(key, value, "--offload-activations " + text_of(config_.offload) + " is given and goes before the file");
    config_.offload = parse_offload("all");
    target_.note(key, value, "--offload-activations all");
  }

  void read_reduce_dtype(const std::string& key, const Json& value) {
    const std::string name = value.is_string() ? lower(value.get<std::string>()) : "";
    if (name == "auto") {
      target_.note(key, value, "gradients are sent in the dtype in which the precision makes them");
    } else if (stage_ > 0 && (name == "bf16" || name == "bfp16" || name == "fp32")) {
      set_option(key, value, "communication-data-type", name == "fp32" ? "fp32" : "bf16");
    } else if (name == "fp32") {
      target_.note(key, value, "as it is here");
    } else {
      target_.refuse(key, "is " + shown(value) + "; it may be null, \"auto\", \"fp32\" or, from stage 1 on, \"bf16\"");
    }
  }

  template <typename T>
  void read_sized(const std::string& key, const Json& value, const std::string& option, T& target, T most) {
    if (is_auto(value))
      target_.note(key, value,
                   target > 0 ? "--" + option + " " + std::to_string(target) : "follows from batch, accumulation and ranks");
    else
      target_.state(key, value, option, target, static_cast<T>(target_.whole(key, value, 1, most)));
  }
  void read_bf16(const std::string& key, const Json& value) {
    if (is_auto(value)) return target_.resolve(key, value, "precision", config_.precision);
    // fp8 has bf16 weights, so that asking for it does not contradict the file.
    const bool has_bf16 = target_.context.given("precision") && config_.precision != "fp32";
    if (target_.truth(key, value) && has_bf16)
      target_.resolve(key, value, "precision", config_.precision);
    else
      target_.state(key, value, "precision", config_.precision, std::string(value.get<bool>() ? "bf16" : "fp32"));
  }

  /// In which dtype gradients are added up; after the precision is known.
  void read_gradient_dtype() {
    const std::string key = "data_types.grad_accum_dtype";
    const std::string& precision = config_.precision;
    const bool chooses = precision == "bf16" || precision == "fp8";
    if (gradient_dtype_.is_null()) {
      const auto options = config_.plugin_options.find(precision);
      if (chooses && (options == config_.plugin_options.end() || !options->second.contains("gradients"))) {
        target_.differs(key + " is absent: --" + precision +
                        ".gradients f32, more exact than DeepSpeed's default, which is the model's dtype");
      }
      return;
    }
    const std::string name = gradient_dtype_.is_string() ? lower(gradient_dtype_.get<std::string>()) : "";
    if (chooses && (name == "bf16" || name == "bfloat16")) {
      target_.state_plugin(key, gradient_dtype_, precision, "gradients", "bf16");
    } else if (chooses && (name == "fp32" || name == "float32" || name == "float")) {
      target_.state_plugin(key, gradient_dtype_, precision, "gradients", "f32");
    } else if (name == "auto" || name == "fp32" || name == "float32" || name == "float") {
      target_.note(key, gradient_dtype_, "as it is here");
    } else {
      target_.refuse(key, "is " + shown(gradient_dtype_) + " with --precision " + precision +
                              "; it may be \"fp32\" or \"auto\" and, where weights are bf16, \"bf16\"");
    }
  }

  /// `device` is what `key`, with the value `value`, asks for.
  void read_offload(const std::string& key, const Json& value, const Json& device) {
    const bool of_parameters = key.find("offload_param") != std::string::npos;
    if (device != "cpu" && device != "none") target_.refuse(key, "is " + shown(value) + "; here it may be \"cpu\" or \"none\"");
    if (device == "cpu" && stage_ < (of_parameters ? 3 : 1))
      target_.refuse(key, "is " + shown(value) + ", which needs stage " + std::string(of_parameters ? "3" : "1, 2 or 3"));
    if (stage_ < (of_parameters ? 3 : 1)) {
      target_.note(key, value, "no effect at stage " + std::to_string(stage_));
      return;
    }
    set_option(key, value, of_parameters ? "offload-param.device" : "offload-optimizer.device", device.get<std::string>());
  }

  /// Sizes of ZeRO that the file leaves out (deepspeed/runtime/zero/config.py, DeepSpeed 0.19.6).
  void finish_zero() {
    if (stage_ == 0) return;
    const auto absent = [&](const std::string& key, const char* fallback) {
      std::string option = key;
      std::replace(option.begin(), option.end(), '_', '-');
      target_.absent_plugin("zero_optimization." + key, strategy_, option, fallback);
    };
    absent("overlap_comm", stage_ == 3 ? "true" : "false");
    absent("reduce_bucket_size", "500000000");
    if (stage_ < 3) absent("allgather_bucket_size", "500000000");
    absent("sub_group_size", "1000000000");
  }

  deepspeed::OptimizerReader optimizer_;
  int stage_ = 0;
  std::string strategy_;
  Json gradient_dtype_;
  Json scheduler_ = Json::object();
};

}  // namespace

std::set<std::string> apply_deepspeed_config(const std::string& path, const readers::ReaderContext& context, RunConfig& config,
                                             DeepspeedSource source) {
  const bool own = source == DeepspeedSource::deepspeed_config;
  const std::string option = own ? "--deepspeed-config" : "--from";
  // DeepSpeed reads Hjson and refuses repeated keys.
  const JsonRules rules{.repeated = JsonRules::Repeated::refused, .comments = true};
  Json root = parse_json(read_text(path, rules.most_bytes), option + " " + path, rules);
  if (!root.is_object()) throw DataError(option + " " + path + " is no JSON object");
  Target target({.option = option,
                 .set_option = own ? "--deepspeed-set" : "--from-set",
                 .format = "deepspeed",
                 .path = path,
                 .example = "zero_optimization.sub_group_size=1e9",
                 .trainer = "DeepSpeed",
                 .command_line_first = !own},
                context, config);
  readers::replace_values(context.replacements, root, target);
  Reader(target).run(std::move(root));
  target.summarize();
  return target.stated;
}

}  // namespace consist
