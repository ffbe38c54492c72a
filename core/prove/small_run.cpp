#include "core/prove/small_run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "consist/error.h"
#include "consist/options.h"
#include "core/plan/found_model.h"

namespace consist::prove {
namespace {

using Json = nlohmann::ordered_json;

/// A choice among models that a run's options may refuse.
struct Choice {
  std::int64_t layers_per_stage, sequence_units;
  bool hidden_of_heads;  ///< hidden size is heads times their size, as some families need
};

/// The smallest number of at least `least` that leaves the remainder of `full` by `unit`; `full` itself if that is smaller.
std::int64_t like(std::int64_t full, std::int64_t unit, std::int64_t least) {
  std::int64_t n = full % unit;
  while (n < least) n += unit;
  return std::min(n, full);
}

class Shrinking {
 public:
  explicit Shrinking(const Plan& plan) : plan_(plan), config_(Json::parse(plan.parts().architecture->config_json())) {
    const Layout& layout = plan.layout();
    const Program program = plan.step(0);
    for (int axis = 0; axis < layout.mesh.axes(); ++axis) {
      const std::int64_t size = layout.mesh.axis(axis).size;
      if (axis == program.stage_axis) {
        stages_ = size;
        continue;
      }
      unit_ = std::lcm(unit_, size);
      of_experts_ *= size;
      if (!layout.batch_axes.contains(axis)) of_sequence_ *= size;
    }
    if (unit_ > 64) unit_ = of_sequence_;
    if (of_experts_ > 64) of_experts_ = unit_;
  }

  SmallRun make(const Choice& choice) {
    RunConfig run = plan_.config();
    shrink_batch(run, choice);
    const Json model = shrink_model(run, choice);
    const std::int64_t parameters = plan_.parts().architecture->sizes().parameters;
    if (has("hidden_size")) run.model = model.dump();  // else the model has sizes of its own, and stays
    refuse_large(run);
    scale_layers(run, model.value("num_hidden_layers", std::int64_t{0}));
    use_known_values(run);
    run.evaluate_every = 1;
    run.checkpoint.clear();
    run.archive.clear();
    run.export_folder.clear();
    run.resume = false;
    run.export_merged = false;
    run.frozen_like_trained = true;
    run.frozen_weights.length = 1;                                                    // rows are short
    if (run.adapter != no_adapter) run.plugin_options[run.adapter].erase("weights");  // of the whole model
    run.notes.clear();
    Target target = plan_.target();
    target.device = nullptr;
    const std::int64_t small = model_sizes(run, plan_.host()).parameters;
    std::vector<std::string> notes = scale_options(run, static_cast<double>(small) / static_cast<double>(parameters));
    if (plan_.parts().loss && !plan_.parts().loss->frozen().empty())
      notes.push_back("frozen models of the loss are of the small model's architecture");
    return {plan_run(std::move(run), plan_.host(), std::move(target)), sizes_text(model), std::move(notes)};
  }

 private:
  void refuse_large(const RunConfig& run) const {
    const std::int64_t parameters = model_sizes(run, plan_.host()).parameters;
    if (parameters <= most_parameters) return;
    throw UsageError("the model has " + std::to_string(parameters) +
                     " parameters and its config.json no sizes to make it small by (hidden_size, ...); give a preset or a "
                     "config.json of the same family with at most " +
                     std::to_string(most_parameters));
  }

  void shrink_batch(RunConfig& run, const Choice& choice) const {
    const std::int64_t m = run.accumulation;
    std::int64_t few = std::min<std::int64_t>(m, 3);
    if (stages_ > 1) few = m <= 2 * stages_ ? m : 2 * stages_ + m % stages_;
    run.accumulation = static_cast<int>(few);
    run.batch = std::min<std::int64_t>(run.batch, 2);
    run.global_batch = 0;
    const std::int64_t unit = 2 * of_sequence_;
    run.sequence = like(run.sequence, unit, std::max<std::int64_t>(unit * choice.sequence_units, 8));
  }

  bool has(const char* field) const { return config_.contains(field) && config_[field].is_number_integer(); }
  std::int64_t of(const char* field) const { return config_[field].get<std::int64_t>(); }
  void shrink(Json& model, const char* field, std::int64_t least, std::int64_t unit) const {
    if (has(field) && of(field) > 0) model[field] = like(of(field), unit, least);
  }
  void shrink(Json& model, const char* field, std::int64_t least) const { shrink(model, field, least, unit_); }

