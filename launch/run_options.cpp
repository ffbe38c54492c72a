#include "launch/run_options.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "consist/error.h"
#include "consist/options.h"
#include "core/files/did_you_mean.h"
#include "core/runtime/parts.h"
#include "launch/deepspeed_config.h"
#include "launch/options_without_effect.h"

namespace consist {

namespace po = boost::program_options;

namespace {

/// "a,b", without empty names and twice the same.
std::vector<std::string> names_of(const char* option, const std::string& text) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');) {
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end())
      throw UsageError(std::string(option) + " is '" + text + "'; write names with commas between them, each once");
    names.push_back(name);
  }
  return names;
}

/// Checked here already: 0 means "left open" to RunConfig.
void at_least_one(const char* option, std::int64_t value) {
  if (value < 1) throw UsageError(std::string(option) + " is " + std::to_string(value) + "; it must be at least 1");
}

}  // namespace

po::options_description run_options() {
  const RunConfig d;
  po::options_description what("Configuration");
  what.add_options()("model", po::value<std::string>()->value_name("NAME|FOLDER"),
                     "preset, or Hugging Face folder (its weights are loaded)")(
      "strategy", po::value<std::string>()->default_value(text_of(d.strategies))->value_name("S"),
      "e.g. ddp, a+b=2 combined over the ranks, or a=2x4 on two mesh axes")(
      "transport", po::value<std::string>()->default_value(d.transport)->value_name("T"),
      "e.g. socket, or per strategy: a=T1,b=T2")(
      "precision", po::value<std::string>()->default_value(d.precision)->value_name("P"), "e.g. fp32, bf16")(
      "device", po::value<std::string>()->default_value(d.device)->value_name("D"), "e.g. cpu, cuda; auto: the fastest there is")(
      "dataset", po::value<std::string>()->default_value(d.dataset)->value_name("D"), "e.g. text, tokens, synthetic")(
      "ranks", po::value<int>()->default_value(d.ranks)->value_name("N"), "start N ranks on this machine")(
      "deepspeed-config", po::value<std::string>()->default_value("")->value_name("FILE"),
      "strategy, precision, batch, optimizer as a DeepSpeed JSON states them")(
      "deepspeed-set", po::value<std::vector<std::string>>()->composing()->value_name("KEY=VALUE"),
      "a value of that JSON in place of the file's, such as zero_optimization.sub_group_size=1e9")(
      "plugin", po::value<std::vector<std::string>>()->composing()->value_name("PATH"),
      "also look for plugins in this file or folder");
  po::options_description training("Training");
  training.add_options()("batch", po::value<std::int64_t>()->default_value(d.batch), "sequences per rank and micro-batch")(
      "global-batch", po::value<std::int64_t>()->default_value(0), "sequences per step of all ranks")(
      "sequence", po::value<std::int64_t>()->default_value(d.sequence), "tokens per sequence")(
      "accumulation", po::value<int>()->default_value(d.accumulation), "micro-batches per step")(
      "recompute", po::value<std::string>()->default_value(what_text(d.recompute))->value_name("WHAT"),
      "what backward makes again instead of keeping it: none, full (all of a layer but its input), or ops such as "
      "swiglu,rms_norm")("recompute-layers", po::value<std::string>()->default_value("")->value_name("A-B"),
                         "only in these layers, from 0")(
      "pack", po::value<bool>()->default_value(d.pack, d.pack ? "on" : "off")->value_name("on|off"),
      "one product for linears that read the same (q, k and v; gate and up)")(
      "freeze", po::value<std::string>()->default_value("")->value_name("PATTERNS"),
      "parameters that are not trained, by their names in Hugging Face's checkpoints: model.embed_tokens.*,*norm*")(
      "train-only", po::value<std::string>()->default_value("")->value_name("PATTERNS"), "parameters that alone are trained")(
      "steps", po::value<std::int64_t>()->default_value(d.steps), "optimizer steps")(
      "seed", po::value<std::uint64_t>()->default_value(d.seed), "of initial weights and data order")(
      "from-scratch", po::bool_switch(), "initialise even if the model folder has weights")(
      "learning-rate", po::value<double>()->default_value(d.learning_rate, "3e-4"), "peak")(
      "schedule", po::value<std::string>()->default_value(d.schedule)->value_name("S"), "e.g. constant, linear, cosine, wsd")(
      "optimizer", po::value<std::string>()->default_value(d.optimizer_plugin)->value_name("O"), "e.g. adamw, sgd, lion, muon")(
      "weight-decay", po::value<double>()->default_value(d.optimizer.weight_decay, "0.1"), "not on norms and biases")(
      "clip", po::value<double>()->default_value(d.optimizer.max_norm, "1"), "global gradient norm; 0: do not clip");
  po::options_description results("Results and limits");
  results.add_options()("observe", po::value<std::string>()->default_value("")->value_name("NAME,..."),
                        "observers, which are told of each step")("archive", po::value<std::string>()->default_value("")->value_name("FILE"), "HDF5 archive of the run")(
      "overwrite", po::bool_switch(), "replace an archive or export that is there")(
      "checkpoint", po::value<std::string>()->default_value("")->value_name("FOLDER"), "where checkpoints go")(
      "checkpoint-every", po::value<std::int64_t>()->default_value(0), "steps between checkpoints; 0: at the end")(
      "checkpoint-each-epoch", po::bool_switch(), "also after each pass through the dataset")(
      "checkpoint-keep", po::value<int>()->default_value(d.checkpoint_keep), "newest checkpoints that are kept")(
      "resume", po::bool_switch(), "go on from the newest checkpoint")(
      "export", po::value<std::string>()->default_value("")->value_name("FOLDER"),
      "write the trained model in Hugging Face's format")("evaluate-every", po::value<std::int64_t>()->default_value(0),
                                                          "steps between evaluations; the last step is evaluated too")(
      "evaluate-sequences", po::value<std::int64_t>()->default_value(d.evaluate_sequences), "at most so many")(
      "memory-limit", po::value<std::string>()->default_value("0")->value_name("BYTES"),
      "per rank, e.g. 2Gi; 0: what the device has")(
      "host-memory-limit", po::value<std::string>()->default_value("0")->value_name("BYTES"),
      "that the ranks of a host may pin together for offloading; 0: what the host has available")(
      "timeout", po::value<int>()->default_value(d.timeout_seconds)->value_name("S"),
      "seconds that a rank may keep the others waiting")("profile", po::bool_switch(), "time every instruction")(
      "trace", po::value<std::string>()->default_value("")->value_name("FILE"),
      "timeline of the last step, of all ranks, for Perfetto (JSON)");
  po::options_description all;
  all.add(what).add(training).add(results);
  return all;
}

