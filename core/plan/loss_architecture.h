// A model that is trained on another loss than the next token's (--loss): an architecture like any other, so that no pass
// knows of losses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/loss.h"
#include "consist/model.h"

namespace consist {

/// A frozen model, found.
struct FoundFrozen {
  std::string name;  ///< FrozenModel::name
  std::shared_ptr<const Architecture> architecture;
  std::shared_ptr<const void> plugin;  ///< made the architecture; kept for its code's sake
  std::string folder;                  ///< of its weights; empty: initial values
  bool is_trained_model = false;       ///< its weights are those from which the trained model begins
};

/// Builds the trained model and the frozen ones, takes their own losses away and lets the loss make one. sizes() counts the
/// work of frozen models, config_json() is the trained model's.
class LossArchitecture final : public Architecture {
 public:
  LossArchitecture(std::shared_ptr<const Architecture> trained, std::shared_ptr<const Loss> loss,
                   std::vector<FoundFrozen> frozen);

  ModelSizes sizes() const override { return sizes_; }
  TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const override;
  std::string config_json() const override { return trained_->config_json(); }

  const Loss& loss() const noexcept { return *loss_; }
  const std::vector<FoundFrozen>& frozen() const noexcept { return frozen_; }

 private:
  ModelHead build_frozen(Builder& builder, const FoundFrozen& model, TensorId ids, TensorId targets) const;

  std::shared_ptr<const Architecture> trained_;
  std::shared_ptr<const Loss> loss_;
  std::vector<FoundFrozen> frozen_;
  ModelSizes sizes_;
};

}  // namespace consist
