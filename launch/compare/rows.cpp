#include "launch/compare/rows.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "consist/error.h"

namespace consist::launch {
namespace {

/// True if a value of the option is clear without the option's name.
bool speaks_for_itself(const std::string& option) {
  return option == "model" || option == "strategy" || option == "transport" || option == "precision" || option == "optimizer" ||
         option == "schedule" || option == "adapter" || option == "loss" || option == "machine" || option == "device" ||
         option == "from";
}

/// A value as part of a file name.
std::string plain(std::string value) {
  if (value.find('/') != std::string::npos)
    value = std::filesystem::path(value).filename().empty() ? "folder" : std::filesystem::path(value).filename().string();
  for (char& c : value) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '+' && c != '=') c = '_';
  }
  return value;
}

std::string label_of(const CompareRow& row) {
  std::string label;
  for (const auto& [option, value] : row.varied) {
    if (value == no_such_option) continue;
    const std::string name = speaks_for_itself(option)         ? ""
                             : option == "recompute"           ? "recompute-"
                             : option == "offload-activations" ? "offload-"
                                                               : option;
    label += (label.empty() ? "" : "_") + name + plain(value);
  }
  return label.empty() ? "run" : label;
}

}  // namespace

std::vector<CompareRow> expand_rows(const std::vector<std::string>& arguments, const ListRules& rules) {
  std::vector<CompareRow> rows(1);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string option =
        argument.starts_with("--") ? argument.substr(2, equals == std::string::npos ? equals : equals - 2) : "";
    ListRule rule = option.empty() ? ListRule::no_value : rules(option);
    if (rule == ListRule::no_value && equals != std::string::npos && !option.empty()) rule = ListRule::commas;
    // Options that do not exist may be switches or not: their words are left as they stand, to be refused as such.
    if (rule == ListRule::no_value || rule == ListRule::single) {
      for (CompareRow& row : rows) row.arguments.push_back(argument);
      continue;
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) throw UsageError("--" + option + " needs a value");
    const Listed listed = read_list(option, equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1), rule);
    std::vector<CompareRow> expanded;
    for (const CompareRow& row : rows) {
      for (const auto& [shown, value] : listed.values) {
        expanded.push_back(row);
        if (equals == std::string::npos) {
          expanded.back().arguments.insert(expanded.back().arguments.end(), {"--" + option, value});
        } else {
          expanded.back().arguments.push_back("--" + option + "=" + value);
        }
        if (listed.values.size() > 1 || option == "model") expanded.back().varied.emplace_back(listed.name, shown);
      }
    }
    rows = std::move(expanded);
  }
  label_rows(rows);
  return rows;
}

void leave_out_options_of(const std::string& owner, CompareRow& row) {
  std::vector<std::string> kept;
  const std::string prefix = "--" + owner + ".";
  for (std::size_t i = 0; i < row.arguments.size(); ++i) {
    if (!row.arguments[i].starts_with(prefix)) {
      kept.push_back(row.arguments[i]);
      continue;
    }
    const bool has_value = row.arguments[i].find('=') == std::string::npos && i + 1 < row.arguments.size() &&
                           !row.arguments[i + 1].starts_with("--");
    if (has_value) ++i;
  }
  row.arguments = std::move(kept);
  for (auto& [option, value] : row.varied) {
    if (option.starts_with(owner + ".")) value = no_such_option;
  }
}

void label_rows(std::vector<CompareRow>& rows) {
  std::vector<CompareRow> kept;
  std::set<std::vector<std::pair<std::string, std::string>>> seen;
  std::set<std::string> labels;
  for (CompareRow& row : rows) {
    const bool left_out =
        std::any_of(row.varied.begin(), row.varied.end(), [](const auto& choice) { return choice.second == no_such_option; });
    if (!seen.insert(row.varied).second && left_out) continue;
    row.label = label_of(row);
    if (!labels.insert(row.label).second) throw UsageError("the configuration '" + row.label + "' is listed twice");
    kept.push_back(std::move(row));
  }
  rows = std::move(kept);
}

std::string label_of_repeat(const CompareRow& row, int repeat) {
  return repeat == 1 ? row.label : row.label + ".repeat" + std::to_string(repeat);
}

}  // namespace consist::launch
