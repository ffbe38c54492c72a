#include "launch/cli/complete.h"

#include <algorithm>
#include <optional>
#include <set>

#include "consist/error.h"
#include "consist/model.h"
#include "core/base/split.h"
#include "core/config/option_value.h"
#include "core/cost/machine_file.h"
#include "core/plugin/host.h"

namespace consist::launch {
namespace {

/// Made when it is asked, since most words need no plugins.
class Plugins {
 public:
  explicit Plugins(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  PluginHost* host() {
    if (!host_ && !failed_) {
      try {
        host_.emplace(paths_);
      } catch (const Error&) {
        failed_ = true;  // a path that does not exist, say: the command itself will say so
      }
    }
    return host_ ? &*host_ : nullptr;
  }
  std::vector<std::string> names(const char* kind) {
    return host() == nullptr ? std::vector<std::string>{} : host()->names(kind);
  }
  std::vector<std::string> all_names() {
    std::set<std::string> names;
    if (host() == nullptr) return {};
    for (const PluginFile& file : host()->files()) {
      if (file.problem.empty()) names.insert(file.name);
    }
    return {names.begin(), names.end()};
  }
  std::vector<OptionSpec> options_of(const std::string& owner) {
    std::vector<OptionSpec> all;
    if (host() == nullptr) return all;
    for (const PluginFile& file : host()->files()) {
      if (file.name != owner || !file.problem.empty()) continue;
      try {
        for (const OptionSpec& spec : host()->option_table(file.kind, file.name)) all.push_back(spec);
      } catch (const Error&) {
        continue;
      }
    }
    return all;
  }
  std::vector<std::string> presets() {
    std::vector<std::string> all;
    for (const std::string& name : names("model")) {
      try {
        for (const ModelPreset& preset : host()->make<Model>("model", name, {})->presets()) all.push_back(preset.name);
      } catch (const Error&) {
        continue;
      }
    }
    return all;
  }

 private:
  std::vector<std::string> paths_;
  std::optional<PluginHost> host_;
  bool failed_ = false;
};

std::vector<std::string> machines() {
  std::vector<std::string> names;
  for (const Machine& machine : known_machines()) names.push_back(machine.name);
  return names;
}

/// Options whose values are names that plugins or machines have: where they come from, and at which characters a list is divided.
struct NamedValues {
  std::string_view option;
  const char* kind;  ///< of plugins; "machine", "preset"
  std::string_view separators;
  std::vector<std::string> others = {};
};

const std::vector<NamedValues>& named_values() {
  static const std::vector<NamedValues> all{{"model", "preset", ","},
                                            {"models", "preset", ","},
                                            {"strategy", "strategy", "+,"},
                                            {"transport", "transport", "+,=", {"auto"}},
                                            {"precision", "precision", ","},
                                            {"device", "device", ",", {"auto"}},
                                            {"machine", "machine", ","},
                                            {"dataset", "dataset", ","},
                                            {"optimizer", "optimizer", ","},
                                            {"schedule", "schedule", ","},
                                            {"adapter", "adapter", ",", {no_adapter}},
                                            {"loss", "loss", ",", {next_token}},
                                            {"observe", "observer", ","},
                                            {"recompute", "", "", {"none", "full"}},
                                            {"offload-activations", "", ",", {"none", "all"}}};
  return all;
}

class Completer {
 public:
  Completer(const std::vector<std::string>& words, CommandTable commands)
      : words_(words), table_(commands), typed_(words.empty() ? "" : words.back()), plugins_(paths_of(words)) {}

  Completions run() {
    if (words_.size() <= 1) {
      offer_commands();
      offer({"--help", "--version"});
      return done();
    }
    std::string command = words_[0];
    std::size_t first = 1;  // word behind the command
    if (words_.size() > 2 && find_command(table_, command + " " + words_[1]) != nullptr) command += " " + words_[first++];
    command_ = find_command(table_, command);
    if (command_ == nullptr || command_->is_hidden()) return done();
    if (command_->operand.starts_with("-- ")) {
      const auto dashes = std::find(words_.begin(), words_.end() - 1, "--");
      if (dashes != words_.end() - 1) return complete({dashes + 1, words_.end()}, table_);
    }
    const std::string before = words_.size() - 1 > first ? words_[words_.size() - 2] : "";
    const std::size_t equals = typed_.find('=');
    if (typed_.starts_with("--") && equals != std::string::npos) {
      values_of(typed_.substr(2, equals - 2), typed_.substr(0, equals + 1));
    } else if (before.starts_with("--") && before.find('=') == std::string::npos && takes_value(before.substr(2))) {
      values_of(before.substr(2), "");
    } else if (typed_.starts_with("-")) {
      options();
    } else {
      operands();
    }
    return done();
  }

 private:
  static std::vector<std::string> paths_of(const std::vector<std::string>& words) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--plugin" && i + 2 < words.size()) paths.push_back(words[i + 1]);
      if (words[i].starts_with("--plugin=")) paths.push_back(words[i].substr(9));
    }
    return paths;
  }

