#include "launch/readers/deepspeed_optimizer.h"

#include "consist/json_input.h"
#include "core/files/lower.h"

namespace consist::deepspeed {

void OptimizerReader::read(const std::string& key, const Json& value) {
  OptimizerSettings& optimizer = target_.config.optimizer;
  there_ = true;
  if (key == "optimizer.type") {
    type_ = value.is_string() ? lower(value.get<std::string>()) : "";
    if (type_ != "adamw" && type_ != "adam" && type_ != "fusedadam" && type_ != "deepspeedcpuadam") {
      target_.refuse(
          key, "is " + shown(value) + "; the optimizer here is AdamW (and Adam, which is AdamW in DeepSpeed's default mode)");
    }
    target_.state(key, value, "optimizer", target_.config.optimizer_plugin, std::string("adamw"));
  } else if (key == "optimizer.params.lr") {
    target_.state_real(key, value, "learning-rate", target_.config.learning_rate);
  } else if (key == "optimizer.params.betas") {
    read_betas(key, value);
  } else if (key == "optimizer.params.eps") {
    read_adam(key, value, "epsilon");
  } else if (key == "optimizer.params.weight_decay") {
    target_.state_real(key, value, "weight-decay", optimizer.weight_decay);
  } else if (key == "optimizer.params.bias_correction") {
    if (is_auto(value))
      keep_adam(key, value, "bias-correction");
    else
      target_.state_plugin(key, value, "adamw", "bias-correction", target_.truth(key, value) ? "true" : "false");
  } else if (key == "optimizer.params.torch_adam") {
    torch_adam_ = is_auto(value) || target_.truth(key, value);
    target_.note(key, value, "no effect here but for the default of weight_decay: AdamW has one implementation per device");
  } else if (key == "optimizer.params.adam_w_mode") {
    adam_w_mode_ = is_auto(value) || target_.truth(key, value);
  } else if (key == "optimizer.params.max_grad_norm") {
    target_.refuse(key, "is no parameter of DeepSpeed's Adam either; it is the key gradient_clipping");
  }
}

void OptimizerReader::read_betas(const std::string& key, const Json& value) {
  if (is_auto(value)) {
    keep_adam(key, value, "beta1");
    keep_adam(key, value, "beta2");
    return;
  }
  if (!value.is_array() || value.size() != 2) target_.refuse(key, "is " + shown(value) + "; it must be two numbers or \"auto\"");
  target_.state_plugin(key, value, "adamw", "beta1", as_text(target_.number(key, value[0])));
  target_.state_plugin(key, value, "adamw", "beta2", as_text(target_.number(key, value[1])));
}

void OptimizerReader::read_adam(const std::string& key, const Json& value, const std::string& option) {
  if (is_auto(value))
    keep_adam(key, value, option);
  else
    target_.state_plugin(key, value, "adamw", option, as_text(target_.number(key, value)));
}

void OptimizerReader::keep_adam(const std::string& key, const Json& value, const std::string& option) {
  kept_.insert(option);
  target_.keep_plugin(key, value, "adamw", option);
}

void OptimizerReader::absent_adam(const std::string& key, const std::string& option, const std::string& fallback) {
  if (!kept_.contains(option)) target_.absent_plugin(key, "adamw", option, fallback);
}

void OptimizerReader::finish() {
  if (!there_) return;
  OptimizerSettings& optimizer = target_.config.optimizer;
  const std::string params = "optimizer.params.";
  target_.absent(params + "lr", "learning-rate", target_.config.learning_rate, 1e-3);
  absent_adam(params + "betas", "beta1", "0.9");
  absent_adam(params + "betas", "beta2", "0.999");
  absent_adam(params + "eps", "epsilon", "1e-8");
  target_.absent(params + "weight_decay", "weight-decay", optimizer.weight_decay, torch_adam_ ? 0.01 : 0.0);
  if (!adam_w_mode_) {
    // DeepSpeed listens to it for the type Adam only; without weight decay both are the same.
    if (type_ != "adamw" && optimizer.weight_decay != 0)
      target_.refuse(params + "adam_w_mode", "is false: weight decay as a term of the gradient (Adam) is not done here");
    target_.note(params + "adam_w_mode", Json(false),
                 type_ == "adamw" ? "no effect: the type is AdamW" : "no effect without weight decay");
  }
}

}  // namespace consist::deepspeed
