// Direct preference optimization (Rafailov et al., 2023): the model shall find the chosen answer likelier than the rejected one,
// measured by how likely a frozen reference, the model at its start, finds both. A sequence holds both (preferences.cpp).
#include <consist/error.h>
#include <consist/layers.h>
#include <consist/loss.h>
#include <consist/plugin.h>

#include <string>

#include "numbers.h"

namespace {

using namespace consist;

class Dpo final : public Loss {
 public:
  explicit Dpo(const Options& options) : beta_(options.real("beta")) {
    if (!(beta_ > 0)) throw UsageError("--my-dpo.beta is " + number(beta_) + "; it must be above 0");
  }

  std::vector<FrozenModel> frozen_models() const override { return {{"reference", ""}}; }

  TensorId build(Builder& b, const ModelHead& model, std::span<const ModelHead> frozen, double loss_scale) const override {
    const auto likelihood = [&](const ModelHead& head, const std::string& name) {
      const TensorId logits = layers::linear(b, head.x, head.weight, no_tensor, name + ".lm_head");
      return layers::log_probability(b, logits, model.targets, name + ".likelihood");
    };
    const TensorId trained = likelihood(model, "trained"), reference = likelihood(frozen[0], "reference");
    // 1 at the tokens of the chosen answer, -1 at those of the rejected one, 0 elsewhere.
    const TensorId preference = b.input("preference", DType::f32, b[model.targets].shape);
    const TensorId margin =
        layers::reduce_rows(b, layers::Reduction::sum, number(beta_) + "*(a-b)*c", {trained, reference, preference}, "margin");
    const TensorId tokens =
        layers::reduce_rows(b, layers::Reduction::sum, "select(1+a,abs(b),0)", {model.targets, preference}, "tokens");
    b.program().drop_outputs(StepOutput::Kind::loss_count);  // a mean over sequences, whatever their tokens
    const TensorId pairs = layers::total(b, "select(a,1,0)", {tokens}, "pairs");
    b.metric("preference_accuracy", layers::total(b, "select(b,select(a,1,0),0)", {margin, tokens}, "preferred"), pairs,
             "share of pairs whose chosen answer has a larger reward than the rejected one");
    b.metric("reward_margin", layers::total(b, "select(b,a,0)", {margin, tokens}, "margins"), pairs,
             "mean over pairs: the reward of the chosen answer, beta times its log-likelihood beside the reference's, less the "
             "rejected one's",
             "nat");
    const double scale = loss_scale * static_cast<double>(b[model.targets].shape[1]);
    return layers::total(b, number(scale) + "*select(b,softplus(-a),0)", {margin, tokens}, "loss");  // -log sigmoid(margin)
  }

  std::string describe() const override { return "direct preference optimization, beta " + number(beta_); }

 private:
  double beta_;
};

}  // namespace

CONSIST_PLUGIN(loss, consist::Loss, Dpo, "my-dpo", "1.0.0", "chosen answers likelier than rejected ones");
CONSIST_PLUGIN_OPTIONS({"beta", consist::OptionKind::real, "0.1",
                        "how far the model may go from the reference: less is further"});