  /// An option of a part, "zero2.stage".
  std::optional<OptionSpec> find_spec(const std::string& name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos) return std::nullopt;
    for (const OptionSpec& spec : plugins_.options_of(name.substr(0, dot))) {
      if (name.substr(dot + 1) == spec.name) return spec;
    }
    return std::nullopt;
  }
  bool takes_value(const std::string& name) {
    if (const RunOption* const option = command_->find(name)) return !option->is_switch();
    const std::optional<OptionSpec> spec = find_spec(name);
    return spec && spec->kind != OptionKind::flag;
  }

  void options() {
    offer({"--help"});
    for (const RunOption& option : command_->own) offer({std::string("--") + option.spec.name});
    for (const RunOption& option : run_option_table()) {
      if (command_->takes_of_run(option.spec.name)) offer({std::string("--") + option.spec.name});
    }
    if (!command_->takes_parts() || typed_.size() < 3) return;
    const std::size_t dot = typed_.find('.');
    if (dot == std::string::npos) {
      for (const std::string& name : plugins_.all_names()) {
        const std::string word = "--" + name + ".";
        if (word.starts_with(typed_)) result_.open = true;
        offer({word});
      }
      return;
    }
    for (const OptionSpec& spec : plugins_.options_of(typed_.substr(2, dot - 2))) offer({typed_.substr(0, dot + 1) + spec.name});
  }

  /// Values of the option, each behind `prefix`, "--precision=" or nothing.
  void values_of(const std::string& name, const std::string& prefix) {
    const std::string typed = typed_.substr(prefix.size());
    for (const NamedValues& named : named_values()) {
      if (named.option != name) continue;
      // The last element of a list is being typed.
      const std::size_t separator = named.separators.empty() ? std::string::npos : typed.find_last_of(named.separators);
      const std::string done = separator == std::string::npos ? "" : typed.substr(0, separator + 1);
      std::vector<std::string> values = named.others;
      const std::string kind = named.kind;
      const std::vector<std::string> names = kind == "preset"    ? plugins_.presets()
                                             : kind == "machine" ? machines()
                                             : kind.empty()      ? std::vector<std::string>{}
                                                                 : plugins_.names(named.kind);
      values.insert(values.end(), names.begin(), names.end());
      for (const std::string& value : values) offer({prefix + done + value});
      result_.folders = kind == "preset";
      result_.files = kind == "machine";
      return;
    }
    const RunOption* const option = command_->find(name);
    const std::optional<OptionSpec> part = option == nullptr ? find_spec(name) : std::nullopt;
    if (option == nullptr && !part) return;
    const OptionSpec& spec = option != nullptr ? option->spec : *part;
    if (spec.kind == OptionKind::choice) {
      for (const std::string& value : choices_of(spec)) offer({prefix + value});
    } else if (spec.kind == OptionKind::flag) {
      offer({prefix + "on", prefix + "off"});
    } else if (*spec.tunable != '\0') {
      for (const std::string& value : tunable_values(spec, std::string(name))) offer({prefix + value});
    }
    const std::string_view value = option != nullptr ? option->value : "";
    result_.files = value.starts_with("FILE") || value == "PATH" || (part && spec.kind == OptionKind::text);
    result_.folders = value == "FOLDER";
  }

  void operands() {
    const std::string_view operand = command_->operand;
    if (operand == "FILE" || operand == "FOLDER") {
      result_.files = true;
    } else if (operand == "PLUGIN") {
      offer(plugins_.all_names());
    } else if (operand == "COMMAND") {
      offer_commands();
    } else if (operand.starts_with("-- ")) {
      offer({"--"});
    } else if (!operand.empty()) {
      for (const std::string_view word : split(operand, '|')) offer({std::string(word)});
    }
  }

  void offer_commands() {
    for (const Command* command : table_) {
      if (!command->is_hidden() && command->name.find(' ') == std::string_view::npos) offer({std::string(command->name)});
    }
  }
  void offer(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (word.starts_with(typed_)) result_.words.push_back(word);
    }
  }
  Completions done() {
    std::sort(result_.words.begin(), result_.words.end());
    result_.words.erase(std::unique(result_.words.begin(), result_.words.end()), result_.words.end());
    return result_;
  }

  const std::vector<std::string>& words_;
  const CommandTable table_;
  const std::string typed_;
  Plugins plugins_;
  const Command* command_ = nullptr;
  Completions result_;
};

}  // namespace

Completions complete(const std::vector<std::string>& words, CommandTable commands) {
  return Completer(words, commands).run();
}

std::vector<std::string> joined_words(const std::vector<std::string>& words, std::size_t& cut) {
  std::vector<std::string> joined;
  bool open = false;  // the word before ends in '='
  cut = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool equals = words[i] == "=";
    const bool goes_on = (equals || open) && !joined.empty();
    if (goes_on) {
      if (i + 1 == words.size()) cut = joined.back().size() + (equals ? 1 : 0);
      joined.back() += words[i];
    } else {
      joined.push_back(words[i]);
    }
    open = equals;
  }
  return joined;
}

}  // namespace consist::launch
