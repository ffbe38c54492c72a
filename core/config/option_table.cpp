#include "core/config/option_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "consist/error.h"
#include "core/config/optimizer_rules.h"
#include "core/config/option_value.h"
#include "core/config/price.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;
using enum OptionKind;
using enum OptionGroup;
using enum OptionScope;

template <auto Member>
void set_member(RunConfig& config, const std::string& text) {
  auto& field = config.*Member;
  using Field = std::remove_reference_t<decltype(field)>;
  if constexpr (std::is_same_v<Field, std::string>) {
    field = text;
  } else if constexpr (std::is_same_v<Field, bool>) {
    field = text == "true";
  } else if constexpr (std::is_floating_point_v<Field>) {
    field = std::strtod(text.c_str(), nullptr);
  } else {
    field = static_cast<Field>(std::strtoll(text.c_str(), nullptr, 10));
  }
}

template <auto Member>
Json get_member(const RunConfig& config) {
  return config.*Member;
}

/// A row whose value two functions set and get.
template <auto Set, auto Get>
constexpr RunOption row_of(const OptionSpec& spec, const char* value, OptionGroup group, OptionScope scope,
                           Sweep sweep = Sweep::commas) {
  return {.spec = spec, .value = value, .group = group, .scope = scope, .sweep = sweep, .set = Set, .get = Get};
}

/// A row whose value is a member of RunConfig.
template <auto Member>
constexpr RunOption row(const OptionSpec& spec, const char* value, OptionGroup group, OptionScope scope,
                        Sweep sweep = Sweep::commas) {
  return row_of<set_member<Member>, get_member<Member>>(spec, value, group, scope, sweep);
}

/// A row whose default says that there is no such value.
constexpr RunOption optional(RunOption row) {
  row.unset_by_default = true;
  return row;
}

/// A row that an archive does not state: it is about the archive itself.
constexpr RunOption not_archived(RunOption row) {
  row.archived = false;
  return row;
}

/// A row that says where other values come from.
constexpr RunOption source(const OptionSpec& spec, const char* value, OptionScope scope = place, Sweep sweep = Sweep::none,
                           bool repeats = false) {
  return {.spec = spec, .value = value, .scope = scope, .sweep = sweep, .repeats = repeats, .archived = false};
}

using C = RunConfig;

void set_strategies(C& config, const std::string& text) {
  config.strategies = parse_strategies(text);
}
Json get_strategies(const C& config) {
  return text_of(config.strategies);
}
void set_transports(C& config, const std::string& text) {
  parse_transports(text, config);
}
Json get_transports(const C& config) {
  return transports_text(config);
}
void set_recompute(C& config, const std::string& text) {
  // Without recomputation the layers of what there was say nothing.
  config.recompute = parse_recompute(text, text == "none" ? "" : layers_text(config.recompute));
}
Json get_recompute(const C& config) {
  return what_text(config.recompute);
}
void set_recompute_layers(C& config, const std::string& text) {
  config.recompute = parse_recompute(what_text(config.recompute), text);
}
Json get_recompute_layers(const C& config) {
  return layers_text(config.recompute);
}
void set_offload(C& config, const std::string& text) {
  config.offload = parse_offload(text);
}
Json get_offload(const C& config) {
  return text_of(config.offload);
}
void set_freeze(C& config, const std::string& text) {
  config.freeze = parse_freeze(text, patterns_text(config.freeze.trained));
}
Json get_freeze(const C& config) {
  return patterns_text(config.freeze.frozen);
}
void set_train_only(C& config, const std::string& text) {
  config.freeze = parse_freeze(patterns_text(config.freeze.frozen), text);
}
Json get_train_only(const C& config) {
  return patterns_text(config.freeze.trained);
}
void set_frozen_weights(C& config, const std::string& text) {
  config.frozen_weights = parse_weight_blocks(text, "--frozen-weights");
}
Json get_frozen_weights(const C& config) {
  return text_of(config.frozen_weights);
}
void set_optimizer_rules(C& config, const std::string& text) {
  config.optimizer.rules = parse_optimizer_rules(text);
}
Json get_optimizer_rules(const C& config) {
  return text_of(config.optimizer.rules);
}
void set_observers(C& config, const std::string& text) {
  config.observers = parse_observers(text);
}
Json get_observers(const C& config) {
  return patterns_text(config.observers);
}
void set_price(C& config, const std::string& text) {
  Price{text};  // which refuses what is none
  config.price = text;
}
Json get_price(const C& config) {
  return config.price;
}
void set_weight_decay(C& config, const std::string& text) {
  config.optimizer.weight_decay = std::strtod(text.c_str(), nullptr);
}
Json get_weight_decay(const C& config) {
  return config.optimizer.weight_decay;
}
void set_clip(C& config, const std::string& text) {
  config.optimizer.max_norm = std::strtod(text.c_str(), nullptr);
}
Json get_clip(const C& config) {
  return config.optimizer.max_norm;
}

