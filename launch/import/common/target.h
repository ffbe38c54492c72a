// Target of the values of another trainer's file, with what is said about each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "consist/model.h"
#include "core/config/run_config.h"

namespace consist::readers {

using Json = nlohmann::json;

bool is_auto(const Json& value);  ///< the text "auto"

/// The command line and the defaults that a file is checked against when it is read.
struct ReaderContext {
  /// True if the option was given on the command line. It is named without its dashes: "steps" for "--steps".
  std::function<bool(const std::string& option)> given;
  /// The sizes of the run's model; asked for only where they are needed.
  std::function<ModelSizes()> sizes;
  /// "zero_optimization.sub_group_size=1e9": values that stand in place of the file's. As in JSON; what is no JSON is a string.
  std::vector<std::string> replacements = {};
  /// Notes have a line for each key instead of a summary of them (--from-notes).
  bool each_key = false;
};

/// A file, as messages name it.
struct Source {
  std::string option = {};      ///< that named it: "--from"
  std::string set_option = {};  ///< that replaces its values: "--from-set"
  std::string format = {};      ///< the first word of notes: "deepspeed"
  std::string path = {};
  std::string example = {};         ///< of a replacement
  std::string trainer = {};         ///< whose defaults absent keys have: "DeepSpeed"
  bool command_line_first = false;  ///< what the command line gives goes before the file; otherwise it must not contradict it
};

std::string as_text(double value);  ///< whole where it is
std::string as_text(std::int64_t value);
std::string as_text(std::uint64_t value);
std::string as_text(int value);
std::string as_text(bool value);
std::string as_text(const std::string& value);

/// A run's configuration while a file is read into it. Options that the command line has given must not contradict the file.
class Target {
 public:
  Target(Source source, const ReaderContext& context, RunConfig& config)
      : config(config), context(context), source(std::move(source)), first_note_(config.notes.size()) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  /// Runs a step of a reader. What it refuses waits for throw_refusals(), so that a file's refusals are said together.
  void attempt(const std::function<void()>& step);
  /// Throws UsageError with everything that attempt() has caught; does nothing if that is nothing.
  void throw_refusals() const;
  /// Sets the strategy that the value of `key` amounts to, unless the command line gives one.
  void state_strategies(const std::string& key, const std::vector<StrategyChoice>& strategies);
  /// Notes the effect of a key. A text that begins with "no effect" says that it has none here.
  void note(const std::string& key, const Json& value, const std::string& what);
  /// A line that is for who asks what became of each key: "parallelism: --ranks 8".
  void detail(const std::string& text);
  /// A line that everybody gets: what is done otherwise here, or could not be read.
  void differs(const std::string& text);

  /// Each throws UsageError that names the key and its value.
  double number(const std::string& key, const Json& value) const;
  std::int64_t whole(const std::string& key, const Json& value, std::int64_t least, std::int64_t most) const;
  bool truth(const std::string& key, const Json& value) const;

  /// The option takes the value of `key`.
  template <typename T>
  void state(const std::string& key, const Json& value, const std::string& option, T& target, const T& wanted) {
    stated.insert(option);
    if (context.given(option) && target != wanted) {
      refuse_other(key, value, "--" + option + " " + as_text(target));
      return;
    }
    target = wanted;
    note(key, value, "--" + option + " " + as_text(wanted));
  }
  /// "auto": the option keeps the value that it has.
  template <typename T>
  void resolve(const std::string& key, const Json& value, const std::string& option, const T& current) {
    note(key, value, "--" + option + " " + as_text(current));
  }
  /// state() of a number, or resolve() of "auto".
  void state_real(const std::string& key, const Json& value, const std::string& option, double& target);
  /// `key` is absent: the option has the trainer's default unless the command line gives it.
  template <typename T>
  void absent(const std::string& key, const std::string& option, T& target, const T& fallback) {
    if (context.given(option) || !stated.insert(option).second) return;
    target = fallback;
    defaults_.push_back("--" + option + " " + as_text(fallback) + " (" + key + ")");
  }
  /// The same for options of a plugin.
  void state_plugin(const std::string& key, const Json& value, const std::string& plugin, const std::string& option,
                    const std::string& text);
  /// "auto": the plugin's option keeps the value that it has.
  void keep_plugin(const std::string& key, const Json& value, const std::string& plugin, const std::string& option);
  /// The plugin's option takes what the file says in several keys together.
  void derive_plugin(const std::string& from, const std::string& plugin, const std::string& option, const std::string& text);
  void absent_plugin(const std::string& key, const std::string& plugin, const std::string& option, const std::string& fallback);

  /// Ends the notes of the file, which come before what differs(): a line for each key, or how many are honoured, and the names
  /// of those that are not.
  void summarize();

  RunConfig& config;
  const ReaderContext& context;
  const Source source;
  std::set<std::string> stated;  ///< options that the file, or the trainer's default, has set

 private:
  /// The command line says something else: throws, or notes that it goes before the file.
  void refuse_other(const std::string& key, const Json& value, const std::string& given);

  /// The beginning of messages.
  std::string where() const { return source.option + " " + source.path + ": "; }

  /// The keys of that fate, with commas between.
  enum class Fate { honoured, without_effect, behind_command_line };
  std::string keys_of(Fate fate) const;

  const std::size_t first_note_;
  std::map<std::string, Fate> fates_;  ///< by key
  std::vector<std::string> details_;
  std::vector<std::string> refusals_;
  std::set<std::string> stated_of_plugins_;
  std::vector<std::string> defaults_;
};

}  // namespace consist::readers
