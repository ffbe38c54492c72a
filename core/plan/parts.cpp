#include "core/plan/parts.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/text.h"
#include "core/frozen/freeze.h"
#include "core/plan/found_model.h"
#include "core/plan/run_defaults.h"
#include "core/plugin/kernel_sets.h"
#include "core/weights/tokenizer_files.h"

namespace consist {
namespace {

/// --adapter, which rewrites the model.
void adapt(Parts& parts, const RunConfig& config, PluginHost& host) {
  if (config.adapter == no_adapter) {
    if (!config.export_merged) return;
    throw UsageError(
        "--export-merged adds an adapter to the model, and there is none; name it by --adapter, or leave the option out");
  }
  if (!config.freeze.trained.empty())
    throw UsageError("--train-only does not go with --adapter " + config.adapter +
                     ", which says itself what is trained; leave one of them out (--freeze takes some of it away)");
  const std::map<std::string, std::string> options = options_of_owner(config, config.adapter);
  const auto adapted =
      std::make_shared<AdaptedArchitecture>(parts.architecture, host.make<Adapter>("adapter", config.adapter, options));
  parts.adapted = adapted;
  if (const auto weights = options.find("weights"); weights != options.end()) parts.adapter_folder = weights->second;
  if (!parts.adapter_folder.empty() && (parts.model_folder.empty() || config.from_scratch))
    throw UsageError("--" + config.adapter + ".weights " + parts.adapter_folder +
                     " belongs to a model's weights, and these would be random; name the folder of its model by --model");
  parts.architecture = adapted;
}

/// The other models of --loss, found as --model is.
std::vector<FoundFrozen> find_frozen(const Loss& loss, const FoundModel& trained, const RunConfig& config, PluginHost& host) {
  std::vector<FoundFrozen> all;
  for (const FrozenModel& wanted : loss.frozen_models()) {
    FoundModel found = trained;
    if (!wanted.model.empty() && !config.frozen_like_trained) {
      RunConfig other = config;
      other.model = wanted.model;
      try {
        found = find_model(other, host);
      } catch (const UsageError& error) {
        throw UsageError("--loss " + config.loss + " wants a model '" + wanted.name +
                         "' beside the trained one, which is taken as --model is: " + error.what());
      }
    }
    const bool is_trained = wanted.model.empty(), has_weights = !found.folder.empty() && !(is_trained && config.from_scratch);
    all.push_back({wanted.name, found.architecture, found.model, has_weights ? found.folder : "", is_trained});
  }
  return all;
}

/// --loss, which makes another loss.
void set_loss(Parts& parts, const FoundModel& trained, const RunConfig& config, PluginHost& host) {
  parts.language_model = parts.architecture;
  if (config.loss == next_token) return;
  const auto loss = host.make<Loss>("loss", config.loss, options_of_owner(config, config.loss));
  const auto made = std::make_shared<LossArchitecture>(parts.architecture, loss, find_frozen(*loss, trained, config, host));
  parts.loss = made;
  parts.architecture = made;
}

/// Options for parts that are not in the configuration would be ignored silently; they are mistakes.
void refuse_stray_options(const RunConfig& config, PluginHost& host) {
  for (const std::string& owner : stray_owners(config, host)) {
    throw UsageError("--" + owner + "." + config.plugin_options.at(owner).begin()->first + " is given, but '" + owner +
                     "' is not part of this configuration");
  }
}

/// True if the dataset reads text through the tokenizer that its option "tokenizer" names (docs/plugins.md).
bool takes_tokenizer(const std::string& dataset, PluginHost& host) {
  const auto table = host.option_table("dataset", dataset);
  return std::any_of(table.begin(), table.end(),
                     [](const OptionSpec& spec) { return std::string_view(spec.name) == "tokenizer"; });
}

/// A dataset of --dataset, not opened; with the tokenizer of the model's folder where it takes one and was given none.
std::shared_ptr<Dataset> make_dataset(const DatasetChoice& choice, const Parts& parts, const RunConfig& config, PluginHost& host) {
  std::map<std::string, std::string> options = options_of_owner(config, choice.name);
  const std::string tokenizer = parts.model_folder.empty() ? "" : tokenizer_of(parts.model_folder);
  if (!parts.model_folder.empty() && takes_tokenizer(choice.plugin, host) && !options.contains("tokenizer")) {
    if (tokenizer.empty() && !config.from_scratch) {
      throw UsageError("--model " + config.model +
                       " has no tokenizer.json, and its weights were trained with one: name it with --" + choice.name +
                       ".tokenizer, or train new weights with --from-scratch");
    }
    if (!tokenizer.empty()) options.emplace("tokenizer", tokenizer);
  }
  return host.make<Dataset>("dataset", choice.plugin, options);
}

/// The fields of the datasets; none where one is not there or cannot be made: open_dataset() says so, and a program can be looked
/// at without data.
std::vector<Field> fields_of_datasets(const RunConfig& config, PluginHost& host) {
  const std::vector<DatasetChoice> choices = parse_datasets(config.dataset);
  std::vector<Mixture::Part> made;
  try {
    for (const DatasetChoice& choice : choices) {
      if (!host.has("dataset", choice.plugin)) return {};
      made.push_back({choice, host.make<Dataset>("dataset", choice.plugin, options_of_owner(config, choice.name))});
    }
  } catch (const UsageError&) {
    return {};
  }
  return made.size() == 1 ? made.front().dataset->fields() : Mixture(std::move(made)).fields();
}

}  // namespace

std::vector<std::string> stray_owners(const RunConfig& config, PluginHost& host) {
  std::vector<std::string> used{config.precision, config.device, config.optimizer_plugin, config.schedule};
  for (const OptimizerRule& rule : config.optimizer.rules) used.push_back(rule.optimizer);
  if (config.adapter != no_adapter) used.push_back(config.adapter);
  if (config.loss != next_token) used.push_back(config.loss);
  for (const DatasetChoice& dataset : parse_datasets(config.dataset)) used.insert(used.end(), {dataset.name, dataset.plugin});
  for (const StrategyChoice& s : config.strategies) used.push_back(s.name);
  used.insert(used.end(), config.observers.begin(), config.observers.end());
  const std::vector<std::string> transports = named_transports(config);
  used.insert(used.end(), transports.begin(), transports.end());
  if (leaves_transports_open(config)) {  // any of them may be chosen
    for (const std::string& name : host.names("transport")) used.push_back(name);
  }
  for (const std::string& name : host.names("model")) used.push_back(name);
  if (config.device == "auto") {
    for (const std::string& name : host.names("device")) used.push_back(name);
  }
  std::vector<std::string> stray;
  for (const auto& [owner, options] : config.plugin_options) {
    if (std::find(used.begin(), used.end(), owner) == used.end()) stray.push_back(owner);
  }
  return stray;
}

bool has_random_ids(const RunConfig& config) {
  return config.dataset == "synthetic";
}

std::string made_up_fields(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    const bool known = field.name == "loss_mask" || field.name == "document_start";
    text += (text.empty() ? "" : ",") + field.name + (known ? "" : ":" + std::string(name_of(field.dtype)));
  }
  return text;
}

