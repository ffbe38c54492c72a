// The optimizers of a run: one for all parameters, and rules for some of them by name (--optimizer-rules).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/export.h"
#include "consist/optimizer.h"

namespace consist {

/// A rule as it is given: parameters whose names match are updated differently.
struct OptimizerRule {
  std::vector<std::string> patterns;   ///< of names (core/program/name_patterns.h)
  double rate_factor = 1;              ///< of the learning rate
  std::optional<double> weight_decay;  ///< of all that match, norms and biases among them; absent: the run's, of matrices
  std::string optimizer;               ///< the plugin; empty: the run's
};

/// An optimizer that updates parameters, and the rule by which it does; without patterns it updates those that no rule names.
struct OptimizerUse {
  OptimizerRule rule;
  const Optimizer* optimizer = nullptr;
  std::string name = "the optimizer";           ///< for messages: "optimizer 'muon'"
  std::string scalars = "optimizer_scalars";  ///< the input that the trainer writes (Optimizer::write_scalars())
};

/// The optimizers outlive it.
class CONSIST_API OptimizerUses {
 public:
  /// One optimizer for all parameters.
  OptimizerUses(const Optimizer* optimizer, std::string name = "the optimizer");  // NOLINT(google-explicit-constructor)
  /// Adds a rule, behind those that are there: of several that name a parameter the first counts.
  void add(OptimizerRule rule, const Optimizer* optimizer, std::string name);

  /// The number of the use that updates the parameter; 0 without a rule for it.
  std::size_t index_of(std::string_view parameter) const;
  const OptimizerUse& of(std::string_view parameter) const { return uses_[index_of(parameter)]; }

  std::size_t size() const noexcept { return uses_.size(); }
  const OptimizerUse& operator[](std::size_t index) const { return uses_.at(index); }
  auto begin() const noexcept { return uses_.begin(); }
  auto end() const noexcept { return uses_.end(); }

  /// Each optimizer once, with its name.
  std::vector<std::pair<const Optimizer*, std::string>> optimizers() const;
  /// The largest Optimizer::scalar_count().
  std::size_t most_scalars() const;
  /// One line: "AdamW, ...; 'lm_head*': 0.1 of the rate, no weight decay".
  std::string describe() const;

 private:
  std::vector<OptimizerUse> uses_;
};

/// True for an input that the trainer writes for an optimizer.
CONSIST_API bool is_optimizer_scalars(std::string_view input);

}  // namespace consist