// Sizes are bounded where their products would leave 64 bits long before any machine could hold them.
constexpr RunOption table[] = {
    row<&C::model>({"model", text, "", "preset, model folder, hf://ORG/NAME"}, "NAME|FOLDER", configuration, program),
    row<&C::adapter>({"adapter", text, "none", "lora: trained instead of the model"}, "A", configuration, program),
    row<&C::loss>({"loss", text, "next-token", "the plugin of the loss"}, "L", configuration, program),
    source({"config", text, "", "options of TOML, JSON or an archive's run"}, "FILE"),
    source({"print-config", flag, "false", "write such a file instead of running"}, "", display),
    row_of<set_strategies, get_strategies>({"strategy", text, "ddp", "one, a=2+b, or on two axes a=2x4"}, "S", configuration,
                                           program),
    row_of<set_transports, get_transports>({"transport", text, "auto", "auto: the fastest; T1, or T1+a=T2"}, "T", configuration,
                                           program),
    row<&C::precision>({"precision", text, "fp32", "dtypes of all values"}, "P", configuration, program),
    row<&C::device>({"device", text, "auto", "auto: the fastest there is"}, "D", configuration, program),
    row<&C::machine>({"machine", text, "", "machine to plan for; else the device's own"}, "M", configuration, program,
                     Sweep::pluses),
    row<&C::dataset>({"dataset", text, "text", "text, jsonl, ..., or a=0.7+b=0.3"}, "D", configuration, data),
    row<&C::ranks>({"ranks", integer, "1", "processes to start on this machine", "1..65536"}, "N", configuration, program),
    source({"json", flag, "false", "events, results as JSON (docs/json.md)"}, "", display),
    source({"plugin", text, "", "look for plugins here, too; repeatable", "", "", "", OptionRole::code}, "PATH", place,
           Sweep::none, true),
    source({"from", text, "", "a file of another trainer (docs/readers.md)"}, "FILE", place, Sweep::commas),
    source({"from-set", text, "", "replaces a value of that file"}, "KEY=VALUE", place, Sweep::keyed, true),
    source({"from-notes", flag, "false", "say what became of each key of that file"}, "", display),
    source({"deepspeed-config", text, "", "the same, DeepSpeed's JSON only"}, "FILE", place, Sweep::commas),
    source({"deepspeed-set", text, "", "replaces a value; repeatable"}, "KEY=VALUE", place, Sweep::keyed, true),

    row<&C::steps>({"steps", integer, "100", "optimizer steps", "1.."}, "N", training, data),
    optional(row<&C::epochs>({"epochs", integer, "0", "passes through the data, instead of --steps", "1..1000000"}, "N", training,
                             data)),
    row<&C::global_batch>({"global-batch", integer, "0", "per step; sets batch or accumulation", "0..1000000000000"}, "N",
                          training, program),
    row<&C::sequence>({"sequence", integer, "512", "tokens per sequence", "1..1000000000"}, "N", training, program),
    row<&C::batch>({"batch", integer, "4", "sequences per rank and micro-batch", "1..1000000000"}, "N", training, program),
    row<&C::accumulation>({"accumulation", integer, "1", "micro-batches per step", "1..65536"}, "N", training, program),
    row<&C::seed>({"seed", integer, "0", "of initial weights and data order", "0.."}, "N", training, data),
    row<&C::from_scratch>({"from-scratch", flag, "false", "do not load a folder's weights"}, "", training, data),
    row<&C::pack>({"pack", flag, "on", "one matmul for q, k, v; for gate, up"}, "on|off", training, program),
    row_of<set_recompute, get_recompute>({"recompute", text, "none", "in backward: full, or OP,OP..."}, "WHAT", training, program,
                                         Sweep::pluses),
    row_of<set_recompute_layers, get_recompute_layers>(
        {"recompute-layers", text, "", "only in these layers, from 0", "", "recompute"}, "A-B", training, program),
    row_of<set_offload, get_offload>({"offload-activations", text, "none", "on the host: all, 0-15"}, "L", training, program),
    row<&C::expert_load>({"expert-load", text, "natural", "shares: balanced, zipf:S, FILE"}, "L", training, program),
    row_of<set_freeze, get_freeze>({"freeze", text, "", "not trained, by name: *norm*,lm_head*"}, "PATTERNS", training, program,
                                   Sweep::pluses),
    row_of<set_train_only, get_train_only>({"train-only", text, "", "only these parameters are trained"}, "PATTERNS", training,
                                           program, Sweep::pluses),
    row_of<set_frozen_weights, get_frozen_weights>({"frozen-weights", text, "none", "in blocks of codes: nf4, e4m3"}, "F",
                                                   training, program),
    row<&C::optimizer_plugin>({"optimizer", text, "adamw", "sgd, lion, muon, ..."}, "O", training, program),
    row_of<set_optimizer_rules, get_optimizer_rules>({"optimizer-rules", text, "", "by name: lm_head*:lr-factor=0.1"}, "RULES",
                                                     training, program, Sweep::none),
    row<&C::learning_rate>({"learning-rate", real, "3e-4", "peak of the schedule", "0..1e6"}, "X", training, data),
    row<&C::schedule>({"schedule", text, "constant", "linear, cosine, wsd, ..."}, "S", training, program),
    row_of<set_weight_decay, get_weight_decay>({"weight-decay", real, "0.1", "not on norms and biases", "0..1e3"}, "X", training,
                                               program),
    row_of<set_clip, get_clip>({"clip", real, "1", "largest global gradient norm; 0: no limit", "0..1e9"}, "X", training,
                               program),

    row_of<set_observers, get_observers>(
        {"observe", text, "", "plugins that are told of each step", "", "", "", OptionRole::results}, "NAME,...", results,
        display, Sweep::pluses),
    not_archived(row<&C::archive>({"archive", text, "", "HDF5 archive of the run", "", "", "", OptionRole::results}, "FILE",
                                  results, place, Sweep::none)),
    not_archived(row<&C::overwrite>({"overwrite", flag, "false", "replace files of results", "", "", "", OptionRole::results}, "",
                                    results, place)),
    row<&C::checkpoint>({"checkpoint", text, "", "where checkpoints go", "", "", "", OptionRole::results}, "FOLDER", results,
                        place, Sweep::none),
    row<&C::checkpoint_every>({"checkpoint-every", integer, "0", "steps; 0: at the end", "0..", "", "", OptionRole::results}, "N",
                              results, place),
    row<&C::checkpoint_each_epoch>(
        {"checkpoint-each-epoch", flag, "false", "after each pass through the data", "", "", "", OptionRole::results}, "",
        results, place),
    row<&C::checkpoint_keep>({"checkpoint-keep", integer, "2", "newest checkpoints to keep", "1..1000000", "checkpoint"}, "N",
                             results, limit),
    row<&C::resume>({"resume", flag, "false", "continue from the newest checkpoint", "", "", "", OptionRole::results}, "",
                    results, place),
    row<&C::export_folder>({"export", text, "", "the model in Hugging Face's format", "", "", "", OptionRole::results}, "FOLDER",
                           results, place, Sweep::none),
    row<&C::export_dtype>({"export-dtype", OptionKind::choice, "auto", "as the run began; bfloat16, ...",
                           "auto|float32|bfloat16|float16", "export", "", OptionRole::results},
                          "D", results, place, Sweep::none),
    row<&C::export_merged>(
        {"export-merged", flag, "false", "the model with its adapter added", "", "export", "", OptionRole::results}, "", results,
        place),
    row<&C::evaluate_every>({"evaluate-every", integer, "0", "steps; 0: never", "0.."}, "N", results, data),
    row<&C::evaluate_sequences>({"evaluate-sequences", integer, "64", "per evaluation, at most", "0..", "evaluate-every"}, "N",
                                results, data),
    row<&C::sample_every>({"sample-every", integer, "0", "steps between samples of text; 0: none", "0.."}, "N", results, display),
    row<&C::sample_prompt>({"sample-prompt", text, "", "what samples go on from", "", "sample-every"}, "TEXT", results, display,
                           Sweep::none),
    row<&C::sample_tokens>({"sample-tokens", integer, "64", "tokens of a sample, at most", "1..1000000", "sample-every"}, "N",
                           results, display),
    row<&C::memory_limit>({"memory-limit", bytes, "0", "device, per rank; 0: all of it"}, "BYTES", results, limit),
    row<&C::host_memory_limit>({"host-memory-limit", bytes, "0", "pinned, per host; 0: all"}, "BYTES", results, limit),
    row<&C::timeout_seconds>({"timeout", integer, "60", "longest wait for another rank", "1..1000000000"}, "SECONDS", results,
                             limit),
    row_of<set_price, get_price>({"price", text, "", "per GPU and hour, or by machine: h200=2.5"}, "P", results, display,
                                 Sweep::none),
    row<&C::profile>({"profile", flag, "false", "time every instruction"}, "", results, display),
    row<&C::trace>({"trace", text, "", "timeline of the last step, for Perfetto", "", "", "", OptionRole::results}, "FILE",
                   results, place, Sweep::none),
};

