#include "core/config/run_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "consist/error.h"
#include "core/base/number.h"
#include "core/base/split.h"
#include "core/config/dataset_choices.h"
#include "core/config/option_table.h"
#include "core/config/option_value.h"

namespace consist {
namespace {

/// Above it, products of sizes would leave 64 bits long before any machine could hold them.
constexpr std::int64_t most_ranks = 65'536;

/// "8", "2x4" or "*x4", in which '*', once, is 0.
std::vector<int> parse_sizes(const std::string& strategies, std::string_view text) {
  std::vector<int> sizes;
  std::int64_t product = 1;
  for (const std::string_view number : split(text, 'x')) {
    int& size = sizes.emplace_back(0);
    if (number == "*" && text.size() > 1 && std::count(sizes.begin(), sizes.end(), 0) == 1) continue;
    if (!parse_number(number, size) || size < 1) {
      throw UsageError("--strategy " + strategies + ": '" + std::string(number) +
                       "' is no number of ranks; write for example ddp=2, or zero2=2x4 for a strategy on two mesh axes (*x4: the "
                       "first one has the ranks that are left)");
    }
    product *= size;
    if (product > most_ranks) {
      throw UsageError("--strategy, ranks of one strategy is " + std::to_string(product) + "; it must be at most " +
                       std::to_string(most_ranks));
    }
  }
  return sizes;
}

}  // namespace

std::vector<StrategyChoice> parse_strategies(const std::string& text) {
  std::vector<StrategyChoice> strategies;
  for (std::string_view part : split(text, '+')) {
    StrategyChoice choice;
    const std::size_t equals = part.find('=');
    choice.name = part.substr(0, equals);
    if (equals != std::string_view::npos) {
      choice.split = parse_sizes(text, part.substr(equals + 1));
      choice.size = 1;
      for (const int size : choice.split) choice.size *= size;
      if (choice.split.size() == 1) choice.split.clear();
    }
    if (choice.name.empty())
      throw UsageError("--strategy '" + text + "' has an empty part; write for example ddp, or tp-sp=2+ddp");
    strategies.push_back(std::move(choice));
  }
  return strategies;
}

namespace {

std::string sizes_text(const StrategyChoice& s) {
  if (s.split.empty()) return s.size > 0 ? "=" + std::to_string(s.size) : "";
  std::string text;
  for (const int size : s.split) text += (text.empty() ? "=" : "x") + (size > 0 ? std::to_string(size) : "*");
  return text;
}

}  // namespace

std::string text_of(const std::vector<StrategyChoice>& strategies) {
  std::string text;
  for (const StrategyChoice& s : strategies) text += (text.empty() ? "" : "+") + s.name + sizes_text(s);
  return text;
}

void parse_transports(const std::string& text, RunConfig& config) {
  config.transport.clear();
  config.transport_of.clear();
  std::string with_pluses = text;
  std::replace(with_pluses.begin(), with_pluses.end(), ',', '+');
  for (std::string_view part : split(with_pluses, '+')) {
    const std::size_t equals = part.find('=');
    const std::string name(part.substr(equals == std::string_view::npos ? 0 : equals + 1));
    if (name.empty())
      throw UsageError("--transport '" + text + "' has an empty part; write for example auto, socket, or nvlink+ddp=efa");
    const std::string strategy(part.substr(0, equals == std::string_view::npos ? 0 : equals));
    std::string& of_strategy = equals == std::string_view::npos ? config.transport : config.transport_of[strategy];
    if (!of_strategy.empty()) {
      throw UsageError("--transport '" + text + "' names two transports, " + of_strategy + " and " + name + ", for " +
                       (strategy.empty() ? "all strategies" : "strategy " + strategy) +
                       "; a run has one for each: compare and tune take lists on the command line");
    }
    of_strategy = name;
  }
  if (config.transport.empty()) config.transport = automatic_transport;
}

std::string transports_text(const RunConfig& config) {
  std::string text = config.transport;
  for (const auto& [strategy, transport] : config.transport_of) text += "+" + strategy + "=" + transport;
  return text;
}

std::vector<std::string> parse_observers(const std::string& text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const std::string_view name : split(text, ',')) {
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end())
      throw UsageError("--observe is '" + text + "'; write names with commas between them, each once");
    names.emplace_back(name);
  }
  return names;
}

void RunConfig::check() const {
  parse_datasets(dataset);
  if (model.empty()) throw UsageError("--model is missing: name a preset (see `consist plugins llama`) or a Hugging Face folder");
  for (const RunOption& option : run_option_table()) {
    const std::string name = option.spec.name;
    const bool follows = global_batch > 0 && ((name == "batch" && batch == 0) || (name == "accumulation" && accumulation == 0));
    const std::string value = text_in(*this, option);
    if (option.get != nullptr && !follows && !option.is_unset(value)) legal_value(option.spec, value, "--" + name);
  }
  if (checkpoint.empty() && (checkpoint_every > 0 || checkpoint_each_epoch || resume)) {
    throw UsageError(std::string(resume                 ? "--resume"
                                 : checkpoint_every > 0 ? "--checkpoint-every"
                                                        : "--checkpoint-each-epoch") +
                     " needs a folder: give --checkpoint FOLDER");
  }
}

std::string RunConfig::to_json() const {
  nlohmann::ordered_json json;
  for (const RunOption& option : run_option_table()) {
    if (option.get == nullptr || !option.archived) continue;
    std::string key = option.spec.name;
    std::replace(key.begin(), key.end(), '-', '_');
    json[key] = option.get(*this);
  }
  json["plugin_options"] = plugin_options;
  json["chosen_options"] = chosen_options;
  if (!chosen_transport.empty()) json["chosen_transport"] = chosen_transport;
  return json.dump(2);
}

}  // namespace consist
