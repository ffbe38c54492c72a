#include "tests/interpreter/cell.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "consist/error.h"
#include "core/cost/collective_stream.h"
#include "tests/interpreter/order_check.h"

namespace consist::interpreter {
namespace {

void copy_options(const RunConfig& from, const std::string& plugin, RunConfig& to) {
  if (const auto options = from.plugin_options.find(plugin); options != from.plugin_options.end())
    to.plugin_options[plugin] = options->second;
}

bool masks_targets(const RunConfig& config) {
  const auto options = config.plugin_options.find(config.dataset);
  if (options == config.plugin_options.end()) return false;
  const auto fields = options->second.find("fields");
  return fields != options->second.end() && fields->second.find("loss_mask") != std::string::npos;
}

/// True if the loss of a step is not the sum of those of its tokens, whatever their micro-batches: a balance loss is of a
/// micro-batch, and a z-loss has the weight of its micro-batch's targets.
bool depends_on_micro_batches(const RunConfig& config) {
  std::ifstream file(config.model + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json json = nlohmann::json::parse(text);
  return json.value("output_router_logits", false) || (json.value("router_z_loss_coef", 0.0) > 0 && masks_targets(config));
}

/// The same run on one rank: its strategies and precision change nothing but where numbers lie.
RunConfig alone(const RunConfig& config) {
  RunConfig one;
  one.model = config.model;
  one.device = config.device;
  one.dataset = config.dataset;
  one.sequence = config.sequence;
  one.global_batch = config.global_batch;
  one.batch = 0;
  if (depends_on_micro_batches(config)) one.accumulation = config.accumulation;
  one.pack = false;
  one.freeze = config.freeze;
  one.optimizer = config.optimizer;
  one.optimizer_plugin = config.optimizer_plugin;
  copy_options(config, config.optimizer_plugin, one);
  copy_options(config, config.dataset, one);  // its fields
  return one;
}

void compare(std::vector<std::string>& wrong, const std::string& what, const std::vector<double>& found,
             const std::vector<double>& expected, double within = tolerance) {
  if (found.size() != expected.size())
    return wrong.push_back(what + " has " + std::to_string(found.size()) + " elements, one rank's " +
                           std::to_string(expected.size()));
  double size = 0, worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    size = std::max(size, std::abs(expected[i]));
    const double deviation = std::abs(found[i] - expected[i]);
    if (deviation > worst || std::isnan(deviation)) {
      worst = std::isnan(deviation) ? INFINITY : deviation;
      at = i;
    }
  }
  if (worst <= within * size) return;
  wrong.push_back(what + " differs by " + std::to_string(worst / size) + " of its largest element, most in element " +
                  std::to_string(at) + ": " + std::to_string(found[at]) + ", one rank has " + std::to_string(expected[at]));
}

void check_programs(std::vector<std::string>& wrong, const std::vector<Planned>& programs) {
  std::vector<const Program*> pointers;
  for (const Planned& p : programs) {
    pointers.push_back(&p.program);
    for (const std::string& violation : check_order(p).violations) wrong.push_back(violation);
  }
  verify_collectives(pointers);
}

}  // namespace

const Outcome& one_rank(const RunConfig& config) {
  using OptionValues = std::map<std::string, std::string>;
  static std::map<
      std::tuple<std::string, std::int64_t, std::int64_t, double, double, std::string, OptionValues, std::string, std::string, OptionValues, int>,
      Outcome>
      known;
  const auto options = config.plugin_options.find(config.optimizer_plugin);
  const auto fields = config.plugin_options.find(config.dataset);
  const std::tuple key(config.model, config.sequence, config.global_batch, config.optimizer.max_norm,
                       config.optimizer.weight_decay, config.optimizer_plugin,
                       options == config.plugin_options.end() ? OptionValues() : OptionValues(options->second),
                       patterns_text(config.freeze.frozen), patterns_text(config.freeze.trained),
                       fields == config.plugin_options.end() ? OptionValues() : OptionValues(fields->second), alone(config).accumulation);
  auto [found, added] = known.try_emplace(key);
  if (added) found->second = run(*compile(alone(config), 0), {});
  return found->second;
}

std::vector<std::string> differences(const RankPrograms& programs, const Outcome& found) {
  const RunConfig& config = programs.config;
  const Outcome& expected = one_rank(config);
  std::vector<std::string> wrong;
  compare(wrong, "the loss", found.losses, expected.losses);
  compare(wrong, "the auxiliary loss", found.auxiliary_losses, expected.auxiliary_losses);
  compare(wrong, "how many choices fell on each expert", found.expert_choices, expected.expert_choices);
  compare(wrong, "the gradients' norm", found.grad_norms, expected.grad_norms);
  for (const auto& [name, values] : expected.values) {
    if (const auto here = found.values.find(name); here != found.values.end())
      compare(wrong, name, here->second, values);
    else
      wrong.push_back("no rank has '" + name + "'");
  }
  static std::map<std::pair<const Outcome*, std::int64_t>, double> evaluations;
  const std::int64_t sequences = config.batch * programs.layout.batch_ranks();
  const auto [evaluation, added] = evaluations.try_emplace({&expected, sequences});
  if (added) evaluation->second = evaluation_of_one_rank(alone(config), sequences, expected.after_first_step);
  compare(wrong, "the evaluation's loss", {found.evaluation}, {evaluation->second});
  return wrong;
}

std::vector<std::string> differences_of_rounded(const RankPrograms& programs, std::uint64_t order) {
  RunConfig one = alone(programs.config);
  one.precision = programs.config.precision;
  one.pack = programs.config.pack;  // products that are packed round once what others round one by one
  copy_options(programs.config, one.precision, one);
  const Outcome expected = run(*compile(one, 0), {.steps = 1, .rounded = true});
  const Outcome found = run(programs, {.order = order, .steps = 1, .rounded = true});
  std::vector<std::string> wrong;
  compare(wrong, "the loss", found.losses, expected.losses, rounded_tolerance);
  compare(wrong, "the gradients' norm", found.grad_norms, expected.grad_norms, rounded_tolerance);
  for (const auto& [name, values] : expected.values) compare(wrong, name, found.values.at(name), values, rounded_tolerance);
  return wrong;
}

std::vector<std::string> wrong_in_run(const RankPrograms& programs, std::uint64_t order) {
  try {
    return differences(programs, run(programs, {.order = order}));
  } catch (const ProgramError& error) {
    return {error.what()};
  }
}

std::vector<std::string> check(const ModelChoice& model, const std::vector<std::string>& words, std::uint64_t order) {
  const auto programs = compile(config_of(model, words), 256 * static_cast<std::int64_t>(order % 5));
  std::vector<std::string> wrong;
  try {
    check_programs(wrong, programs->steps);
    check_programs(wrong, programs->evaluations);
  } catch (const ProgramError& error) {
    wrong.emplace_back(error.what());
  }
  for (std::string& difference : wrong_in_run(*programs, order)) wrong.push_back(std::move(difference));
  return wrong;
}

std::string text_of(const ModelChoice& model, const std::vector<std::string>& words) {
  std::string text = model.golden + " " + model.changes;
  for (const std::string& word : words) text += " " + word;
  return text;
}

}  // namespace consist::interpreter
