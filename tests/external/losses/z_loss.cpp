// The z-loss of a language model (Chowdhery et al., 2022, PaLM): beside the cross-entropy the square of the softmax's logarithmic
// denominator, which keeps logits from drifting.
#include <consist/error.h>
#include <consist/expression.h>
#include <consist/layers.h>
#include <consist/loss.h>
#include <consist/plugin.h>

#include <string>


namespace {

using namespace consist;

class ZLoss final : public Loss {
 public:
  explicit ZLoss(const Options& options) : weight_(options.real("weight")) {
    if (!(weight_ >= 0)) throw UsageError("--my-z-loss.weight is " + number_text(weight_) + "; it must be at least 0");
  }

  TensorId build(Builder& b, const ModelHead& model, std::span<const ModelHead> /*frozen*/, double loss_scale) const override {
    const layers::LogProbability of_targets =
        layers::lm_head_log_probability(b, model.x, model.weight, model.targets, "likelihood");
    return layers::total(b, number_text(loss_scale) + "*select(1+c,-a+" + number_text(weight_) + "*square(b),0)",
                         {of_targets.log_probability, of_targets.denominator, model.targets}, "loss");
  }

  std::string describe() const override { return "next token with a z-loss of " + number_text(weight_); }

 private:
  double weight_;
};

}  // namespace

CONSIST_PLUGIN(loss, consist::Loss, ZLoss, "my-z-loss", "1.0.0", "cross-entropy and the square of its denominator's logarithm");
CONSIST_PLUGIN_OPTIONS({"weight", consist::OptionKind::real, "1e-4", "factor of the square"});