  /// Fields as Hugging Face names them; others stay.
  Json shrink_model(const RunConfig& run, const Choice& choice) const {
    Json model = config_;
    shrink_heads(model);
    shrink(model, "intermediate_size", std::max<std::int64_t>(12, unit_));
    shrink(model, "moe_intermediate_size", std::max<std::int64_t>(8, unit_));
    shrink(model, "vocab_size", std::max<std::int64_t>(32, 2 * unit_));
    const std::int64_t choices = has("num_experts_per_tok") ? of("num_experts_per_tok") : 0;
    for (const char* experts : {"num_experts", "num_local_experts"})
      shrink(model, experts, std::max<std::int64_t>(4, choices + 1), of_experts_);
    if (has("num_attention_heads") && has("hidden_size")) {
      const std::int64_t of_heads = model["num_attention_heads"].get<std::int64_t>() * small_head;
      model["hidden_size"] = choice.hidden_of_heads ? of_heads : like(of("hidden_size"), unit_, 16);
    }
    if (has("num_hidden_layers")) shrink_layers(model, choice);
    if (has("sliding_window"))
      model["sliding_window"] =
          of("sliding_window") < plan_.config().sequence ? std::max<std::int64_t>(1, run.sequence / 2 - 1) : run.sequence;
    for (const char* token : {"bos_token_id", "eos_token_id"}) model.erase(token);
    if (has("pad_token_id") && of("pad_token_id") >= model.value("vocab_size", std::int64_t{0}))
      model["pad_token_id"] = model["vocab_size"].get<std::int64_t>() - 1;
    return model;
  }

  /// Key and value heads with their remainder, and as few queries for each as leave the remainder of all.
  void shrink_heads(Json& model) const {
    if (!has("num_attention_heads")) return;
    const std::int64_t heads = of("num_attention_heads"), kv = has("num_key_value_heads") ? of("num_key_value_heads") : heads;
    const std::int64_t few_kv = kv <= 8 ? kv : like(kv, unit_, std::max<std::int64_t>(2, unit_));
    std::int64_t queries = std::min<std::int64_t>(heads / kv, 2);
    while (queries < heads / kv && (few_kv * queries - heads) % unit_ != 0) ++queries;
    model["num_attention_heads"] = few_kv * queries;
    if (has("num_key_value_heads")) model["num_key_value_heads"] = few_kv;
    if (has("head_dim") || has("hidden_size")) model["head_dim"] = small_head;
  }

  void shrink_layers(Json& model, const Choice& choice) const {
    const std::int64_t layers = of("num_hidden_layers");
    // Without stages, too, some layers lie between the first and the last.
    std::int64_t few = std::min(layers, std::max<std::int64_t>(stages_, 2) * choice.layers_per_stage + layers % stages_);
    if (names_layers(plan_.config()) || adapts_layers(plan_.config())) few = layers;
    model["num_hidden_layers"] = few;
    if (config_.contains("layer_types") && config_["layer_types"].is_array()) {
      Json types = Json::array();
      for (std::int64_t i = 0; i < few; ++i)
        types.push_back(config_["layer_types"].at(static_cast<std::size_t>(i * layers / few)));
      for (const Json& kind : config_["layer_types"]) {  // each kind is among them
        if (few > 1 && std::find(types.begin(), types.end(), kind) == types.end())
          types[static_cast<std::size_t>(few - 1)] = kind;
      }
      model["layer_types"] = types;
    }
    if (has("max_window_layers")) model["max_window_layers"] = of("max_window_layers") * few / layers;
    if (!config_.contains("mlp_only_layers") || !config_["mlp_only_layers"].is_array()) return;
    Json dense = Json::array();
    for (const Json& layer : config_["mlp_only_layers"]) {
      const std::int64_t at = layer.get<std::int64_t>() * few / layers;
      if (std::find(dense.begin(), dense.end(), at) == dense.end() && std::ssize(dense) + 1 < few) dense.push_back(at);
    }
    model["mlp_only_layers"] = dense;
  }

  static bool names_layers(const RunConfig& config) {
    const auto names = [](const std::string& pattern) { return pattern.find_first_of("0123456789") != std::string::npos; };
    const auto rule_names = [&](const OptimizerRule& rule) { return std::ranges::any_of(rule.patterns, names); };
    return std::ranges::any_of(config.freeze.frozen, names) || std::ranges::any_of(config.freeze.trained, names) ||
           std::ranges::any_of(config.optimizer.rules, rule_names);
  }