std::string Parts::loss_unit() const {
  return loss == nullptr ? Loss::default_unit : loss->loss().unit();
}

CompileRequest Parts::compile_request(const RunConfig& config) const {
  SharesOfRouter shares;
  if (experts && has_random_ids(config)) {
    shares = [load = experts](std::size_t router, std::int64_t count, std::int64_t choices) {
      const std::vector<std::vector<double>> layers = load->shares(count, choices);
      return layers[router % layers.size()];
    };
  }
  return {.architecture = architecture.get(),
          .precision = precision.get(),
          .model_name = "model '" + model_name + "'" + (loss ? " with loss '" + config.loss + "'" : ""),
          .precision_name = "precision '" + config.precision + "'",
          .strategies = uses,
          .ranks = config.ranks,
          .micro_batch = config.batch,
          .sequence = config.sequence,
          .accumulation = config.accumulation,
          .recompute = config.recompute,
          .offload = config.offload,
          .freeze = config.freeze,
          .frozen_weights = config.frozen_weights,
          .fields = fields,
          .pack_linears = config.pack,
          .expert_shares = std::move(shares),
          .optimizers = optimizers(config),
          .optimizer_settings = config.optimizer};
}

OptimizerUses Parts::optimizers(const RunConfig& config) const {
  const auto name_of = [](const std::string& plugin) { return "optimizer '" + plugin + "'"; };
  OptimizerUses all(optimizer.get(), name_of(config.optimizer_plugin));
  for (std::size_t k = 0; k < config.optimizer.rules.size(); ++k) {
    const OptimizerRule& rule = config.optimizer.rules[k];
    const bool has_own = of_rules.at(k) != nullptr;
    all.add(rule, has_own ? of_rules[k].get() : optimizer.get(), name_of(has_own ? rule.optimizer : config.optimizer_plugin));
  }
  return all;
}

