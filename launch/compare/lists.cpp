#include "launch/compare/lists.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "consist/error.h"
#include "core/base/split.h"
#include "core/config/option_table.h"

namespace consist::launch {
namespace {

ListRule rule_of_plugin(const std::string& name, PluginHost& host) {
  const std::size_t dot = name.find('.');
  for (const PluginFile& file : host.files()) {
    if (file.name != name.substr(0, dot) || !file.problem.empty()) continue;
    for (const OptionSpec& spec : host.option_table(file.kind, file.name)) {
      if (name.compare(dot + 1, std::string::npos, spec.name) != 0) continue;
      if (spec.kind == OptionKind::flag) return ListRule::no_value;
      return spec.kind == OptionKind::text ? ListRule::groups : ListRule::commas;
    }
  }
  return ListRule::single;
}

/// "a,b" at its commas.
std::vector<std::string> at_commas(const std::string& list) {
  const std::vector<std::string_view> values = split(list, ',');
  return {values.begin(), values.end()};
}

/// "[a,b],[c]" between its groups, brackets included; empty if the text is not made of at least two.
std::vector<std::string> at_groups(const std::string& list) {
  std::vector<std::string> values;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = list.find("],[", begin);
    if (list[begin] != '[' || (end == std::string::npos && list.back() != ']')) return {};
    const std::size_t past = end == std::string::npos ? list.size() : end + 1;
    values.push_back(list.substr(begin, past - begin));
    begin = past + 1;
  }
  return values.size() < 2 ? std::vector<std::string>{} : values;
}

/// "swiglu+rms_norm" as train takes it.
std::string with_commas(std::string value) {
  std::replace(value.begin(), value.end(), '+', ',');
  return value;
}

}  // namespace

ListRule list_rule(const std::string& name, PluginHost& host) {
  if (name.find('.') != std::string::npos) return rule_of_plugin(name, host);
  const RunOption* option = find_run_option(name);
  if (option == nullptr) return ListRule::single;
  if (option->is_switch()) return ListRule::no_value;
  switch (option->sweep) {
    case Sweep::commas:
      return ListRule::commas;
    case Sweep::pluses:
      return ListRule::pluses;
    case Sweep::groups:
      return ListRule::groups;
    case Sweep::keyed:
      return ListRule::keyed;
    case Sweep::none:
      return ListRule::single;
  }
  return ListRule::single;
}

Listed read_list(const std::string& name, const std::string& text, ListRule rule) {
  Listed listed{name, {}};
  std::string key, list = text;
  if (rule == ListRule::keyed) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string path = text.substr(0, equals);
    key = path + "=";
    list = text.substr(std::min(equals + 1, text.size()));
    listed.name = path.substr(path.rfind('.') + 1);
  }
  std::vector<std::string> values = rule == ListRule::single ? std::vector<std::string>{} : at_groups(list);
  const bool grouped = !values.empty();
  // An array, and the text of a config.json as --model, have commas of their own.
  const bool array = (rule == ListRule::keyed && list.starts_with('[')) || list.starts_with('{');
  if (!grouped) {
    values = rule == ListRule::single || rule == ListRule::groups || array ? std::vector<std::string>{list} : at_commas(list);
  }
  std::set<std::string> seen;
  for (std::string& value : values) {
    if (grouped && rule != ListRule::keyed) value = value.substr(1, value.size() - 2);
    const bool may_be_empty = rule == ListRule::single || rule == ListRule::groups;
    if (value.empty() && !may_be_empty) throw UsageError("--" + name + " '" + text + "' has an empty entry");
    if (!seen.insert(value).second) throw UsageError("--" + name + " '" + text + "' lists '" + value + "' twice");
    listed.values.emplace_back(value, key + (rule == ListRule::pluses ? with_commas(value) : value));
  }
  return listed;
}

}  // namespace consist::launch