  /// True if an option of the adapter is a text with numbers, as the name of a module of one layer is.
  static bool adapts_layers(const RunConfig& config) {
    const auto options = config.plugin_options.find(config.adapter);
    return options != config.plugin_options.end() && std::ranges::any_of(options->second, [](const auto& option) {
             return option.second.find("layers.") != std::string::npos;
           });
  }

  /// Ranges of layers cover the same part of the model.
  void scale_layers(RunConfig& run, std::int64_t few) const {
    const std::int64_t layers = plan_.parts().architecture->sizes().layers;
    if (few == 0 || few == layers) return;
    const auto scale = [&](int& first, int& last) {
      if (last < 0) return;
      first = static_cast<int>(first * few / layers);
      last = std::max(first, static_cast<int>(((last + 1) * few + layers - 1) / layers) - 1);
    };
    scale(run.recompute.first_layer, run.recompute.last_layer);
    scale(run.offload.first_layer, run.offload.last_layer);
  }

  /// Synthetic data with the fields of the run's, and an optimizer whose update changes by as much as its gradient does.
  void use_known_values(RunConfig& run) const {
    run.plugin_options.erase(run.dataset);
    run.dataset = "synthetic";
    run.plugin_options.erase(run.dataset);
    const std::string fields = made_up_fields(plan_.parts().fields);
    if (!fields.empty()) run.plugin_options[run.dataset]["fields"] = fields;
    for (const OptionSpec& option : plan_.host().option_table("optimizer", run.optimizer_plugin)) {
      if (std::string_view(option.name) == "epsilon") run.plugin_options[run.optimizer_plugin]["epsilon"] = "1e-3";
    }
  }

  /// Options of strategies that are sizes, defaults included. Returns what was changed.
  std::vector<std::string> scale_options(RunConfig& run, double by) const {
    std::vector<std::string> notes;
    for (const StrategyUse& use : plan_.parts().uses) {
      auto& given = run.plugin_options[use.name];
      for (const OptionSpec& option : plan_.host().option_table("strategy", use.name)) {
        if (option.kind != OptionKind::bytes && option.kind != OptionKind::real) continue;
        const auto stated = given.find(option.name);
        const std::string value = stated == given.end() ? option.fallback : stated->second;
        if (value.empty()) continue;
        const double full = option.kind == OptionKind::bytes ? static_cast<double>(parse_bytes(value)) : std::stod(value);
        if (option.kind == OptionKind::real && full < 1e4) continue;
        const std::string scaled = std::to_string(std::llround(std::ceil(full * by)));
        given[option.name] = scaled;
        if (stated != given.end())
          notes.push_back("--" + use.name + "." + option.name + " " + value + " is " + scaled + " beside the small model");
      }
      if (given.empty()) run.plugin_options.erase(use.name);
    }
    return notes;
  }

  std::string sizes_text(const Json& model) const {
    std::string text;
    const auto add = [&](const char* field, const char* what) {
      if (!has(field)) return;
      text += (text.empty() ? "" : ", ") + model[field].dump() + " of " + config_[field].dump() + " " + what;
    };
    add("num_hidden_layers", "layers");
    add("num_attention_heads", "heads");
    add("num_experts", "experts");
    add("num_local_experts", "experts");
    add("hidden_size", "channels");
    add("vocab_size", "words");
    return text.empty() ? "the model at its own size" : text;
  }

  static constexpr std::int64_t most_parameters = 10'000'000;  // that are computed in fp64, by every rank
  static constexpr std::int64_t small_head = 4;  // elements of a head: rotary embeddings need pairs
  const Plan& plan_;
  const Json config_;
  std::int64_t stages_ = 1, unit_ = 1;
  std::int64_t of_experts_ = 1;   // ranks that experts may be divided among
  std::int64_t of_sequence_ = 1;  // ranks that a sequence may be divided among
};

}  // namespace

SmallRun small_run(const Plan& plan) {
  Shrinking shrinking(plan);
  std::string refused;
  for (const std::int64_t layers : {2, 3, 4, 5, 1, 6, 8}) {
    for (const std::int64_t units : {1, 2, 4}) {
      for (const bool of_heads : {false, true}) {
        try {
          SmallRun run = shrinking.make({layers, units, of_heads});
          for (int rank = 0; rank < run.plan.config().ranks; ++rank) {
            const Program program = run.plan.step(rank);
            if (program.stage_axis < 0) break;
          }
          return run;
        } catch (const UsageError& error) {
          refused = error.what();
        } catch (const DataError& error) {
          refused = error.what();
        }
      }
    }
  }
  throw UsageError(
      "no small model goes together with this run's options, though the model itself does; the last one was refused: " + refused);
}

}  // namespace consist::prove
