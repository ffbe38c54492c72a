#include "core/plan/expert_load.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/op.h"
#include "core/archive/reader.h"
#include "core/base/number.h"
#include "core/experts/room_for_rows.h"

namespace consist {
namespace {

using Shares = std::vector<double>;

constexpr std::string_view zipf = "zipf:";

std::vector<Shares> shares_of_file(const std::string& path) {
  const nlohmann::json list = read_json(path);
  const auto is_share = [](const nlohmann::json& share) { return share.is_number() && share.get<double>() >= 0; };
  if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), is_share))
    throw UsageError("--expert-load " + path + ": the file must be a JSON list of numbers, 0 or more, one for each expert");
  return {list.get<Shares>()};
}

/// Choices of each router and expert, over all recorded steps, as one list: how many experts a router has the model knows.
std::vector<Shares> choices_of_archive(const std::string& path) {
  Shares sum;
  for (const ArchivedChoices& row : ArchiveReader(path).experts()) {
    sum.resize(row.choices.size());
    std::transform(row.choices.begin(), row.choices.end(), sum.begin(), sum.begin(), std::plus<>());
  }
  if (sum.empty()) throw UsageError("--expert-load " + path + ": the archive has no choices of experts (/experts)");
  return {std::move(sum)};
}

/// Sums to 1, no share above `most`.
void normalize(Shares& shares, double most) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!(all > 0)) throw UsageError("--expert-load: some expert must have a share above 0");
  for (double& share : shares) share /= all;
  std::vector<bool> is_full(shares.size());
  for (std::size_t round = 0; round < shares.size(); ++round) {
    double left = 1, open = 0;
    for (std::size_t e = 0; e < shares.size(); ++e) (is_full[e] ? left : open) += is_full[e] ? -most : shares[e];
    bool is_done = true;
    for (std::size_t e = 0; e < shares.size(); ++e) {
      if (is_full[e]) continue;
      // Where the others have no share of their own, what is left goes to them equally.
      const auto others = static_cast<double>(std::ranges::count(is_full, false));
      shares[e] = open > 0 ? shares[e] * left / open : left / others;
    }
    for (std::size_t e = 0; e < shares.size(); ++e) {
      if (is_full[e] || shares[e] <= most) continue;
      shares[e] = most;
      is_full[e] = true;
      is_done = false;
    }
    if (is_done) break;
  }
}

/// Over groups of neighbours, equally many in each: the largest of what `of` says of a group.
template <typename Of>
double largest(const Shares& shares, int groups, const Of& of) {
  double most = 0;
  const std::size_t size = shares.size() / static_cast<std::size_t>(groups);
  for (std::size_t begin = 0; begin + size <= shares.size(); begin += size)
    most = std::max(most, of(std::span(shares).subspan(begin, size)));
  return most;
}

double sum_of(std::span<const double> shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

bool sends(const Instruction& i) {
  return i.attributes.has("ranks");
}

constexpr std::size_t experts_input = 1, counts_output = 3;

/// Calls `take` with each instruction that has a capacity, the tokens' choices along all ranks as [tokens, choices], and the
/// number of groups of experts.
template <typename Take>
void each_dispatch(const Program& program, const Take& take) {
  std::int64_t tokens = 0, choices = 0;  // of those that were sent, before they were
  for (const Instruction& i : program.instructions) {
    if (!i.op->dispatches_tokens()) continue;
    const Shape& shape = program[i.inputs[experts_input]].shape;
    if (shape.rank() == 3) {
      tokens = shape.rows();
      choices = shape.last();
    }
    const int groups = i.attributes.has("axis") ? program.mesh.size_of(i.attributes.axes("axis")) : 1;
    take(i, tokens, choices, groups);
  }
}

/// Logical rows at experts, or tokens in flight from rank to rank.
double capacity_of(const Program& program, const Instruction& i) {
  const Shape& shape = program[i.outputs.front()].shape;
  return static_cast<double>(shape[shape.rank() - 2]);
}

}  // namespace

