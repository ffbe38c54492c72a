#include "core/plan/other_ranks.h"

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "core/compile/layout.h"
#include "core/plan/parts.h"

namespace consist {
namespace {

/// The largest number of sequences up to `most` of which `sequences` are a multiple.
std::int64_t micro_batch_of(std::int64_t sequences, std::int64_t most) {
  std::int64_t batch = std::min(sequences, most);
  while (sequences % batch != 0) --batch;
  return batch;
}

}  // namespace

RunConfig with_ranks(RunConfig config, int ranks, PluginHost& host) {
  if (ranks == config.ranks) return config;
  const Parts parts = make_parts(config, host);
  const Layout whole = lay_out(parts.uses, config.ranks);
  settle_batch(config, whole);
  const std::string asked = std::to_string(ranks) + " of " + std::to_string(config.ranks) + " ranks";
  Layout fewer;
  try {
    fewer = lay_out(parts.uses, ranks);
  } catch (const UsageError& error) {
    throw UsageError("--strategy " + text_of(config.strategies) + " has no layout for " + asked + ": " + error.what());
  }
  const std::int64_t replicas = fewer.batch_ranks();
  if (fewer.mesh.ranks() / fewer.batch_ranks() != whole.mesh.ranks() / whole.batch_ranks())
    throw UsageError("--strategy " + text_of(config.strategies) + " has no whole replicas on " + asked);
  if (config.global_batch % replicas != 0)
    throw UsageError("a global batch of " + std::to_string(config.global_batch) + " sequences cannot be divided over the " +
                     std::to_string(replicas) + " replicas on " + asked + "; choose --global-batch as a multiple of " +
                     std::to_string(replicas));
  const std::int64_t sequences = config.global_batch / replicas, asked_batch = config.batch;
  config.batch = micro_batch_of(sequences, asked_batch);
  config.accumulation = static_cast<int>(sequences / config.batch);
  config.ranks = ranks;
  config.notes.push_back(asked + " are left, each with --batch " + std::to_string(config.batch) + " --accumulation " +
                         std::to_string(config.accumulation) + ": the global batch stays " + std::to_string(config.global_batch));
  return config;
}

}  // namespace consist
