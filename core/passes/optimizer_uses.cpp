#include "core/passes/optimizer_uses.h"

#include <algorithm>
#include <cstdio>

#include "core/program/name_patterns.h"

namespace consist {
namespace {

constexpr std::string_view scalars_input = "optimizer_scalars";

std::string rounded_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

}  // namespace

OptimizerUses::OptimizerUses(const Optimizer* optimizer, std::string name) {
  uses_.push_back({{}, optimizer, std::move(name), std::string(scalars_input)});
}

void OptimizerUses::add(OptimizerRule rule, const Optimizer* optimizer, std::string name) {
  std::string scalars = std::string(scalars_input) + "." + std::to_string(uses_.size());
  uses_.push_back({std::move(rule), optimizer, std::move(name), std::move(scalars)});
}

std::size_t OptimizerUses::index_of(std::string_view parameter) const {
  for (std::size_t k = 1; k < uses_.size(); ++k) {
    if (matches_any(uses_[k].rule.patterns, parameter)) return k;
  }
  return 0;
}

std::vector<std::pair<const Optimizer*, std::string>> OptimizerUses::optimizers() const {
  std::vector<std::pair<const Optimizer*, std::string>> all;
  for (const OptimizerUse& use : uses_) {
    const auto known = [&](const auto& other) { return other.first == use.optimizer; };
    if (std::none_of(all.begin(), all.end(), known)) all.emplace_back(use.optimizer, use.name);
  }
  return all;
}

std::size_t OptimizerUses::most_scalars() const {
  std::size_t most = 0;
  for (const OptimizerUse& use : uses_) most = std::max(most, use.optimizer->scalar_count());
  return most;
}

std::string OptimizerUses::describe() const {
  const OptimizerUse& all = uses_.front();
  std::string text = all.optimizer->describe();
  for (std::size_t k = 1; k < uses_.size(); ++k) {
    const OptimizerRule& rule = uses_[k].rule;
    text += "; '" + patterns_text(rule.patterns) + "': ";
    std::string what;
    const auto add = [&](const std::string& more) { what += (what.empty() ? "" : ", ") + more; };
    if (uses_[k].optimizer != all.optimizer) add(uses_[k].optimizer->describe());
    if (rule.rate_factor != 1) add(rounded_text(rule.rate_factor) + " of the learning rate");
    if (rule.weight_decay) add("weight decay " + rounded_text(*rule.weight_decay));
    text += what.empty() ? "as all" : what;
  }
  return text;
}

bool is_optimizer_scalars(std::string_view input) {
  return input == scalars_input || (input.starts_with(scalars_input) && input[scalars_input.size()] == '.');
}

}  // namespace consist
