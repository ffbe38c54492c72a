// bf16: weights and activations in bfloat16; what accumulates (gradients, masters, moments) in fp32 unless asked otherwise.
#include "consist/precision.h"

#include "consist/plugin.h"
#include "plugins/precisions/bf16/dtypes.h"

namespace {

using namespace consist;

class Bf16 final : public Precision {
 public:
  explicit Bf16(const Options& options) : dtypes_(bf16::dtypes(options)) {}
  DTypes dtypes() const override { return dtypes_; }
  std::string describe() const override { return "bf16 weights and activations, " + bf16::describe(dtypes_); }
  std::string peak() const override { return "bf16"; }

 private:
  DTypes dtypes_;
};

}  // namespace

CONSIST_PLUGIN(precision, consist::Precision, Bf16, "bf16", "1.0.0",
               "bf16 weights and activations, fp32 masters, gradients and moments");
CONSIST_PLUGIN_OPTIONS(consist::bf16::gradients_option, consist::bf16::states_option);
