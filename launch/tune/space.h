// The configurations that `consist tune` looks at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/model.h"
#include "core/config/run_config.h"
#include "launch/predict/choices.h"

namespace consist::launch {

/// How the ranks are divided: "tp-sp=2+pipeline=2+zero2".
struct LayoutChoice {
  std::string strategy;
  int tensor = 1, stages = 1, data = 1;
};

/// Options that the user has given, which are not searched.
struct Settled {
  bool strategy = false, batch = false, recompute = false;
};

/// Every way to divide the ranks over tensor parallelism, within a node of `ranks_per_node`, stages and a data strategy.
std::vector<LayoutChoice> layouts(const RunConfig& config, const ModelSizes& sizes, int ranks_per_node);

/// Micro-batches, largest first, that divide `sequences` (of a step, per data rank); of pipelines only those that give each stage
/// something to do.
std::vector<std::int64_t> micro_batches(std::int64_t sequences, int stages);

/// Options of a layout's strategies to try, the defaults first: schedules of a pipeline.
std::vector<Choices> strategy_options(const LayoutChoice& layout);

}  // namespace consist::launch
