#include "core/config/dataset_choices.h"

#include <algorithm>
#include <numeric>

#include "consist/error.h"
#include "core/base/split.h"

namespace consist {
namespace {

constexpr const char* example = "text=0.7+jsonl=0.3, or for two of a kind jsonl@code=2+jsonl@chat=1";

/// A weight in millionths; 0 if it is none.
std::int64_t millionths(std::string_view text) {
  constexpr std::size_t most_digits = 6;
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point), part = text.substr(std::min(point + 1, text.size()));
  if (whole.size() > most_digits || part.size() > most_digits || whole.size() + part.size() == 0) return 0;
  std::string digits = std::string(whole) + std::string(part) + std::string(most_digits - part.size(), '0');
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return 0;
  return std::stoll(digits);
}

[[noreturn]] void refuse_datasets(const std::string& text, const std::string& why) {
  throw UsageError("--dataset " + text + ": " + why + "; write for example " + example);
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

std::string plugin_of(const std::string& owner) {
  return owner.substr(0, owner.find('@'));
}

std::vector<DatasetChoice> parse_datasets(const std::string& text) {
  std::vector<DatasetChoice> datasets;
  const std::vector<std::string_view> parts = split(text, '+');
  for (const std::string_view part : parts) {
    DatasetChoice choice;
    const std::size_t equals = std::min(part.find('='), part.size());
    choice.name = part.substr(0, equals);
    choice.plugin = plugin_of(choice.name);
    if (choice.plugin.empty()) refuse_datasets(text, "a part has no name");
    if (choice.name != choice.plugin && !is_name(std::string_view(choice.name).substr(choice.plugin.size() + 1)))
      refuse_datasets(text, "'" + choice.name + "' has no name behind the @ that consists of letters, digits, - and _");
    if (std::any_of(datasets.begin(), datasets.end(), [&](const DatasetChoice& d) { return d.name == choice.name; }))
      refuse_datasets(text, "'" + choice.name + "' stands there twice, and options could not tell them apart");
    if (parts.size() == 1 && equals != part.size()) refuse_datasets(text, "a single dataset has no weight");
    if (parts.size() > 1 && equals == part.size()) refuse_datasets(text, "'" + choice.name + "' has no weight");
    if (parts.size() > 1) choice.weight = millionths(part.substr(equals + 1));
    if (choice.weight == 0)
      refuse_datasets(text, "the weight '" + std::string(part.substr(equals + 1)) +
                                "' is no number above 0 of at most six digits before and behind the point");
    datasets.push_back(std::move(choice));
  }
  std::int64_t divisor = 0;
  for (const DatasetChoice& dataset : datasets) divisor = std::gcd(divisor, dataset.weight);
  for (DatasetChoice& dataset : datasets) dataset.weight /= divisor;
  if (period_of(datasets) > most_period)
    refuse_datasets(text, "these weights come out exactly only in every " + std::to_string(period_of(datasets)) +
                              " sequences; choose rounder ones, for " + std::to_string(most_period) + " at most");
  return datasets;
}

std::int64_t period_of(const std::vector<DatasetChoice>& datasets) {
  std::int64_t sum = 0;
  for (const DatasetChoice& dataset : datasets) sum += dataset.weight;
  return sum;
}

std::map<std::string, std::string> options_of_owner(const RunConfig& config, const std::string& owner) {
  std::map<std::string, std::string> options;
  for (const std::string& from : {owner, plugin_of(owner)}) {  // what is there stays
    if (const auto found = config.plugin_options.find(from); found != config.plugin_options.end())
      options.insert(found->second.begin(), found->second.end());
  }
  return options;
}

}  // namespace consist
