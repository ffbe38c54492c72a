#include "launch/search/tune/fit.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "core/plan/found_model.h"
#include "core/plan/parts.h"
#include "launch/search/tune/trier.h"

namespace consist::launch {
namespace {

constexpr std::int64_t sequence_unit = 1024;
constexpr std::int64_t most_positions = std::int64_t{1} << 20;  // of a model that states none
constexpr std::int64_t most_sequences = 1 << 16;                // of a rank

/// Configurations of each layout that need little memory.
Points small_ones(const Space& space) {
  Points points;
  for (std::size_t layout = 0; layout < space.layouts().size(); ++layout) {
    Point point = space.first(layout);
    if (const std::vector<std::string> batches = space.values_of(layout, "batch"); !batches.empty())
      space.set(point, "batch", batches.back());
    space.set(point, "recompute", "full");
    points.push_back(point);
    if (space.set(point, offload_option, "all")) points.push_back(point);
  }
  return points;
}

/// One of each layout, the least first.
Points least_memory(const Space& space, const Findings& found) {
  std::vector<std::pair<std::int64_t, Point>> by_bytes;
  for (std::size_t layout = 0; layout < space.layouts().size(); ++layout) {
    std::pair<std::int64_t, Point> least{std::numeric_limits<std::int64_t>::max(), {}};
    for (const Point& point : found.best_of_layout(layout)) least = std::min(least, {found.find(point)->surest().bytes, point});
    if (least.first < std::numeric_limits<std::int64_t>::max()) by_bytes.push_back(std::move(least));
  }
  std::sort(by_bytes.begin(), by_bytes.end());
  Points points;
  for (auto& [bytes, point] : by_bytes) points.push_back(std::move(point));
  return points;
}

}  // namespace

std::int64_t largest_that_fits(std::int64_t unit, std::int64_t most, const std::function<bool(std::int64_t)>& fits) {
  std::int64_t fitting = 0, units = most / unit;  // in units; `units` fits, or is not known yet
  for (std::int64_t next = 1; fitting < units; next = std::min(2 * fitting, units)) {
    if (fits(next * unit)) {
      fitting = next;
    } else {
      units = next - 1;
      break;
    }
  }
  while (fitting < units) {
    const std::int64_t middle = (fitting + units + 1) / 2;
    if (fits(middle * unit)) {
      fitting = middle;
    } else {
      units = middle - 1;
    }
  }
  return fitting * unit;
}

bool anything_fits(const SearchRequest& request, PluginHost& host) {
  constexpr int rounds = 3;
  constexpr std::size_t layouts_of_round = 3;
  Trier trier(request, host);
  Points points = small_ones(trier.space());
  // Then around those that need the least what differs in one option, several times.
  for (int round = 0; round <= rounds; ++round) {
    trier.try_all(points, Depth::quick);
    Points smallest = least_memory(trier.space(), trier.found());
    smallest.resize(std::min(layouts_of_round, smallest.size()));
    trier.try_all(smallest, Depth::simulated);
    if (trier.found().best_score(false) < std::numeric_limits<double>::infinity()) return true;
    points.clear();
    for (const Point& point : smallest) {
      const Points around = trier.space().around(point, 1);
      points.insert(points.end(), around.begin(), around.end());
    }
  }
  return false;
}

void fit_sequence(SearchRequest& request, PluginHost& host) {
  const std::int64_t positions = model_sizes(request.config, host).max_sequence;
  request.config.sequence =
      largest_that_fits(sequence_unit, positions > 0 ? positions : most_positions, [&](std::int64_t sequence) {
        SearchRequest asked = request;
        asked.config.sequence = sequence;
        return anything_fits(asked, host);
      });
  if (request.config.sequence == 0)
    throw UsageError("--fit sequence: not even sequences of " + std::to_string(sequence_unit) + " tokens fit " +
                     request.machine->name + " or the model's positions; more ranks, or a smaller model, would");
}

void fit_batch(SearchRequest& request, PluginHost& host) {
  request.settled.batch = true;
  request.config.batch = 0;  // follows from the global batch
  request.config.accumulation = 1;
  const std::int64_t ranks = request.config.ranks;
  request.config.global_batch = largest_that_fits(ranks, most_sequences * ranks, [&](std::int64_t sequences) {
    SearchRequest asked = request;
    asked.config.global_batch = sequences;
    return anything_fits(asked, host);
  });
  if (request.config.global_batch == 0)
    throw UsageError("--fit batch: not even one sequence of " + std::to_string(request.config.sequence) +
                     " tokens for each rank fits " + request.machine->name + "; more ranks, or a smaller --sequence, would");
}

}  // namespace consist::launch