namespace {

/// What values an option takes, in words; empty where any text will do.
std::string legal_values(const po::options_description& all, std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  const po::option_description* option = all.find_nothrow(name, false);
  const auto* semantic = option == nullptr ? nullptr : dynamic_cast<const po::typed_value_base*>(option->semantic().get());
  if (semantic == nullptr) return "";
  const std::type_info& type = semantic->value_type();
  if (type == typeid(int)) return "a whole number of 32 bits";
  if (type == typeid(std::int64_t)) return "a whole number of 64 bits";
  if (type == typeid(std::uint64_t)) return "a whole number of 64 bits, not negative";
  if (type == typeid(double)) return "a number";
  return "";
}

}  // namespace

ParsedRun parse_run(const std::vector<std::string>& arguments, const po::options_description& extra) {
  po::options_description all;
  all.add(run_options()).add(extra);
  ParsedRun parsed;
  try {
    const po::parsed_options options = po::command_line_parser(arguments)
                                           .options(all)
                                           .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                                                  ~po::command_line_style::allow_short)
                                           .allow_unregistered()
                                           .run();
    for (const po::option& option : options.options) {
      if (option.string_key == "seed" && !option.value.empty() && option.value.front().starts_with('-')) {
        throw UsageError("--seed is '" + option.value.front() + "'; it must be " +
                         legal_values(all, "seed"));  // the parser would wrap it around
      }
    }
    po::store(options, parsed.values);
    po::notify(parsed.values);
    parsed.rest = po::collect_unrecognized(options.options, po::include_positional);
  } catch (const po::validation_error& error) {
    const std::string legal = legal_values(all, error.get_option_name());
    throw UsageError(std::string(error.what()) + (legal.empty() ? " (see --help)" : "; it must be " + legal));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + " (see --help)");
  }
  return parsed;
}

std::vector<std::string> plugin_paths(const po::variables_map& values) {
  return values.count("plugin") == 0 ? std::vector<std::string>{} : values["plugin"].as<std::vector<std::string>>();
}

