// A step in stages by arithmetic: the schedule's parts, played with the seconds of layers instead of compiled programs.
#pragma once

#include <vector>

#include "consist/stage_estimate.h"
#include "plugins/strategies/pipeline/orders.h"
#include "plugins/strategies/pipeline/stages.h"

namespace consist::pipeline {

/// The strategy's options that the estimate needs.
struct EstimatedSchedule {
  Schedule schedule = Schedule::one_f_one_b;
  int chunks = 1;
  Cut cut = Cut::automatic;
  bool sends_first = true;
  std::vector<double> speeds = {};
};

/// Stages are cut as assign_stages() does, of pieces that are equal parts of a layer; parts begin when the rank's part before has
/// ended and their messages have arrived. Throws UsageError as assign_stages().
StageEstimate estimate_stages(const EstimatedSchedule& asked, const StageRequest& request);

}  // namespace consist::pipeline
