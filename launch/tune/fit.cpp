#include "launch/tune/fit.h"

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "core/plan/parts.h"

namespace consist::launch {
namespace {

constexpr std::int64_t sequence_unit = 1024;
constexpr std::int64_t most_positions = std::int64_t{1} << 20;  // of a model that states none
constexpr std::int64_t most_sequences = 1 << 16;                // of a rank

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
