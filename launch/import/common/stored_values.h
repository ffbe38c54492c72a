// Values of a file that mean something together only: kept under a short name until all are read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/import/common/target.h"

namespace consist::readers {

class StoredValues {
 public:
  explicit StoredValues(Target& target) : target_(target) {}

  struct Value {
    std::string key;  ///< as the file has it
    Json value;
  };
  /// Throws UsageError where another key has given `name`.
  void add(const std::string& name, const std::string& key, const Json& value);
  /// Null if the file does not give it.
  const Value* find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }

  /// The value, or `fallback`. Each throws UsageError that names the key for a value of another kind.
  std::int64_t whole(const std::string& name, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number(const std::string& name, double fallback) const;
  bool truth(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  /// One of `legal`.
  std::string choice(const std::string& name, const std::string& fallback, const std::vector<std::string>& legal) const;

  /// A note about the value, if the file gives it.
  void note(const std::string& name, const std::string& what) const;
  /// Throws UsageError that names the key, or `name` itself where it has its default.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

  /// The option takes the value if the file gives it, else the trainer's default.
  template <typename T>
  void state(const std::string& name, const std::string& option, T& target, const T& value) const {
    if (const Value* given = find(name); given != nullptr)
      target_.state(given->key, given->value, option, target, value);
    else
      target_.absent(name, option, target, value);
  }
  /// The same for an option of a plugin.
  void state_plugin(const std::string& name, const std::string& plugin, const std::string& option, const std::string& text) const;

 private:
  Target& target_;
  std::map<std::string, Value> values_;
};

}  // namespace consist::readers
