// Where the values of a DeepSpeed JSON go, and what is said about each.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "launch/readers/deepspeed_config.h"

namespace consist::deepspeed {

using Json = nlohmann::json;

inline bool is_auto(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>() == "auto";
}

std::string lower(std::string text);  ///< of ASCII

std::string as_text(double value);  ///< whole where it is
std::string as_text(std::int64_t value);
std::string as_text(int value);
std::string as_text(bool value);
std::string as_text(const std::string& value);

/// A run's configuration while a file is read into it. Options that the command line has given must not contradict the file.
class Target {
 public:
  Target(std::string path, const DeepspeedContext& context, RunConfig& config)
      : config(config), context(context), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  /// One line for people about a key.
  void note(const std::string& key, const Json& value, const std::string& what);

  /// Each throws UsageError that names the key and its value.
  double number(const std::string& key, const Json& value) const;
  std::int64_t whole(const std::string& key, const Json& value, std::int64_t least, std::int64_t most) const;
  bool truth(const std::string& key, const Json& value) const;

  /// The option takes the value of `key`.
  template <typename T>
  void state(const std::string& key, const Json& value, const std::string& option, T& target, const T& wanted) {
    if (context.given(option) && target != wanted) refuse_other(key, value, "--" + option + " " + as_text(target));
    target = wanted;
    stated.insert(option);
    note(key, value, "--" + option + " " + as_text(wanted));
  }
  /// "auto": the option keeps the value that it has.
  template <typename T>
  void resolve(const std::string& key, const Json& value, const std::string& option, const T& current) {
    note(key, value, "--" + option + " " + as_text(current));
  }
  /// state() of a number, or resolve() of "auto".
  void state_real(const std::string& key, const Json& value, const std::string& option, double& target);
  /// `key` is absent: the option has DeepSpeed's default unless the command line gives it.
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
  void absent_plugin(const std::string& key, const std::string& plugin, const std::string& option, const std::string& fallback);

  /// The note about everything that was absent.
  void note_defaults();

  RunConfig& config;
  const DeepspeedContext& context;
  std::set<std::string> stated;  ///< options that the file, or DeepSpeed's default, has set

 private:
  [[noreturn]] void refuse_other(const std::string& key, const Json& value, const std::string& given) const;

  std::string path_;
  std::set<std::string> stated_of_plugins_;
  std::vector<std::string> defaults_;
};

}  // namespace consist::deepspeed
