// The strategies of ZeRO, but for their names and options.
#pragma once

#include "consist/strategy.h"
#include "plugins/strategies/zero/settings.h"

namespace consist::zero {

class ZeroStrategy : public ParallelStrategy {
 public:
  explicit ZeroStrategy(Settings settings) : settings_(settings) {}

  AxisRequest axis() const override {
    return {.name = "data",
            .takes_rest = true,
            .splits_batch = true,
            .most_axes = Mesh::max_axes,
            .takes_shared = true,
            .on_one_rank = settings_.offload_param || settings_.offload_optimizer ? OnOneRank::is_called
                                                                                  : OnOneRank::changes_nothing};
  }
  void partition(Program& forward, AxisSet axes) const override;
  void schedule(Program& step, AxisSet axes) const override;
  void finish(Program& program, AxisSet axes) const override;

 private:
  Settings settings_;
};

}  // namespace consist::zero
