#include "launch/predict/alternatives.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "consist/dtype.h"
#include "core/compile/reduced_step.h"
#include "core/config/option_value.h"
#include "core/config/run_facts.h"
#include "core/plan/run_defaults.h"

namespace consist::launch {
namespace {

/// They train the same; a strategy from outside of this tree need not.
constexpr std::array data_strategies{"ddp", "zero2", "zero3-offload"};

bool is_data_strategy(const std::string& name) {
  return std::find(data_strategies.begin(), data_strategies.end(), name) != data_strategies.end();
}

/// Collects the alternatives to one configuration.
class Collector {
 public:
  Collector(const Plan& plan, PluginHost& host) : plan_(plan), config_(plan.config()), host_(host) {}

  std::vector<Alternative> all() {
    precisions();
    recomputation();
    offloading();
    micro_batches();  // fewer ones compile sooner, too
    pairs_of_options();
    tunable_options(false);
    strategies();
    global_batches();
    tunable_options(true);
    less_memory();
    return std::move(all_);
  }

 private:
  void add(std::string subject, Choices choices, Aim aim, std::string caution = {}) {
    all_.push_back({std::move(subject), std::move(choices), aim, std::move(caution)});
  }

  std::vector<OptionSpec> table_of(const char* kind, const std::string& plugin) {
    return host_.has(kind, plugin) ? host_.option_table(kind, plugin) : std::vector<OptionSpec>{};
  }
  /// The option's value in this configuration; empty if the plugin has no such option.
  std::string value_of(const char* kind, const std::string& plugin, const std::string& option) {
    const auto given = config_.plugin_options.find(plugin);
    return consist::value_of(table_of(kind, plugin),
                             given == config_.plugin_options.end() ? std::map<std::string, std::string>{} : given->second,
                             option, facts_of(plan_.parts()));
  }
  /// Options that are given and that the other precision has under the same name go along.
  void precisions() {
    for (const std::string& name : host_.names("precision")) {
      if (name == config_.precision || name == "fp32") continue;
      const DeviceRates& device = plan_.target().machine->device;
      const bool faster_products = device.peak_fp8.value > device.peak_bf16.value;
      // fp8 is bf16 but for its linears: from fp32, bf16 is the first step.
      if (name == "fp8" && (!faster_products || config_.precision == "fp32")) continue;
      Choices choices{{"precision", name}};
      for (const OptionSpec& spec : table_of("precision", name)) {
        const auto given = config_.plugin_options.find(config_.precision);
        if (given == config_.plugin_options.end() || !given->second.contains(spec.name)) continue;
        choices.push_back({name + "." + spec.name, given->second.at(spec.name)});
      }
      add("precision", choices, Aim::both, "changes the numerics: " + name + " rounds more coarsely than " + config_.precision);
    }
  }

  /// Another way to divide the data, or all ranks in one way.
  void strategies() {
    if (config_.ranks < 2) return;
    std::vector<std::string> tried{consist::text_of(config_.strategies)};
    const auto try_one = [&](const std::string& text, Choices more, Aim aim) {
      if (more.empty() && std::find(tried.begin(), tried.end(), text) != tried.end()) return;
      if (more.empty()) tried.push_back(text);
      more.insert(more.begin(), {"strategy", text});
      add("strategy", more, aim);
      if (!config_.recompute.any() && aim != Aim::speed) {
        more.push_back({"recompute", "full"});
        add("strategy", std::move(more), Aim::memory);
      }
    };
    for (std::size_t n = 0; n < config_.strategies.size(); ++n) {
      if (!is_data_strategy(config_.strategies[n].name)) continue;
      if (config_.strategies[n].name == "ddp" && (is_given("zero2") || is_given("zero3-offload"))) continue;  // around the other
      for (const char* other : data_strategies) {
        if (is_given(other)) continue;
        RunConfig config = config_;
        config.strategies[n].name = other;
        try_one(consist::text_of(config.strategies), transport_choices(config_.strategies[n].name, other), Aim::both);
      }
    }
    if (!config_.transport_of.empty()) return;  // transports are named for the strategies that there are
    within_and_across_nodes(try_one);
    const std::string ranks = std::to_string(config_.ranks);
    for (const std::string& text :
         {std::string("ddp"), std::string("zero2"), std::string("zero3-offload"), "tp-sp=" + ranks, "pipeline=" + ranks})
      try_one(text, {}, Aim::both);
    for (const char* option : {"offload-optimizer.device", "offload-param.device"}) {
      if (value_of("strategy", "zero3-offload", option) == "none")
        try_one("zero3-offload", {{std::string("zero3-offload.") + option, "cpu"}}, Aim::memory);
    }
  }

