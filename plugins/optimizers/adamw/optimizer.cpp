// AdamW as a plugin: its constants as options. What it does is in consist/optimizer.h.
#include <cstdio>

#include "consist/error.h"
#include "consist/optimizer.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

double within(const Options& options, const char* name, double least, double most) {
  const double value = options.real(name);
  if (value >= least && value <= most) return value;
  char text[160];
  std::snprintf(text, sizeof text, "--adamw.%s is %.9g; it must be from %.9g to %.9g", name, value, least, most);
  throw UsageError(text);
}

class Plugin final : public Optimizer {
 public:
  explicit Plugin(const Options& options)
      : adamw_({.beta1 = within(options, "beta1", 0, 0.999999),
                .beta2 = within(options, "beta2", 0, 0.999999999),
                .epsilon = within(options, "epsilon", 0, 1),
                .bias_correction = options.flag("bias-correction")}) {}
  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    return adamw_.states(parameter, shape);
  }
  std::size_t scalar_count() const override { return adamw_.scalar_count(); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    adamw_.write_scalars(step, learning_rate, out);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    adamw_.update(builder, scalars, clip, group);
  }
  std::string describe() const override { return adamw_.describe(); }

 private:
  AdamW adamw_;
};

}  // namespace

CONSIST_PLUGIN(optimizer, consist::Optimizer, Plugin, "adamw", "1.0.0", "AdamW: two moments and decoupled weight decay");
CONSIST_PLUGIN_OPTIONS({"beta1", consist::OptionKind::real, "0.9", "decay of the first moment"},
                       {"beta2", consist::OptionKind::real, "0.95", "decay of the second moment"},
                       {"epsilon", consist::OptionKind::real, "1e-8", "added to the root of the second moment"},
                       {"bias-correction", consist::OptionKind::flag, "true", "of both moments"});