std::shared_ptr<const ExpertLoad> ExpertLoad::parse(const std::string& text) {
  if (text == natural_experts) return nullptr;
  ExpertLoad load;
  load.text_ = text;
  if (text == "balanced") {
    load.exponent_ = 0;
  } else if (text.starts_with(zipf)) {
    if (!parse_number(std::string_view(text).substr(zipf.size()), load.exponent_) || !(load.exponent_ >= 0) ||
        !std::isfinite(load.exponent_))
      throw UsageError("--expert-load '" + text + "' needs a number, 0 or more, as in zipf:1");
  } else if (text.ends_with(".h5") || text.ends_with(".hdf5")) {
    load.stated_ = choices_of_archive(text);
  } else if (text.ends_with(".json")) {
    load.stated_ = shares_of_file(text);
  } else {
    throw UsageError("--expert-load '" + text +
                     "' is none of natural, balanced, zipf:S, a list of shares (FILE.json) and an archive (FILE.h5)");
  }
  return std::make_shared<const ExpertLoad>(std::move(load));
}

std::vector<Shares> ExpertLoad::shares(std::int64_t experts, std::int64_t choices) const {
  std::vector<Shares> layers;
  const auto count = static_cast<std::size_t>(experts);
  if (stated_.empty()) {
    layers.emplace_back(count);
    for (std::size_t e = 0; e < count; ++e) layers[0][e] = std::pow(static_cast<double>(e + 1), -exponent_);
  } else {
    const Shares& all = stated_.front();
    if (all.size() % count != 0 || (all.size() != count && text_.ends_with(".json")))
      throw UsageError("--expert-load " + text_ + " has " + std::to_string(all.size()) + " shares, the model " +
                       std::to_string(experts) + " experts");
    for (auto begin = all.begin(); begin != all.end(); begin += static_cast<std::ptrdiff_t>(count))
      layers.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  for (Shares& layer : layers) normalize(layer, 1 / static_cast<double>(std::min(choices, experts)));
  return layers;
}

double ExpertLoad::room_for(const Program& program) const {
  double most = 1;  // rows over the capacity
  each_dispatch(program, [&](const Instruction& i, std::int64_t tokens, std::int64_t choices, int groups) {
    const std::vector<Shares> layers = shares(i.attributes.integer("experts"), choices);
    if (!i.attributes.has("axis")) return;
    for (const Shares& layer : layers) {
      double needed = 0;
      if (sends(i)) {
        const auto reached = [&](std::span<const double> experts) {
          double none = 1;
          for (const double share : experts) none *= std::max(0.0, 1 - share * static_cast<double>(choices));
          return 1 - none;
        };
        needed = largest(layer, groups, reached) * static_cast<double>(tokens) / groups;
      } else {
        needed = largest(layer, groups, sum_of) * groups * static_cast<double>(tokens * choices);
      }
      most = std::max(most, needed / capacity_of(program, i));
    }
  });
  double room = 1;
  while (room < most) room *= room_growth;
  return room;
}

void ExpertLoad::rate(Program& program, double room) const {
  if (room <= 1) return;
  std::map<TensorId, double> used;  // by counts: the fraction of rows
  each_dispatch(program, [&](const Instruction& i, std::int64_t tokens, std::int64_t choices, int groups) {
    if (!i.attributes.has("axis") || sends(i)) return;
    const std::vector<Shares> layers = shares(i.attributes.integer("experts"), choices);
    double mean = 0;
    for (const Shares& layer : layers) {
      const double rows = largest(layer, groups, sum_of) * groups * static_cast<double>(tokens * choices);
      mean += std::clamp(rows / capacity_of(program, i), 1 / room, 1.0) / static_cast<double>(layers.size());
    }
    used[i.outputs[counts_output]] = mean;
  });
  for (Instruction& i : program.instructions) {
    for (const TensorId input : i.inputs) {
      if (const auto of_counts = used.find(input); of_counts != used.end()) i.attributes.set("used_rows", of_counts->second);
    }
  }
}

}  // namespace consist
