// The strategies of ZeRO, but for their names and options.
#pragma once

#include "consist/strategy.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

class ZeroStrategy : public ParallelStrategy {
 public:
  explicit ZeroStrategy(Settings settings) : settings_(settings) {}

  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }
  void partition(Program& forward, int axis) const override;
  void schedule(Program& step, int axis) const override;
  void finish(Program& program, int axis) const override;

 private:
  Settings settings_;
};

}  // namespace consist::zero
