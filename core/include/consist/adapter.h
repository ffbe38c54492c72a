// Adapters: small trained parts beside the frozen weights of a model, such as LoRA.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Reads f32 values of a trained parameter by its name, from element `first` on.
using ReadWeights = std::function<void(std::string_view parameter, std::int64_t first, std::span<float> out)>;

/// The plugin kind "adapter", chosen by --adapter. It sees the forward program that a model's build() has emitted, in logical
/// shapes: no ranks, no dtypes, no devices. THREADS: any; the functions are called for several programs at a time.
class CONSIST_API Adapter {
 public:
  virtual ~Adapter();

  /// Rewrites the forward part of one micro-batch, loss included: adds parameters and instructions, and makes the parameters that
  /// were there frozen (Parameter::trainable). The same each time for the same program. Parameters that it adds have names of
  /// their own, which begin with that of the module that they adapt ("model.layers.0.self_attn.q_proj.lora_A.weight"), and
  /// Tag::layer of what it adds is that of the instruction that it changes. At initial values the loss shall be the model's.
  /// ERRORS: UsageError for options that name nothing of this model.
  virtual void adapt(Program& model) const = 0;

  /// One line for the log: "lora of rank 16, alpha 32, on q_proj, v_proj".
  virtual std::string describe() const = 0;

  /// The text of the adapter_config.json from which PEFT loads the adapter. `base`: the model that it belongs to, as PEFT names
  /// it.
  virtual std::string config_json(const Program& adapted, std::string_view base) const = 0;

  /// Adds to `values`, which hold the elements of a parameter of the model from `first` on, what the adapter adds to that
  /// parameter. `adapted`: what adapt() has made of the whole model; `read` gives all parameters of it. Parameters that are not
  /// adapted stay.
  virtual void merge(const Program& adapted, std::string_view parameter, std::int64_t first, std::span<float> values,
                     const ReadWeights& read) const = 0;
};

}  // namespace consist
