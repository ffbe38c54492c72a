#include "core/prove/one_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace consist::prove {
namespace {

void copy_options(const RunConfig& from, const std::string& plugin, RunConfig& to) {
  if (const auto options = from.plugin_options.find(plugin); options != from.plugin_options.end())
    to.plugin_options[plugin] = options->second;
}

/// True if the step's values may not be the sum of those of its tokens, whatever their micro-batches: an auxiliary loss is of a
/// micro-batch, and own metrics may be.
bool depends_on_micro_batches(const interpreter::RankPrograms& programs) {
  return std::ranges::any_of(programs.steps, [](const interpreter::Planned& p) {
    return p.program.output(StepOutput::Kind::auxiliary_loss) != no_tensor ||
           p.program.output(StepOutput::Kind::metric) != no_tensor;
  });
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

RunConfig alone(const interpreter::RankPrograms& programs) {
  const RunConfig& config = programs.config;
  RunConfig one;
  one.model = config.model;
  one.device = config.device;
  one.dataset = config.dataset;
  one.expert_load = config.expert_load;
  one.sequence = config.sequence;
  one.global_batch = config.global_batch;
  one.batch = 0;
  if (depends_on_micro_batches(programs)) one.accumulation = config.accumulation;
  one.pack = false;
  one.freeze = config.freeze;
  one.frozen_weights = config.frozen_weights;
  one.adapter = config.adapter;
  copy_options(config, config.adapter, one);
  one.loss = config.loss;
  copy_options(config, config.loss, one);
  one.frozen_like_trained = config.frozen_like_trained;
  one.optimizer = config.optimizer;
  one.optimizer_plugin = config.optimizer_plugin;
  copy_options(config, config.optimizer_plugin, one);
  for (const OptimizerRule& rule : config.optimizer.rules) copy_options(config, rule.optimizer, one);
  copy_options(config, config.dataset, one);  // its fields
  copy_options(config, programs.parts.model_name, one);
  return one;
}

interpreter::Outcome behind(const interpreter::Outcome& all, int steps) {
  interpreter::Outcome later;
  later.values = all.values;
  const std::size_t count = all.losses.size();
  const auto rest = [&](const std::vector<double>& of_steps) {
    const auto each = static_cast<std::ptrdiff_t>(of_steps.size() / count);
    return std::vector<double>(of_steps.begin() + steps * each, of_steps.end());
  };
  later.losses = rest(all.losses);
  later.grad_norms = rest(all.grad_norms);
  later.auxiliary_losses = rest(all.auxiliary_losses);
  later.expert_choices = rest(all.expert_choices);
  for (const auto& [name, values] : all.metrics) later.metrics[name] = rest(values);
  return later;
}

void compare(std::vector<Difference>& differences, const std::string& what, const std::vector<double>& found,
             const std::vector<double>& expected, double within) {
  Difference d{.what = what};
  if (found.size() != expected.size()) {
    d.relative = std::numeric_limits<double>::infinity();
    d.text = what + " has " + std::to_string(found.size()) + " elements, one rank's " + std::to_string(expected.size());
    differences.push_back(std::move(d));
    return;
  }
  double size = 0, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    size = std::max(size, std::abs(expected[i]));
    const double deviation = std::abs(found[i] - expected[i]);
    if (deviation > worst || std::isnan(deviation)) {
      worst = std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation;
      d.element = i;
    }
  }
  if (worst <= within * size) return;
  d.relative = worst / size;
  d.found = found[d.element];
  d.expected = expected[d.element];
  d.text = what + " differs by " + number(d.relative) + " of its largest element, most in element " + std::to_string(d.element) +
           ": " + number(d.found) + ", one rank has " + number(d.expected);
  differences.push_back(std::move(d));
}

std::vector<Difference> differences(const interpreter::Outcome& found, const interpreter::Outcome& expected, double within) {
  std::vector<Difference> wrong;
  compare(wrong, "the loss", found.losses, expected.losses, within);
  compare(wrong, "the auxiliary loss", found.auxiliary_losses, expected.auxiliary_losses, within);
  compare(wrong, "the number of choices that fell on each expert", found.expert_choices, expected.expert_choices, within);
  for (auto [name, values] : expected.metrics) {
    const auto here = found.metrics.find(name);
    std::vector<double> of_layout = here == found.metrics.end() ? std::vector<double>() : here->second;
    for (std::size_t k = 0; k < std::min(values.size(), of_layout.size()); ++k) {
      if (std::isnan(values[k]) && std::isnan(of_layout[k])) values[k] = of_layout[k] = 0;  // means of nothing
    }
    compare(wrong, "the metric " + name, of_layout, values, within);
  }
  compare(wrong, "the gradients' norm", found.grad_norms, expected.grad_norms, within);
  for (const auto& [name, values] : expected.values) {
    const auto here = found.values.find(name);
    if (here != found.values.end()) {
      compare(wrong, name, here->second, values, within);
    } else {
      wrong.push_back({.what = name, .relative = std::numeric_limits<double>::infinity(), .text = "no rank has '" + name + "'"});
    }
  }
  return wrong;
}

}  // namespace consist::prove
