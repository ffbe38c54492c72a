// The z-loss of a language model (Chowdhery et al., 2022, PaLM): beside the cross-entropy the square of the softmax's logarithmic
// denominator, which keeps logits from drifting.
#include <consist/error.h>
#include <consist/layers.h>
#include <consist/loss.h>
#include <consist/plugin.h>

#include <string>

#include "numbers.h"

namespace {

using namespace consist;

class ZLoss final : public Loss {
 public:
  explicit ZLoss(const Options& options) : weight_(options.real("weight")) {
    if (!(weight_ >= 0)) throw UsageError("--my-z-loss.weight is " + number(weight_) + "; it must be at least 0");
  }

  TensorId build(Builder& b, const ModelHead& model, std::span<const ModelHead> /*frozen*/, double loss_scale) const override {
    const TensorId logits = layers::linear(b, model.x, model.weight, no_tensor, "lm_head");
    const TensorId denominator = layers::reduce_rows(b, layers::Reduction::logsumexp, "a", {logits}, "z_loss.denominator");
    const TensorId at_target =
        layers::reduce_rows(b, layers::Reduction::sum, "select(abs(channel-b[r]),0,a)", {logits, model.targets}, "z_loss.logit");
    return layers::total(b, number(loss_scale) + "*select(1+c,a-b+" + number(weight_) + "*square(a),0)",
                         {denominator, at_target, model.targets}, "loss");
  }

  std::string describe() const override { return "next token with a z-loss of " + number(weight_); }

 private:
  double weight_;
};

}  // namespace

CONSIST_PLUGIN(loss, consist::Loss, ZLoss, "my-z-loss", "1.0.0", "cross-entropy and the square of its denominator's logarithm");
CONSIST_PLUGIN_OPTIONS({"weight", consist::OptionKind::real, "1e-4", "factor of the square"});