  bool is_given(const std::string& strategy) const {
    return std::ranges::any_of(config_.strategies, [&](const StrategyChoice& choice) { return choice.name == strategy; });
  }

  /// Parameters divided within a node and replicated between nodes, where one strategy divides the data over several nodes.
  template <typename TryOne>
  void within_and_across_nodes(const TryOne& try_one) {
    const int node = plan_.target().machine->ranks_per_node;
    int used = 1, data = 0;  // ranks of a node that other strategies take; strategies that divide the data
    StrategyUse over_data;
    for (const StrategyUse& use : plan_.layout().active) {
      const AxisRequest request = use.strategy->axis();
      if (is_data_strategy(use.name)) {
        ++data;
        over_data = use;
      } else if (request.distance < 1) {
        used *= use.size;
      }
    }
    const int within = node % used == 0 ? node / used : 1;
    if (data != 1 || within == 1 || over_data.size <= within || over_data.size % within != 0) return;
    for (const char* inner : {"zero2", "zero3-offload"}) {
      std::vector<StrategyChoice> strategies;
      for (const StrategyChoice& choice : config_.strategies) {
        if (choice.name != over_data.name) strategies.push_back(choice);
      }
      strategies.push_back({inner, within});
      strategies.push_back({"ddp", over_data.size / within});
      try_one(consist::text_of(strategies), {}, Aim::both);
    }
  }

  /// --transport for the strategy's new name; nothing where it names no strategies.
  Choices transport_choices(const std::string& old_name, const std::string& new_name) const {
    const auto found = config_.transport_of.find(old_name);
    if (found == config_.transport_of.end() || old_name == new_name) return {};
    RunConfig config = config_;
    config.transport_of.erase(old_name);
    config.transport_of[new_name] = found->second;
    return {{"transport", transports_text(config)}};
  }

  /// Options that only change anything together, or that nobody searches.
  void pairs_of_options() {
    for (const StrategyUse& use : plan_.layout().active) {
      const std::string& name = use.name;
      const char* const offload[] = {"offload-optimizer.device", "offload-param.device"};
      if (value_of("strategy", name, offload[0]) == "cpu" && value_of("strategy", name, offload[1]) == "cpu")
        add("offload", {{name + "." + offload[0], "none"}, {name + "." + offload[1], "none"}}, Aim::speed);
      if (!value_of("strategy", name, "max-live-parameters").empty())
        add("gathers", {{name + ".max-live-parameters", "1e12"}, {name + ".max-reuse-distance", "1e12"}}, Aim::speed);
      if (value_of("strategy", name, "sequence-parallel") == "false")
        add("sequence-parallel", {{name + ".sequence-parallel", "true"}}, Aim::both);
    }
  }

  /// The values that parts of the configuration call tunable: choices and flags, or numbers, which are worth less.
  void tunable_options(bool numbers) {
    for (const StrategyUse& use : plan_.layout().active) tunable_options("strategy", use.name, numbers);
    tunable_options("precision", config_.precision, numbers);
    tunable_options("optimizer", config_.optimizer_plugin, numbers);
  }
  void tunable_options(const char* kind, const std::string& owner, bool numbers) {
    for (const OptionSpec& spec : table_of(kind, owner)) {
      if (*spec.tunable == '\0') continue;
      if ((spec.kind != OptionKind::choice && spec.kind != OptionKind::flag) != numbers) continue;
      const OptionNeed need = need_of(spec);
      if (!need.is_met_by(value_of(kind, owner, need.option))) continue;
      const std::string said = "--" + owner + "." + spec.name;
      const std::string now = value_of(kind, owner, spec.name);
      for (const std::string& value : tunable_values(spec, said, facts_of(plan_.parts()))) {
        if (legal_value(spec, value, said) == now) continue;
        // A dtype: what is kept or sent is rounded to it.
        const std::string caution = dtype_of(value) ? "changes the numerics: " + value + " instead of " + now : std::string();
        add(owner + "." + spec.name, {{owner + "." + spec.name, value}}, Aim::both, caution);
      }
    }
  }
  void recomputation() {
    const RecomputeRequest& now = config_.recompute;
    if (now.any()) add("recompute", {{"recompute", "none"}}, Aim::speed);
    if (now.full) {
      Choices fewer{{"recompute", "swiglu,rms_norm"}};  // in the same layers: a file's go where the command line has --recompute
      if (const std::string layers = layers_text(now); !layers.empty()) fewer.push_back({"recompute-layers", layers});
      add("recompute", fewer, Aim::speed);
    }
    if (now.any()) return;
    add("recompute", {{"recompute", "swiglu,rms_norm"}}, Aim::memory);
    add("recompute", {{"recompute", "full"}}, Aim::memory);
  }