namespace {

/// Option tables of the plugins that are called `owner` (kinds may share a name), as one.
std::vector<OptionSpec> options_of_plugins(const std::string& owner, PluginHost& host) {
  std::vector<OptionSpec> all;
  for (const PluginFile& file : host.files()) {
    if (file.name != owner || !file.problem.empty()) continue;
    for (const OptionSpec& spec : host.option_table(file.kind, file.name)) {
      if (std::none_of(all.begin(), all.end(), [&](const OptionSpec& s) { return std::string_view(s.name) == spec.name; }))
        all.push_back(spec);
    }
  }
  return all;
}

/// Throws if parts have that option, whose names elsewhere are bare: --beta1, --warmup.
void refuse_bare_name(const std::string& option, PluginHost& host) {
  for (const char* kind : {"optimizer", "schedule"}) {
    const std::string name = option == "schedule-counting" ? "counting" : option;
    std::string owned;
    for (const std::string& owner : host.names(kind)) {
      for (const OptionSpec& spec : host.option_table(kind, owner)) {
        if (name == spec.name) owned += (owned.empty() ? "--" : ", --") + owner + "." + spec.name;
      }
    }
    if (!owned.empty())
      throw UsageError("there is no option '--" + option + "'; " + kind + "s have one: " + owned);
  }
}

[[noreturn]] void refuse_unknown(std::string option, const std::map<std::string, std::vector<OptionSpec>>& tables,
                                 PluginHost& host) {
  option.erase(0, option.find_first_not_of('-'));
  const std::size_t dot = option.find('.');
  if (dot == std::string::npos) {
    refuse_bare_name(option, host);
    std::vector<KnownName> known;
    const po::options_description options = run_options();
    for (const auto& described : options.options()) known.push_back({described->long_name()});
    throw UsageError("there is no option '--" + option + "' (see --help)." + did_you_mean(option, known));
  }
  const std::string owner = option.substr(0, dot);
  const bool there = std::any_of(host.files().begin(), host.files().end(),
                                 [&](const PluginFile& f) { return f.name == owner && f.problem.empty(); });
  if (!there) {
    for (const PluginFile& file : host.files()) {
      if (file.name == owner)
        throw UsageError("--" + option + " is given, but " + file.path.string() + " cannot be used: " + file.problem);
    }
    std::vector<KnownName> known;
    for (const PluginFile& file : host.files()) {
      if (file.problem.empty()) known.push_back({file.name, file.summary});
    }
    throw UsageError("--" + option + " is given, but there is no plugin '" + owner + "'." + did_you_mean(owner, known) + " " +
                     host.looked_in());
  }
  std::string message = "plugin '" + owner + "' has no option '" + option.substr(dot + 1) + "'. It has";
  const auto table = tables.find(owner);
  if (table == tables.end() || table->second.empty()) throw UsageError(message + " none");
  std::vector<KnownName> known;
  for (const OptionSpec& spec : table->second) {
    message += std::string(" ") + spec.name;
    known.push_back({spec.name});
  }
  throw UsageError(message + "." + did_you_mean(option.substr(dot + 1), known));
}

}  // namespace

std::map<std::string, std::map<std::string, std::string>> read_plugin_options(const std::vector<std::string>& tokens,
                                                                              PluginHost& host) {
  po::options_description described;
  std::map<std::string, std::vector<OptionSpec>> tables;
  for (const std::string& token : tokens) {
    const std::size_t dot = token.find('.');
    if (!token.starts_with("--") || dot == std::string::npos) continue;
    const std::string owner = token.substr(2, dot - 2);
    if (tables.count(owner) != 0) continue;
    for (const OptionSpec& spec : tables[owner] = options_of_plugins(owner, host)) {
      auto* value = po::value<std::string>();
      if (spec.kind == OptionKind::flag) value->implicit_value("true");
      described.add_options()((owner + "." + spec.name).c_str(), value);
    }
  }
  std::map<std::string, std::map<std::string, std::string>> options;
  try {
    const po::parsed_options parsed = po::command_line_parser(tokens)
                                          .options(described)
                                          .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                                                 ~po::command_line_style::allow_short)
                                          .run();
    for (const po::option& option : parsed.options) {
      if (option.position_key >= 0) {
        throw UsageError("'" + option.value.front() + "' is neither an option nor the value of one (see --help)");
      }
      const std::size_t dot = option.string_key.find('.');
      const std::string owner = option.string_key.substr(0, dot), name = option.string_key.substr(dot + 1);
      const std::string value = option.value.empty() ? "true" : option.value.front();  // a flag's bare name has no value
      // Checked here already, so that a bad value is an error in commands that do not make this part.
      for (const OptionSpec& spec : tables[owner]) {
        if (name == spec.name) Options(owner).set(spec, value);
      }
      if (!options[owner].emplace(name, value).second) throw UsageError("--" + option.string_key + " is given twice");
    }
  } catch (const po::unknown_option& error) {
    refuse_unknown(error.get_option_name(), tables, host);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; see --help, and `consist plugins NAME` for the options of a part");
  }
  return options;
}