/// "  --steps N [100]  optimizer steps"
std::string entry_of(const RunOption& option) {
  const std::string shown = option.spec.fallback;
  const bool says_default = !option.is_switch() && !shown.empty() && shown != "0";  // what an absent one means is said in words
  return std::string("  --") + option.spec.name + (option.is_switch() ? "" : std::string(" ") + option.value) +
         (says_default ? " [" + shown + "]" : "") + "  " + option.spec.help;
}

}  // namespace

const char* title_of(OptionGroup group) noexcept {
  constexpr const char* titles[] = {"Configuration", "Training", "Results and limits"};
  return titles[static_cast<std::size_t>(group)];
}

std::span<const RunOption> run_option_table() {
  return table;
}

const RunOption* find_run_option(std::string_view name) noexcept {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](const RunOption& option) { return option.spec.name == name; });
  return found == std::end(table) ? nullptr : found;
}

bool is_place_of_results(const RunOption& option) noexcept {
  return option.scope == OptionScope::place && option.spec.kind == OptionKind::text && option.archived;
}

bool is_beside_training(const RunOption& option) noexcept {
  return option.scope != OptionScope::program && option.scope != OptionScope::data;
}

std::string text_in(const RunConfig& config, const RunOption& option) {
  if (option.get == nullptr) return "";
  const Json value = option.get(config);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void set_option(RunConfig& config, const RunOption& option, std::string_view value, const std::string& said) {
  if (option.set == nullptr) return;
  const bool of_command_line = said == std::string("--") + option.spec.name;
  const std::string legal =
      !of_command_line && option.is_unset(value) ? std::string(value) : legal_value(option.spec, value, said);
  try {
    option.set(config, legal);
  } catch (const UsageError& error) {  // which names the option as the command line does
    if (of_command_line) throw;
    throw UsageError(said + ": " + error.what());
  }
}

std::string help_text(std::span<const RunOption> options, std::size_t columns) {
  std::string text, pending;
  const auto flush = [&] {
    if (!pending.empty()) text += pending + "\n";
    pending.clear();
  };
  const char* title = nullptr;
  for (const RunOption& option : options) {
    if (title != title_of(option.group)) {
      flush();
      title = title_of(option.group);
      text += std::string(title) + "\n";
    }
    const std::string entry = entry_of(option);
    const bool beside = !pending.empty() && pending.size() < columns / 2 && entry.size() <= columns - columns / 2;
    if (beside) {
      pending.resize(columns / 2, ' ');
      pending += entry;
      flush();
    } else {
      flush();
      pending = entry;
    }
  }
  flush();
  return text;
}

}  // namespace consist
