#include "core/config/run_config.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "consist/error.h"
#include "core/files/split.h"

namespace consist {
namespace {

void at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw UsageError(std::string(option) + " is " + std::to_string(value) + "; it must be at least " + std::to_string(least));
}

/// Above these, products of sizes would leave 64 bits long before any machine could hold them.
void at_most(const char* option, std::int64_t value, std::int64_t most) {
  if (value > most)
    throw UsageError(std::string(option) + " is " + std::to_string(value) + "; it must be at most " + std::to_string(most));
}

constexpr std::int64_t most_ranks = 65'536;

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

void within(const char* option, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    throw UsageError(std::string(option) + " is " + short_text(value) + "; it must lie between " + short_text(least) + " and " +
                     short_text(most));
  }
}

/// "8", "2x4" or "*x4", in which '*', once, is 0.
std::vector<int> parse_sizes(const std::string& strategies, std::string_view text) {
  std::vector<int> sizes;
  std::int64_t product = 1;
  for (const std::string_view number : split(text, 'x')) {
    int& size = sizes.emplace_back(0);
    if (number == "*" && text.size() > 1 && std::count(sizes.begin(), sizes.end(), 0) == 1) continue;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (error != std::errc() || end != number.data() + number.size() || size < 1) {
      throw UsageError("--strategy " + strategies + ": '" + std::string(number) +
                       "' is no number of ranks; write for example ddp=2, or zero2=2x4 for a strategy on two mesh axes (*x4: the "
                       "first one has the ranks that are left)");
    }
    product *= size;
    at_most("--strategy, ranks of one strategy", product, most_ranks);
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
  config.transport_of.clear();
  for (std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name(part.substr(equals == std::string_view::npos ? 0 : equals + 1));
    if (name.empty())
      throw UsageError("--transport '" + text + "' has an empty part; write for example socket, or tp-sp=nvlink,ddp=socket");
    if (equals == std::string_view::npos) {
      config.transport = name;
    } else {
      config.transport_of[std::string(part.substr(0, equals))] = name;
    }
  }
}

std::string transports_text(const RunConfig& config) {
  std::string text = config.transport;
  for (const auto& [strategy, transport] : config.transport_of) text += "," + strategy + "=" + transport;
  return text;
}

void RunConfig::check() const {
  if (model.empty()) throw UsageError("--model is missing: name a preset (see `consist plugins llama`) or a Hugging Face folder");
  at_least("--ranks", ranks, 1);
  at_least("--global-batch", global_batch, 0);
  at_least("--batch", batch, global_batch > 0 ? 0 : 1);
  at_least("--sequence", sequence, 1);
  at_least("--accumulation", accumulation, global_batch > 0 ? 0 : 1);
  at_most("--ranks", ranks, most_ranks);
  at_most("--global-batch", global_batch, 1'000'000'000'000);
  at_most("--batch", batch, 1'000'000'000);
  at_most("--sequence", sequence, 1'000'000'000);
  at_most("--accumulation", accumulation, 65'536);
  at_least("--steps", steps, 1);
  at_least("--evaluate-every", evaluate_every, 0);
  at_least("--evaluate-sequences", evaluate_sequences, 0);
  at_least("--checkpoint-every", checkpoint_every, 0);
  at_least("--checkpoint-keep", checkpoint_keep, 1);
  at_least("--memory-limit", memory_limit, 0);
  at_least("--timeout", timeout_seconds, 1);
  within("--learning-rate", learning_rate, 0, 1e6);
  within("--weight-decay", optimizer.weight_decay, 0, 1e3);
  within("--clip", optimizer.max_norm, 0, 1e9);
  at_least("--host-memory-limit", host_memory_limit, 0);
  if (checkpoint.empty() && (checkpoint_every > 0 || checkpoint_each_epoch || resume)) {
    throw UsageError(std::string(resume                 ? "--resume"
                                 : checkpoint_every > 0 ? "--checkpoint-every"
                                                        : "--checkpoint-each-epoch") +
                     " needs a folder: give --checkpoint FOLDER");
  }
  for (const auto& [strategy, transport] : transport_of) {
    bool known = false;
    for (const StrategyChoice& s : strategies) known |= s.name == strategy;
    if (!known) {
      throw UsageError("--transport names the strategy '" + strategy + "', which is not in --strategy " + text_of(strategies));
    }
  }
}

std::string RunConfig::to_json() const {
  nlohmann::ordered_json json{
      {"model", model},
      {"strategy", text_of(strategies)},
      {"transport", transports_text(*this)},
      {"precision", precision},
      {"device", device},
      {"machine", machine},
      {"dataset", dataset},
      {"ranks", ranks},
      {"batch", batch},
      {"sequence", sequence},
      {"accumulation", accumulation},
      {"global_batch", global_batch},
      {"recompute", what_text(recompute)},
      {"recompute_layers", layers_text(recompute)},
      {"pack", pack},
      {"freeze", patterns_text(freeze.frozen)},
      {"train_only", patterns_text(freeze.trained)},
      {"steps", steps},
      {"seed", seed},
      {"from_scratch", from_scratch},
      {"learning_rate", learning_rate},
      {"schedule", schedule},
      {"optimizer", optimizer_plugin},
      {"weight_decay", optimizer.weight_decay},
      {"clip", optimizer.max_norm},
      {"evaluate_every", evaluate_every},
      {"evaluate_sequences", evaluate_sequences},
      {"checkpoint", checkpoint},
      {"checkpoint_every", checkpoint_every},
      {"checkpoint_each_epoch", checkpoint_each_epoch},
      {"checkpoint_keep", checkpoint_keep},
      {"resume", resume},
      {"export", export_folder},
      {"memory_limit", memory_limit},
      {"host_memory_limit", host_memory_limit},
      {"timeout", timeout_seconds},
      {"observe", patterns_text(observers)},
      {"profile", profile},
      {"trace", trace},
      {"plugin_options", plugin_options},
      {"chosen_options", chosen_options},
  };
  return json.dump(2);
}

}  // namespace consist
