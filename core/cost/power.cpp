#include "core/cost/power.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"
#include "core/cost/file_object.h"

namespace consist {
namespace {

/// Watts of the kind of work with that name, else those of all kinds that are not named.
double watts_of(const Power& power, std::string_view work) {
  const auto load_of = [&](std::string_view name) {
    return std::find_if(power.loads.begin(), power.loads.end(), [&](const Power::Load& load) { return load.work == name; });
  };
  const auto own = load_of(work);
  return own != power.loads.end() ? own->watts.value : load_of("*")->watts.value;
}

}  // namespace

Power power_from(FileObject object) {
  Power power;
  if (object.has("clock")) power.clock = object.figure("clock", 0, true);
  if (object.has("limit")) power.limit = object.figure("limit", 0, true);
  if (object.has("idle")) power.idle = object.figure("idle", 0, true);
  if (object.has("loads")) {
    for (const nlohmann::json& json : object.list("loads")) {
      FileObject load(json, object.name("loads") + "[" + std::to_string(power.loads.size()) + "]");
      const std::string work = load.text("work");
      std::string known = "*";
      bool is_known = work == "*";
      for (const Work kind : all_work) {
        known += ", " + std::string(name_of(kind));
        is_known = is_known || work == name_of(kind);
      }
      if (!is_known) throw DataError(load.name("work") + " is " + shown(nlohmann::json(work)) + "; it can be " + known);
      for (const Power::Load& other : power.loads) {
        if (other.work == work) throw DataError(load.name("work") + ": " + work + " stands in the list twice");
      }
      power.loads.push_back({work, {load.number("value", 0, true), load.source()}});
      load.finish();
    }
    const bool has_rest = std::any_of(power.loads.begin(), power.loads.end(), [](const auto& load) { return load.work == "*"; });
    if (!has_rest) throw DataError(object.name("loads") + " must say what work \"*\" draws, for all that is not named");
    if (power.idle.value == 0)
      throw DataError(object.name("loads") + " needs \"idle\" beside it: what a device draws that waits");
  }
  object.finish();
  if (!power.is_known()) throw DataError(object.name("limit") + " and loads are missing: give one of them, or leave out power");
  return power;
}

Power power_from_json(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name, {.repeated = JsonRules::Repeated::refused, .comments = true});
  FileObject object(json, name);
  return object.has("power") ? power_from(object.object("power")) : Power();
}

nlohmann::ordered_json json_of(const Power& power) {
  nlohmann::ordered_json json;
  if (power.clock.value > 0) json["clock"] = json_of(power.clock);
  if (power.limit.value > 0) json["limit"] = json_of(power.limit);
  if (power.idle.value > 0) json["idle"] = json_of(power.idle);
  for (const Power::Load& load : power.loads)
    json["loads"].push_back({{"work", load.work}, {"value", load.watts.value}, {"source", name_of(load.watts.source)}});
  return json;
}

std::string origin_of(const Power& power) {
  if (power.is_bound()) {
    const std::string watts = fixed_text(power.limit.value, 0) + " W";
    if (power.limit.source == FigureSource::data_sheet) return "at most, by the power limit of the data sheet (" + watts + ")";
    return "at most, by the power limit (" + watts + ", " + std::string(name_of(power.limit.source)) + ")";
  }
  std::set<std::string> sources{std::string(name_of(power.idle.source))};
  for (const Power::Load& load : power.loads) sources.emplace(name_of(load.watts.source));
  std::string text;
  for (const std::string& source : sources) text += (text.empty() ? "" : " and ") + source;
  return "by powers " + text;
}

double joules_of(const Power& power, double seconds, const WorkSeconds& work) {
  if (power.is_bound()) return power.limit.value * seconds;
  double joules = power.idle.value * seconds;
  for (const Work kind : all_work)
    joules += (watts_of(power, name_of(kind)) - power.idle.value) * work[static_cast<std::size_t>(kind)];
  return joules;
}

}  // namespace consist
