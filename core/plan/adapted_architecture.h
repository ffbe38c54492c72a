// A model with an adapter in it (--adapter): an architecture like any other, so that no pass knows of adapters.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "consist/adapter.h"
#include "consist/model.h"

namespace consist {

/// Builds the base model and lets the adapter rewrite it. sizes() counts the adapter's parameters, too; config_json() is the base
/// model's.
class AdaptedArchitecture final : public Architecture {
 public:
  /// Throws what the adapter throws at a model that it cannot adapt, and ProgramError if it adds nothing to train.
  AdaptedArchitecture(std::shared_ptr<Architecture> base, std::shared_ptr<Adapter> adapter);

  ModelSizes sizes() const override { return sizes_; }
  TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const override;
  std::string config_json() const override { return base_->config_json(); }

  const Architecture& base() const noexcept { return *base_; }
  const Adapter& adapter() const noexcept { return *adapter_; }
  /// True if the parameter is one of the model that is adapted.
  bool is_of_base(std::string_view parameter) const;

 private:
  std::shared_ptr<Architecture> base_;
  std::shared_ptr<Adapter> adapter_;
  std::set<std::string, std::less<>> of_base_;
  ModelSizes sizes_;
};

}  // namespace consist
