#include "launch/import/common/key_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist::readers {

void KeyReader::visit(const Json& object, const std::string& prefix) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + name;
    target_.attempt([&, &name = name, &value = value] {
      if (const KeyRule* rule = rule_of(key); rule != nullptr) {
        apply(*rule, key, value);
      } else if (name.starts_with('_') || name.starts_with("//") || name == "comment") {
        target_.note(key, value, "a remark");
      } else {
        target_.refuse(in_quotes(key), "is not known here" + how_to_leave_out(key));
      }
    });
  }
}

void KeyReader::read_all(const Json& root, const std::vector<std::function<void()>>& steps) {
  visit(root, "");
  target_.throw_refusals();
  for (const auto& step : steps) target_.attempt(step);
  target_.throw_refusals();
}

void KeyReader::apply(const KeyRule& rule, const std::string& key, const Json& value) {
  const bool enabled = value.is_object() ? value.value("enabled", Json(true)) != Json(false) && !value.empty()
                                         : value != Json(false) && !value.is_null() && value != Json("");
  switch (rule.key) {
    case KeyKind::own:
    case KeyKind::count:
    case KeyKind::flag:
      read_own(key, value);
      break;
    case KeyKind::no_effect:
    case KeyKind::ignored_group:
      target_.note(key, value, "no effect here: " + std::string(rule.argument));
      break;
    case KeyKind::only:
      read_only_value(rule, key, value);
      break;
    case KeyKind::group:
      if (!value.is_object()) target_.refuse(key, "is " + shown(value) + "; it must be an object");
      visit(value, key + ".");
      break;
    case KeyKind::off:
      if (enabled)
        target_.refuse(key, "is asked for, which is not done here" + std::string(rule.argument.empty() ? "" : "; ") +
                                std::string(rule.argument) + how_to_leave_out(key));
      target_.note(key, value, "off");
      break;
  }
}

void KeyReader::read_only_value(const KeyRule& rule, const std::string& key, const Json& value) {
  std::istringstream list{std::string(rule.argument)};
  for (std::string legal; std::getline(list, legal, '|');) {
    if (Json::parse(legal) != value) continue;
    target_.note(key, value, "as it is here");
    return;
  }
  target_.refuse(
      key, "is " + shown(value) + ", which is not done here; it may be " + std::string(rule.argument) + how_to_leave_out(key));
}

std::string KeyReader::how_to_leave_out(const std::string& key) const {
  const Source& source = target_.source;
  return source.command_line_first ? "; " + source.set_option + " " + printable(key) + "=null leaves it out" : "";
}

void drop_nulls(Json& object, const std::string& prefix, Target& target) {
  for (auto entry = object.begin(); entry != object.end();) {
    const std::string key = prefix + entry.key();
    if (entry->is_null()) {
      target.note(key, *entry, "as if it were absent");
      entry = object.erase(entry);
      continue;
    }
    if (entry->is_object()) drop_nulls(*entry, key + ".", target);
    ++entry;
  }
}

const Json* find_value(const Json& root, const char* outer, const char* inner) {
  const Json* block = find_value(root, outer);
  return block == nullptr ? nullptr : find_value(*block, inner);
}

const Json* find_value(const Json& root, const char* key) {
  if (!root.is_object()) return nullptr;
  const auto entry = root.find(key);
  return entry == root.end() ? nullptr : &*entry;
}

void replace_values(const std::vector<std::string>& replacements, Json& root, Target& target) {
  const Source& source = target.source;
  for (const std::string& replacement : replacements) {
    const std::size_t equals = replacement.find('=');
    const std::string key = replacement.substr(0, equals);
    if (equals == std::string::npos || key.empty() || equals + 1 == replacement.size())
      throw UsageError(source.set_option + " '" + replacement + "' must be KEY=VALUE, such as " + source.example);
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    Json value;
    try {
      value = parse_json(replacement.substr(equals + 1), source.set_option);
    } catch (const DataError&) {
      value = replacement.substr(equals + 1);
    }
    try {
      Json& place = root[Json::json_pointer(pointer)];
      target.detail(printable(key) + " " + shown(value) + " (" + source.set_option + ") in place of " +
                    (place.is_null() ? "nothing" : shown(place)) + " in " + printable(source.path));
      place = std::move(value);
    } catch (const Json::exception&) {
      throw UsageError(source.set_option + " " + replacement + ": " + source.path + " has no object that could hold " + key);
    }
  }
}

}  // namespace consist::readers
