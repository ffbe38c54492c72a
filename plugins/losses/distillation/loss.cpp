// Distillation (Hinton et al., 2015): the divergence of the model's distribution from a frozen teacher's, of both at one
// temperature, with a part of the cross-entropy.
#include <string>

#include "consist/error.h"
#include "consist/expression.h"
#include "consist/layers.h"
#include "consist/loss.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class Distillation final : public Loss {
 public:
  explicit Distillation(const Options& options)
      : teacher_(options.text("teacher")), temperature_(options.real("temperature")), share_(options.real("share")) {
    if (teacher_.empty())
      throw UsageError("--distillation.teacher is not given; it names the model to learn from, as --model does");
    if (!(temperature_ > 0)) throw UsageError("--distillation.temperature must be above 0");
    if (!(share_ >= 0 && share_ <= 1)) throw UsageError("--distillation.share must be 0 to 1");
  }

  std::vector<FrozenModel> frozen_models() const override { return {{"teacher", teacher_}}; }

  TensorId build(Builder& b, const ModelHead& model, std::span<const ModelHead> frozen, double loss_scale) const override {
    using layers::Reduction;
    const auto logits_of = [&](const ModelHead& head, const char* name) {
      return layers::linear(b, head.x, head.weight, no_tensor, name);
    };
    const TensorId student = logits_of(model, "lm_head"), teacher = logits_of(frozen[0], "teacher.lm_head");
    const std::string k = number_text(1 / temperature_), t = "(" + k + "*a-c[r])", s = "(" + k + "*b-d[r])";
    const TensorId of_student = layers::reduce_rows(b, Reduction::logsumexp, k + "*a", {student}, "student.denominator"),
                   of_teacher = layers::reduce_rows(b, Reduction::logsumexp, k + "*a", {teacher}, "teacher.denominator");
    const TensorId divergence = layers::reduce_rows(b, Reduction::sum, "exp(" + t + ")*(" + t + "-" + s + ")",
                                                    {teacher, student, of_teacher, of_student}, "divergence");
    const TensorId likelihood = layers::log_probability(b, student, model.targets, "likelihood");
    b.metric("divergence", layers::total(b, "select(1+b,a,0)", {divergence, model.targets}, "divergences"),
             layers::total(b, "select(1+a,1,0)", {model.targets}, "counted"),
             "mean Kullback-Leibler divergence of the model from the teacher, both at the temperature", "nat/token");
    // The square keeps gradients as large as at temperature 1.
    const std::string soft = number_text(loss_scale * share_ * temperature_ * temperature_), hard = number_text(loss_scale * (1 - share_));
    return layers::total(b, "select(1+c," + soft + "*a-" + hard + "*b,0)", {divergence, likelihood, model.targets}, "loss");
  }

  std::string describe() const override {
    return "distillation from " + teacher_ + " at temperature " + number_text(temperature_) + ", a share of " + number_text(share_);
  }

 private:
  std::string teacher_;
  double temperature_, share_;
};

}  // namespace

CONSIST_PLUGIN(loss, consist::Loss, Distillation, "distillation", "1.0.0", "distillation: learns from a frozen teacher's distribution");
CONSIST_PLUGIN_OPTIONS({"teacher", consist::OptionKind::text, "", "the model to learn from, as --model takes it"},
                       {"temperature", consist::OptionKind::real, "1", "by which logits of both are divided"},
                       {"share", consist::OptionKind::real, "0.5",
                        "of the divergence; the rest is the next token's cross-entropy"});
