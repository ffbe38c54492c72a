// fp32: everything in IEEE single precision.
#include "consist/precision.h"

#include "consist/plugin.h"

namespace {

class Fp32 final : public consist::Precision {
 public:
  explicit Fp32(const consist::Options& /*options*/) {}
  consist::DTypes dtypes() const override { return {}; }
  std::string describe() const override { return "fp32 weights, activations, gradients and moments"; }
  std::string peak() const override { return "fp32"; }
};

}  // namespace

CONSIST_PLUGIN(precision, consist::Precision, Fp32, "fp32", "1.0.0", "everything in IEEE single precision");
CONSIST_PLUGIN_NO_OPTIONS();
