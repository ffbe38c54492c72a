#include "launch/import/common/stored_values.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "consist/json_input.h"

namespace consist::readers {

void StoredValues::add(const std::string& name, const std::string& key, const Json& value) {
  const auto [known, is_new] = values_.emplace(name, Value{key, value});
  if (!is_new) target_.refuse(key, "is given beside " + known->second.key + ", which means the same; leave one of them out");
}

const StoredValues::Value* StoredValues::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

std::int64_t StoredValues::whole(const std::string& name, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
  const Value* given = find(name);
  return given == nullptr ? fallback : target_.whole(given->key, given->value, least, most);
}

double StoredValues::number(const std::string& name, double fallback) const {
  const Value* given = find(name);
  return given == nullptr ? fallback : target_.number(given->key, given->value);
}

bool StoredValues::truth(const std::string& name, bool fallback) const {
  const Value* given = find(name);
  return given == nullptr ? fallback : target_.truth(given->key, given->value);
}

std::string StoredValues::text(const std::string& name, const std::string& fallback) const {
  const Value* given = find(name);
  if (given == nullptr) return fallback;
  if (!given->value.is_string()) target_.refuse(given->key, "is " + shown(given->value) + "; it must be a text");
  return given->value.get<std::string>();
}

std::string StoredValues::choice(const std::string& name, const std::string& fallback,
                                 const std::vector<std::string>& legal) const {
  const std::string read = text(name, fallback);
  if (std::find(legal.begin(), legal.end(), read) != legal.end()) return read;
  std::string known;
  for (const std::string& one : legal) known += (known.empty() ? "" : ", ") + one;
  refuse(name, "is " + shown(Json(read)) + ", which is not done here; it may be one of " + known);
}

void StoredValues::note(const std::string& name, const std::string& what) const {
  if (const Value* given = find(name); given != nullptr) target_.note(given->key, given->value, what);
}

void StoredValues::refuse(const std::string& name, const std::string& why) const {
  const Value* given = find(name);
  target_.refuse(given == nullptr ? name + " (its default)" : given->key, why);
}

void StoredValues::state_plugin(const std::string& name, const std::string& plugin, const std::string& option,
                                const std::string& text) const {
  if (const Value* given = find(name); given != nullptr)
    target_.state_plugin(given->key, given->value, plugin, option, text);
  else
    target_.absent_plugin(name, plugin, option, text);
}

}  // namespace consist::readers