namespace {

void make_optimizers_of_rules(Parts& parts, const RunConfig& config, PluginHost& host) {
  if (config.optimizer.rules.empty()) return;
  const Program model = whole_model(*parts.architecture, config.freeze);
  for (const OptimizerRule& rule : config.optimizer.rules) {
    require_matches(model, "--optimizer-rules", rule.patterns);
    const bool has_own = !rule.optimizer.empty() && rule.optimizer != config.optimizer_plugin;
    parts.of_rules.push_back(has_own ? host.make<Optimizer>("optimizer", rule.optimizer, options_of_owner(config, rule.optimizer))
                                     : nullptr);
  }
}

}  // namespace

Parts make_parts(const RunConfig& config, PluginHost& host) {
  refuse_stray_options(config, host);
  kernel_sets().add(host, false);  // before a model is built: their ops are among those that it may use
  Parts parts;
  const FoundModel found = find_model(config, host);
  parts.model = found.model;
  parts.model_name = found.plugin;
  parts.architecture = found.architecture;
  parts.model_folder = found.folder;
  adapt(parts, config, host);
  set_loss(parts, found, config, host);
  parts.precision = host.make<Precision>("precision", config.precision, options_of_owner(config, config.precision));
  parts.optimizer = host.make<Optimizer>("optimizer", config.optimizer_plugin, options_of_owner(config, config.optimizer_plugin));
  make_optimizers_of_rules(parts, config, host);
  parts.schedule = host.make<Schedule>("schedule", config.schedule, options_of_owner(config, config.schedule));
  parts.fields = fields_of_datasets(config, host);
  parts.experts = ExpertLoad::parse(config.expert_load);
  for (const StrategyChoice& choice : config.strategies) {
    parts.strategies.push_back(host.make<ParallelStrategy>("strategy", choice.name, options_of_owner(config, choice.name)));
    parts.uses.push_back({choice.name, parts.strategies.back().get(), choice.size, choice.split});
  }
  make_again_with_defaults(parts, config, host);
  // A name that does not exist is an error before anything starts.
  for (const std::string& transport : named_transports(config)) host.find("transport", transport);
  return parts;
}

void settle_batch(RunConfig& config, const Layout& layout) {
  const std::int64_t parts = layout.batch_ranks();
  const std::int64_t known = (config.batch > 0 ? config.batch : 1) * (config.accumulation > 0 ? config.accumulation : 1) * parts;
  if (config.global_batch == 0) config.global_batch = known;
  const auto text = [&] {
    return "--global-batch " + std::to_string(config.global_batch) + " is divided over " + std::to_string(parts) +
           " part(s) of the batch" + (config.accumulation > 0 ? " x accumulation " + std::to_string(config.accumulation) : "") +
           (config.batch > 0 ? " x batch " + std::to_string(config.batch) : "");
  };
  if (config.global_batch % known != 0)
    throw UsageError(text() + ", which leaves a rest; choose a multiple of " + std::to_string(known));
  const std::int64_t open = config.global_batch / known;
  if (config.batch == 0) {
    if (config.accumulation == 0) throw ProgramError("neither batch nor accumulation is stated");
    config.batch = open;
  } else if (config.accumulation == 0) {
    config.accumulation = static_cast<int>(open);
  } else if (open != 1) {
    throw UsageError(text() + ", which makes " + std::to_string(known) + "; leave one of the three options out");
  }
}

