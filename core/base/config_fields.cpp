#include "consist/config_fields.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"

namespace consist {

using nlohmann::json;

json parse_config(std::string_view text) {
  json object = parse_json(text, "it");
  if (!object.is_object()) throw DataError("it is no JSON object");
  return object;
}

ConfigFields::ConfigFields(const json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

bool ConfigFields::has(const char* name) const {
  return object_.contains(name) && !object_[name].is_null();
}
bool ConfigFields::is_null(const char* name) const {
  return object_.contains(name) && object_[name].is_null();
}
const json& ConfigFields::operator[](const char* name) const {
  return object_[name];
}

std::int64_t ConfigFields::integer(const char* name) const {
  require(name);
  const json& value = object_[name];
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
    refuse(name, "it must be a 64-bit integer");
  return value.get<std::int64_t>();
}
std::int64_t ConfigFields::integer_or(const char* name, std::int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}
double ConfigFields::number(const char* name) const {
  require(name);
  if (!object_[name].is_number()) refuse(name, "it must be a number");
  return object_[name].get<double>();
}
double ConfigFields::number_or(const char* name, double fallback) const {
  return has(name) ? number(name) : fallback;
}
bool ConfigFields::boolean_or(const char* name, bool fallback) const {
  if (!has(name)) return fallback;
  if (!object_[name].is_boolean()) refuse(name, "it must be true or false");
  return object_[name].get<bool>();
}
std::string ConfigFields::text_or(const char* name, const char* fallback) const {
  if (!has(name)) return fallback;
  if (!object_[name].is_string()) refuse(name, "it must be a text");
  return object_[name].get<std::string>();
}

void ConfigFields::read(const char* name, std::int64_t& value, std::int64_t least) const {
  constexpr std::int64_t most = 1 << 24;
  if (!has(name)) return;
  if (!object_[name].is_number_integer() || object_[name] < least || object_[name] > most)
    refuse(name, "it must be an integer between " + std::to_string(least) + " and " + std::to_string(most));
  value = integer(name);
}
void ConfigFields::read(const char* name, double& value) const {
  if (!has(name)) return;
  if (!object_[name].is_number() || !(number(name) > 0)) refuse(name, "it must be a number above 0");
  value = number(name);
}
void ConfigFields::read(const char* name, bool& value) const {
  value = boolean_or(name, value);
}

void ConfigFields::only(const char* name, const json& supported) const {
  if (has(name) && object_[name] != supported) refuse(name, "this plugin supports " + supported.dump());
}

void ConfigFields::require(const char* name) const {
  if (!has(name)) throw DataError("the field \"" + prefix_ + name + "\" is missing");
}

void ConfigFields::refuse(const char* name, const std::string& wanted) const {
  throw DataError("the field \"" + prefix_ + name + "\" is " + shown(object_[name]) + "; " + wanted);
}

}  // namespace consist
