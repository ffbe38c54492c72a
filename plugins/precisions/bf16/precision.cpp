// bf16: weights and activations in bfloat16; what accumulates (gradients, masters, moments) in fp32 unless asked otherwise.
#include "consist/precision.h"

#include "consist/plugin.h"

namespace {

using namespace consist;

class Bf16 final : public Precision {
 public:
  explicit Bf16(const Options& options) {
    dtypes_.parameter = DType::bf16;
    dtypes_.gradient = *dtype_of(options.text("gradients"));
    if (options.text("states") == "f32") {
      dtypes_.master = DType::f32;
    } else {
      dtypes_.moment = DType::bf16;
      dtypes_.stochastic_rounding = true;
    }
  }
  DTypes dtypes() const override { return dtypes_; }
  std::string describe() const override {
    return "bf16 weights and activations, " + std::string(name_of(dtypes_.gradient)) + " gradients, " +
           (dtypes_.master ? "f32 masters and moments" : "bf16 moments and no masters (stochastic rounding)");
  }
  std::string peak() const override { return "bf16"; }

 private:
  DTypes dtypes_;
};

}  // namespace

CONSIST_PLUGIN(precision, consist::Precision, Bf16, "bf16", "1.0.0",
               "bf16 weights and activations, fp32 masters, gradients and moments");
CONSIST_PLUGIN_OPTIONS({"gradients", consist::OptionKind::choice, "f32", "dtype in which gradients of parameters accumulate",
                        "f32|bf16"},
                       {"states", consist::OptionKind::choice, "f32",
                        "f32: fp32 master weights and moments; bf16: neither, with stochastic rounding", "f32|bf16"});