NamedDevice make_device(const RunConfig& config, PluginHost& host) {
  std::string name = config.device;
  if (config.device == "auto") {
    std::string reasons;
    name.clear();
    for (const char* candidate : {"cuda", "cpu"}) {
      if (!host.has("device", candidate)) continue;
      const std::string reason = host.unavailable(host.find("device", candidate), std::chrono::seconds(20));
      if (reason.empty()) {
        name = candidate;
        break;
      }
      reasons += std::string("\n  ") + candidate + ": " + reason;
    }
    if (name.empty()) throw UnavailableError("--device auto: there is no device that can work here" + reasons);
  }
  std::map<std::string, std::string> options = options_of_owner(config, name);
  if (const auto chosen = config.chosen_options.find(name); chosen != config.chosen_options.end()) {
    for (const auto& [option, value] : chosen->second) options[option] = value;
  }
  std::shared_ptr<Device> device = host.make<Device>("device", name, options);
  if (name == "cuda") kernel_sets().add(host, true);
  return {std::move(name), std::move(device)};
}

std::shared_ptr<Dataset> make_unopened_dataset(const Parts& parts, const RunConfig& config, PluginHost& host) {
  std::vector<Mixture::Part> made;
  for (const DatasetChoice& choice : parse_datasets(config.dataset)) made.push_back({choice, make_dataset(choice, parts, config, host)});
  if (made.size() == 1) return made.front().dataset;
  return std::make_shared<Mixture>(std::move(made));
}

RunData open_dataset(const Parts& parts, const RunConfig& config, PluginHost& host) {
  RunData data;
  data.dataset = make_unopened_dataset(parts, config, host);
  data.mixture = std::dynamic_pointer_cast<Mixture>(data.dataset);
  data.dataset->open(
      {.sequence_length = config.sequence, .vocabulary = parts.architecture->sizes().vocabulary, .seed = config.seed});
  if (config.evaluate_every > 0 && data.dataset->eval_sequences() == 0) {
    throw UsageError(
        "there is nothing to evaluate on (--evaluate-every, consist evaluate): the dataset has no evaluation part: " +
        data.dataset->describe());
  }
  return data;
}

EpochSteps steps_of_epochs(const RunConfig& config, const Dataset& dataset, const Layout& layout) {
  constexpr std::int64_t most_steps = 1'000'000'000;
  const std::int64_t per_step = config.batch * config.accumulation * layout.batch_ranks(), epoch = dataset.train_sequences();
  if (epoch / per_step > most_steps / config.epochs) {
    throw UsageError("--epochs " + std::to_string(config.epochs) + ": a pass through the dataset has " + std::to_string(epoch) +
                     " sequences, which no run comes to the end of (" + dataset.describe() + "); say how many steps with --steps");
  }
  const std::int64_t steps = (config.epochs * epoch + per_step - 1) / per_step;
  return {steps, std::to_string(config.epochs) + (config.epochs == 1 ? " epoch of " : " epochs of ") + std::to_string(epoch) +
                     " sequences: " + std::to_string(steps) + (steps == 1 ? " step of " : " steps of ") +
                     std::to_string(per_step)};
}

bool leaves_transports_open(const RunConfig& config) {
  return named_transports(config).size() <= config.transport_of.size();
}

std::vector<std::string> named_transports(const RunConfig& config) {
  std::vector<std::string> names;
  if (config.transport != automatic_transport) names.push_back(config.transport);
  for (const auto& [strategy, transport] : config.transport_of) {
    if (transport != automatic_transport) names.push_back(transport);
  }
  return names;
}

std::shared_ptr<Transport> make_transport(const std::string& name, const RunConfig& config, PluginHost& host,
                                          const std::string& device_kind) {
  auto transport = host.make<Transport>("transport", name, options_of_owner(config, name));
  if (const std::string reason = transport->unavailable(device_kind); !reason.empty())
    throw UnavailableError("transport '" + name + "' cannot serve device '" + device_kind + "': " + reason);
  return transport;
}

}  // namespace consist