namespace {

std::int64_t read_bytes(const po::variables_map& v, const char* option) {
  try {
    return parse_bytes(v[option].as<std::string>());
  } catch (const UsageError& error) {
    throw UsageError(std::string("--") + option + ": " + error.what());
  }
}

/// The options that the file of --deepspeed-config has stated; none without one.
std::set<std::string> read_deepspeed_config(const po::variables_map& v, PluginHost& host, RunConfig& config) {
  const std::string path = v["deepspeed-config"].as<std::string>();
  if (path.empty() && v.count("deepspeed-set") != 0) {
    throw UsageError("--deepspeed-set " + v["deepspeed-set"].as<std::vector<std::string>>().front() +
                     " is given, but no --deepspeed-config FILE whose value it could replace");
  }
  if (path.empty()) return {};
  const DeepspeedContext context{
      .given = [&](const std::string& option) { return v.count(option) != 0 && !v[option].defaulted(); },
      .hidden = [&] { return model_sizes(config, host).hidden; },
      .replacements =
          v.count("deepspeed-set") == 0 ? std::vector<std::string>{} : v["deepspeed-set"].as<std::vector<std::string>>()};
  return apply_deepspeed_config(path, context, config);
}

/// Of batch and accumulation, the first that nobody has stated follows from the global batch.
void leave_batch_open(const po::variables_map& v, const std::set<std::string>& stated, RunConfig& config) {
  const auto open = [&](const char* option) { return v[option].defaulted() && stated.count(option) == 0; };
  if (config.global_batch > 0 && open("batch")) {
    config.batch = 0;
  } else if (config.global_batch > 0 && open("accumulation")) {
    config.accumulation = 0;
  }
}

}  // namespace

void say_plugin_warnings(const PluginHost& host, const JobAddress& process) {
  if (process.rank != 0 || process.joined_fd >= 0) return;
  for (const std::string& text : host.warnings()) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

RunConfig make_config(const ParsedRun& parsed, PluginHost& host) {
  const po::variables_map& v = parsed.values;
  RunConfig c;
  c.plugin_options =
      read_plugin_options(parsed.rest, host);  // first: a mistyped option is the better message than what lacks without it
  if (v.count("model") != 0) c.model = v["model"].as<std::string>();
  c.strategies = parse_strategies(v["strategy"].as<std::string>());
  parse_transports(v["transport"].as<std::string>(), c);
  c.precision = v["precision"].as<std::string>();
  c.device = v["device"].as<std::string>();
  c.dataset = v["dataset"].as<std::string>();
  c.ranks = v["ranks"].as<int>();
  c.batch = v["batch"].as<std::int64_t>();
  c.sequence = v["sequence"].as<std::int64_t>();
  c.accumulation = v["accumulation"].as<int>();
  c.global_batch = v["global-batch"].as<std::int64_t>();
  c.recompute = parse_recompute(v["recompute"].as<std::string>(), v["recompute-layers"].as<std::string>());
  c.freeze = parse_freeze(v["freeze"].as<std::string>(), v["train-only"].as<std::string>());
  c.observers = names_of("--observe", v["observe"].as<std::string>());
  c.pack = v["pack"].as<bool>();
  at_least_one("--batch", c.batch);
  at_least_one("--accumulation", c.accumulation);
  c.steps = v["steps"].as<std::int64_t>();
  c.seed = v["seed"].as<std::uint64_t>();
  c.from_scratch = v["from-scratch"].as<bool>();
  c.learning_rate = v["learning-rate"].as<double>();
  c.schedule = v["schedule"].as<std::string>();
  c.optimizer.weight_decay = v["weight-decay"].as<double>();
  c.optimizer_plugin = v["optimizer"].as<std::string>();
  c.optimizer.max_norm = v["clip"].as<double>();
  c.archive = v["archive"].as<std::string>();
  c.overwrite = v["overwrite"].as<bool>();
  c.checkpoint = v["checkpoint"].as<std::string>();
  c.checkpoint_every = v["checkpoint-every"].as<std::int64_t>();
  c.checkpoint_each_epoch = v["checkpoint-each-epoch"].as<bool>();
  c.checkpoint_keep = v["checkpoint-keep"].as<int>();
  c.resume = v["resume"].as<bool>();
  c.export_folder = v["export"].as<std::string>();
  c.evaluate_every = v["evaluate-every"].as<std::int64_t>();
  c.evaluate_sequences = v["evaluate-sequences"].as<std::int64_t>();
  c.memory_limit = read_bytes(v, "memory-limit");
  c.host_memory_limit = read_bytes(v, "host-memory-limit");
  c.timeout_seconds = v["timeout"].as<int>();
  c.profile = v["profile"].as<bool>();
  c.trace = v["trace"].as<std::string>();
  const PluginOptions given_to_plugins = c.plugin_options;
  leave_batch_open(v, read_deepspeed_config(v, host, c), c);
  c.check();
  for (const std::string& line : options_without_effect(v, c, given_to_plugins, host)) c.notes.push_back(line);
  return c;
}

}  // namespace consist