  /// Activations on the host instead of the device, or instead of made again.
  void offloading() {
    const Choice all{"offload-activations", "all"}, none{"offload-activations", "none"};
    if (config_.offload.any()) {
      add("offload-activations", {none}, Aim::speed);
      if (!config_.recompute.any()) add("offload-activations", {none, {"recompute", "full"}}, Aim::both);
      return;
    }
    add("offload-activations", {all}, Aim::memory);
    if (config_.recompute.any())
      add("offload-activations", {all, {"recompute", "none"}}, Aim::both);
    else
      add("offload-activations", {all, {"recompute", "full"}}, Aim::memory);
  }

  /// The same sequences a step in fewer and larger micro-batches, or in more and smaller ones.
  Choices micro_batch(std::int64_t batch) const {
    return {{"batch", std::to_string(batch)}, {"accumulation", std::to_string(config_.batch * config_.accumulation / batch)}};
  }

  void micro_batches() {
    for (std::int64_t times = 2; times <= config_.accumulation; ++times) {
      if (config_.accumulation % times == 0) add("micro-batch", micro_batch(config_.batch * times), Aim::speed);
    }
    const bool stages = std::any_of(plan_.layout().active.begin(), plan_.layout().active.end(),
                                    [](const StrategyUse& use) { return makes_stages(use.strategy->axis()); });
    for (std::int64_t divisor = 2; divisor <= config_.batch && config_.batch % divisor == 0; divisor *= 2) {
      const Choices smaller = micro_batch(config_.batch / divisor);
      add("micro-batch", smaller, stages ? Aim::both : Aim::memory);  // small ones fill the stages sooner
      if (config_.recompute.any()) continue;
      add("micro-batch", smaller, Aim::memory);
      all_.back().choices.push_back({"recompute", "full"});
    }
  }

  /// More sequences a step: larger products, and communication for more of them.
  void global_batches() {
    for (const std::int64_t times : {4, 2, 8, 16}) {
      const std::int64_t sequences = config_.global_batch * times;
      add("global-batch",
          {{"global-batch", std::to_string(sequences)},
           {"batch", std::to_string(config_.batch * times)},
           {"accumulation", std::to_string(config_.accumulation)}},
          Aim::speed,
          "changes the training: a step is of " + std::to_string(sequences) + " sequences, not " +
              std::to_string(config_.global_batch));
    }
  }

  /// Adds the last resorts, for where no change is enough by itself.
  void less_memory() {
    if (!config_.recompute.any() && value_of("precision", config_.precision, "states") == "f32")
      add("states", {{config_.precision + ".states", "bf16"}, {"recompute", "full"}}, Aim::memory,
          "changes the numerics: bf16 instead of f32");
    if (config_.ranks < 2 || config_.recompute.any() || !config_.transport_of.empty()) return;
    add("strategy",
        {{"strategy", "zero3-offload"},
         {"zero3-offload.offload-optimizer.device", "cpu"},
         {"zero3-offload.offload-param.device", "cpu"},
         {"recompute", "full"}},
        Aim::memory);
  }

  const Plan& plan_;
  const RunConfig& config_;
  PluginHost& host_;
  std::vector<Alternative> all_;
};

/// Owners whose options have a place in `config` and none in `other`.
std::vector<std::string> owners_left_out(const RunConfig& config, const RunConfig& other, PluginHost& host) {
  const std::vector<std::string> before = stray_owners(config, host);
  std::vector<std::string> owners;
  for (const std::string& owner : stray_owners(other, host)) {
    if (std::find(before.begin(), before.end(), owner) == before.end()) owners.push_back(owner);
  }
  return owners;
}

}  // namespace

std::vector<Alternative> alternatives_of(const Plan& plan, PluginHost& host) {
  return Collector(plan, host).all();
}

RunConfig changed(const RunConfig& config, const Choices& choices, PluginHost& host) {
  RunConfig other = config;
  apply(choices, other);
  if (std::none_of(choices.begin(), choices.end(), [](const Choice& c) { return c.option == "batch"; })) other.batch = 0;
  for (const std::string& owner : owners_left_out(config, other, host)) other.plugin_options.erase(owner);
  return other;
}

std::string text_of(const Choices& choices, const RunConfig& config, PluginHost& host) {
  std::string text = text_of(choices);
  RunConfig other = config;
  apply(choices, other);
  const char* separator = " without --";
  for (const std::string& owner : owners_left_out(config, other, host)) {
    text += separator + owner + ".*";
    separator = ", --";
  }
  return text;
}

}  // namespace consist::launch
