// Losses: what is trained on in place of the next token's cross-entropy, with other models of frozen weights in the same step, such
// as a teacher (Hinton et al., 2015) or the reference of preferences (Rafailov et al., 2023).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/builder.h"
#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// The end of a model in a program: x [batch, sequence, channels], whose product with `weight` [vocabulary, channels] is the
/// logits (layers::linear), and the targets [batch, sequence] (i32), negative where the dataset's "loss_mask" is 0.
struct ModelHead {
  TensorId x = no_tensor, weight = no_tensor, targets = no_tensor;
};

/// A model that reads the same tokens and is not trained.
struct FrozenModel {
  std::string name;   ///< a word: its parameters are "<name>.<parameter>" in programs and checkpoints. Exports leave them out
  std::string model;  ///< as --model takes it; empty: the architecture and the weights from which the trained model begins
};

/// The plugin kind "loss", chosen by --loss: what is trained on instead of the next token's cross-entropy. It sees
/// logical shapes: no ranks, no dtypes, no devices. THREADS: any; the functions are called for several programs at a time.
class CONSIST_API Loss {
 public:
  virtual ~Loss();

  /// Other models that build() wants beside the one that is trained. Constant. The default has none.
  virtual std::vector<FrozenModel> frozen_models() const;

  /// Emits the loss of a micro-batch, a scalar that layers::total or layers::lm_head_loss made, and returns it. Evaluations use
  /// the same. `frozen`: in the order of frozen_models(). A loss that is summed over tokens is multiplied by `loss_scale`, 1 over
  /// the tokens of a step; one that is summed over sequences by loss_scale times the length of a sequence. Where targets are
  /// masked the step divides losses by the targets that count instead (StepOutput::Kind::loss_count); a loss that is not summed
  /// over these drops that output. Numbers that it reports besides are Builder::metric(). An evaluation's last batch may have
  /// sequences too many, whose targets are all negative: they must add 0. The same each time for the same program. ERRORS:
  /// UsageError for a model that it cannot train.
  virtual TensorId build(Builder& builder, const ModelHead& trained, std::span<const ModelHead> frozen,
                         double loss_scale) const = 0;

  /// One line for the log: "distillation from qwen3-8b at temperature 2".
  virtual std::string describe() const = 0;

  /// The unit of the next token's cross-entropy.
  static constexpr const char* default_unit = "nat/token";
  /// The unit of the mean loss, which archives have beside it and curves are drawn in: "nat/pair", "1". Constant. The default
  /// returns default_unit.
  virtual std::string unit() const;
};

}  // namespace consist
