// Direct preference optimization (Rafailov et al., 2023): the model shall find the chosen answer likelier than the rejected one,
// measured by how likely a frozen reference, the model at its start, finds both. A sequence holds both (dataset "preferences").
#include <string>

#include "consist/error.h"
#include "consist/expression.h"
#include "consist/layers.h"
#include "consist/loss.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Dpo final : public Loss {
 public:
  explicit Dpo(const Options& options) : beta_(options.real("beta")), smoothing_(options.real("label-smoothing")) {
    if (!(beta_ > 0)) throw UsageError("--dpo.beta is " + number_text(beta_) + "; it must be above 0");
    if (!(smoothing_ >= 0 && smoothing_ < 0.5))
      throw UsageError("--dpo.label-smoothing is " + number_text(smoothing_) + "; it must be at least 0 and below 0.5");
  }

  std::vector<FrozenModel> frozen_models() const override { return {{"reference", ""}}; }

  TensorId build(Builder& b, const ModelHead& model, std::span<const ModelHead> frozen, double loss_scale) const override {
    const auto likelihood = [&](const ModelHead& head, const std::string& name) {
      return layers::lm_head_log_probability(b, head.x, head.weight, model.targets, name + ".likelihood").log_probability;
    };
    const TensorId trained = likelihood(model, "trained"), reference = likelihood(frozen[0], "reference");
    // 1 at the tokens of the chosen answer, -1 at those of the rejected one, 0 elsewhere.
    const TensorId preference = b.input("preference", DType::f32, b[model.targets].shape);
    const TensorId margin =
        layers::reduce_rows(b, layers::Reduction::sum, number_text(beta_) + "*(a-b)*c", {trained, reference, preference}, "margin");
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
    // -log sigmoid(margin), and with label smoothing as much of -log sigmoid(-margin).
    const std::string right = number_text(scale * (1 - smoothing_)), wrong = number_text(scale * smoothing_);
    const std::string loss = right + "*softplus(-a)" + (smoothing_ > 0 ? "+" + wrong + "*softplus(a)" : "");
    return layers::total(b, "select(b," + loss + ",0)", {margin, tokens}, "loss");
  }

  std::string describe() const override {
    return "direct preference optimization, beta " + number_text(beta_) +
           (smoothing_ > 0 ? ", label smoothing " + number_text(smoothing_) : "");
  }

  std::string unit() const override { return "nat/pair"; }

 private:
  double beta_, smoothing_;
};

}  // namespace

CONSIST_PLUGIN(loss, consist::Loss, Dpo, "dpo", "1.0.0",
               "direct preference optimization: chosen answers likelier than rejected ones, beside a frozen reference");
CONSIST_PLUGIN_OPTIONS({"beta", consist::OptionKind::real, "0.1",
                        "how far the model may go from the reference: less is further"},
                       {"label-smoothing", consist::OptionKind::real, "0",
                        "share of pairs that are taken to be labelled the wrong way round"});
