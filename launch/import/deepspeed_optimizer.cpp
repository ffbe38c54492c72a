#include "launch/import/deepspeed_optimizer.h"

#include <nlohmann/json.hpp>

#include "consist/json_input.h"
#include "core/base/lower.h"
#include "launch/import/common/key_reader.h"

namespace consist::deepspeed {
namespace {

constexpr const char* type_key = "optimizer.type";
const std::string params = "optimizer.params.";

/// The plugin that is the optimizer of that type; empty if there is none.
std::string plugin_of_type(const std::string& type) {
  if (type == "adamw" || type == "adam" || type == "fusedadam" || type == "deepspeedcpuadam") return "adamw";
  if (type == "lion" || type == "fusedlion" || type == "deepspeedcpulion") return "lion";
  return type == "muon" ? "muon" : "";
}

}  // namespace

void OptimizerReader::begin(const Json& root) {
  const Json* type = find_value(root, "optimizer", "type");
  if (type == nullptr) return;
  type_ = type->is_string() ? lower(type->get<std::string>()) : "";
  plugin_ = plugin_of_type(type_);
  if (plugin_.empty())
    target_.refuse(type_key, "is " + shown(*type) +
                                 "; the optimizers here are AdamW (and Adam, which is AdamW in DeepSpeed's default mode), Lion "
                                 "and Muon");
}

void OptimizerReader::read(const std::string& key, const Json& value) {
  there_ = true;
  if (key == type_key) {
    target_.state(key, value, "optimizer", target_.config.optimizer_plugin, plugin_);
  } else if (key == params + "lr") {
    rates_.insert(key);
    target_.state_real(key, value, "learning-rate", target_.config.learning_rate);
  } else if (key == params + "muon_lr" || key == params + "adam_lr") {
    read_rate_of_muon(key, value);
  } else if (key == params + "momentum") {
    if (plugin_ != "muon") target_.refuse(key, "is no parameter of DeepSpeed's " + type_);
    read_real(key, value, "momentum");
  } else if (key == params + "betas") {
    read_betas(key, value);
  } else if (key == params + "eps") {
    if (plugin_ == "lion") return target_.note(key, value, "no effect here: Lion has no epsilon");
    read_real(key, value, "epsilon");
  } else if (key == params + "weight_decay") {
    target_.state_real(key, value, "weight-decay", target_.config.optimizer.weight_decay);
  } else if (key == params + "max_grad_norm") {
    target_.refuse(key, "is no parameter of DeepSpeed's optimizers; it is the key gradient_clipping");
  } else {
    require_adam(key);
    if (key == params + "bias_correction") {
      if (is_auto(value))
        keep(key, value, "bias-correction");
      else
        target_.state_plugin(key, value, "adamw", "bias-correction", target_.truth(key, value) ? "true" : "false");
    } else if (key == params + "torch_adam") {
      torch_adam_ = is_auto(value) || target_.truth(key, value);
      target_.note(key, value, "no effect here but for the default of weight_decay: AdamW has one implementation per device");
    } else if (key == params + "adam_w_mode") {
      adam_w_mode_ = is_auto(value) || target_.truth(key, value);
    }
  }
}

void OptimizerReader::require_adam(const std::string& key) const {
  if (plugin_ != "adamw") target_.refuse(key, "is no parameter of DeepSpeed's " + type_ + "; leave it out");
}

void OptimizerReader::read_rate_of_muon(const std::string& key, const Json& value) {
  if (plugin_ != "muon") target_.refuse(key, "is no parameter of DeepSpeed's " + type_);
  const double rate = target_.number(key, value);
  if (!rates_.empty() && rate != target_.config.learning_rate)
    target_.refuse(key, "is " + shown(value) + " beside " + *rates_.begin() + ", " + as_text(target_.config.learning_rate) +
                            ": matrices and the rest have one learning rate here. With --muon.scale adamw, the default without "
                            "a file, one rate fits both");
  rates_.insert(key);
  target_.state_real(key, value, "learning-rate", target_.config.learning_rate);
}

void OptimizerReader::read_betas(const std::string& key, const Json& value) {
  if (is_auto(value)) {
    keep(key, value, "beta1");
    keep(key, value, "beta2");
    return;
  }
  if (!value.is_array() || value.size() != 2) target_.refuse(key, "is " + shown(value) + "; it must be two numbers or \"auto\"");
  target_.state_plugin(key, value, plugin_, "beta1", as_text(target_.number(key, value[0])));
  target_.state_plugin(key, value, plugin_, "beta2", as_text(target_.number(key, value[1])));
}

void OptimizerReader::read_real(const std::string& key, const Json& value, const std::string& option) {
  if (is_auto(value))
    keep(key, value, option);
  else
    target_.state_plugin(key, value, plugin_, option, as_text(target_.number(key, value)));
}

void OptimizerReader::keep(const std::string& key, const Json& value, const std::string& option) {
  kept_.insert(option);
  target_.keep_plugin(key, value, plugin_, option);
}

void OptimizerReader::absent(const std::string& key, const std::string& option, const std::string& fallback) {
  if (!kept_.contains(option)) target_.absent_plugin(params + key, plugin_, option, fallback);
}

void OptimizerReader::finish() {
  if (!there_) return;
  if (plugin_ == "adamw") return finish_adam();
  if (plugin_ == "muon") return finish_muon();
  target_.absent(params + "lr", "learning-rate", target_.config.learning_rate, 1e-3);
  absent("betas", "beta1", "0.9");
  // The update on the processor has another default than the fused one; both are DeepSpeed's.
  absent("betas", "beta2", type_ == "deepspeedcpulion" ? "0.999" : "0.99");
  target_.absent(params + "weight_decay", "weight-decay", target_.config.optimizer.weight_decay, 0.0);
}

void OptimizerReader::finish_muon() {
  if (rates_.empty() && !target_.context.given("learning-rate"))
    target_.refuse(
        params + "lr",
        "is absent: DeepSpeed then trains matrices at 0.02 and the rest at 3e-4, and both have one learning rate here");
  absent("momentum", "momentum", "0.95");
  absent("betas", "beta1", "0.9");
  absent("betas", "beta2", "0.95");
  absent("eps", "epsilon", "1e-10");
  target_.derive_plugin("optimizer.type Muon", "muon", "scale", "original");
  target_.absent(params + "weight_decay", "weight-decay", target_.config.optimizer.weight_decay, 0.0);
}

void OptimizerReader::finish_adam() {
  OptimizerSettings& optimizer = target_.config.optimizer;
  target_.absent(params + "lr", "learning-rate", target_.config.learning_rate, 1e-3);
  absent("betas", "beta1", "0.9");
  absent("betas", "beta2", "0.999");
  absent("eps", "epsilon", "1e-8");
  target_.absent(params + "weight_decay", "weight-decay", optimizer.weight_decay, torch_adam_ ? 0.01 : 0.0);
  if (adam_w_mode_) return;
  // DeepSpeed listens to it for the type Adam only; without weight decay both are the same.
  if (type_ != "adamw" && optimizer.weight_decay != 0)
    target_.refuse(params + "adam_w_mode", "is false: weight decay as a term of the gradient (Adam) is not done here");
  target_.note(params + "adam_w_mode", Json(false),
               type_ == "adamw" ? "no effect: the type is AdamW" : "no effect without weight decay");
}

}  // namespace consist::deepspeed
