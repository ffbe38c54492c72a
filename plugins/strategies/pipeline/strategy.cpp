// Pipeline parallel: each rank has some of the layers; micro-batches pass through the ranks one behind the other.
#include "consist/strategy.h"

#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/strategies/pipeline/divide.h"
#include "plugins/strategies/pipeline/held_messages.h"
#include "plugins/strategies/pipeline/orders.h"
#include "plugins/strategies/pipeline/reorder.h"
#include "plugins/strategies/pipeline/stages.h"

namespace {

using namespace consist;
using pipeline::Schedule;

Schedule schedule_of(const std::string& name) {
  if (name == "gpipe") return Schedule::gpipe;
  if (name == "interleaved") return Schedule::interleaved;
  if (name == "zero-bubble") return Schedule::zero_bubble;
  if (name == "zero-bubble-h2") return Schedule::zero_bubble_h2;
  return Schedule::one_f_one_b;
}

class Pipeline final : public ParallelStrategy {
 public:
  explicit Pipeline(const Options& options)
      : schedule_(schedule_of(options.text("schedule"))),
        chunks_(schedule_ == Schedule::interleaved ? static_cast<int>(options.integer("chunks")) : 1),
        sends_first_(options.flag("send-first")),
        cut_(options.text("cut") == "operators" ? pipeline::Cut::operators : pipeline::Cut::layers),
        speeds_(pipeline::speeds_of(options.text("rank-speeds"))) {
    if (chunks_ < 1 || chunks_ > 64) {
      throw UsageError("--pipeline.chunks is " + std::to_string(chunks_) + "; it must be between 1 and 64");
    }
  }

  AxisRequest axis() const override { return {.name = "pipeline", .distance = 2}; }

  void partition(Program& forward, int axis) const override {
    const int ranks = forward.mesh.size_of(axis);
    if (!speeds_.empty() && speeds_.size() != static_cast<std::size_t>(ranks)) {
      throw UsageError("--pipeline.rank-speeds names " + std::to_string(speeds_.size()) + " speeds, but the pipeline has " +
                       std::to_string(ranks) + " ranks; name one for each, the first stage's first");
    }
    pipeline::assign_stages(forward, ranks * chunks_, cut_, schedule_ == Schedule::zero_bubble_h2, speeds_);
  }

  void divide(Program& segment, int axis) const override { pipeline::divide(segment, axis); }

  void schedule(Program& step, int axis) const override {
    const int ranks = step.mesh.size_of(axis), mine = step.mesh.coordinate(step.rank, axis);
    // Only the last micro-batches' way back through the stages is not filled by others' forward parts.
    pipeline::reorder(step, pipeline::order_of(schedule_, ranks, chunks_, step.micro_batches, mine),
                      pipeline::asked_before(schedule_, ranks, chunks_, step.micro_batches, mine),
                      {.on = sends_first_, .of_last = ranks});
    pipeline::hold_messages(step);
    pipeline::sum_over_twins(step, axis);
  }

 private:
  Schedule schedule_;
  int chunks_;
  bool sends_first_;
  pipeline::Cut cut_;
  std::vector<double> speeds_;
};

}  // namespace

CONSIST_PLUGIN(
    strategy, consist::ParallelStrategy, Pipeline, "pipeline", "1.0.0",
    "pipeline parallel (PP): layers over ranks, micro-batches one behind the other (gpipe, 1f1b, interleaved, zero-bubble, "
    "zero-bubble-h2)");
CONSIST_PLUGIN_OPTIONS(
    {"schedule", consist::OptionKind::choice, "1f1b", "the order of forward and backward parts",
     "gpipe|1f1b|interleaved|zero-bubble|zero-bubble-h2"},
    {"chunks", consist::OptionKind::integer, "2", "parts of the model per rank, of schedule interleaved"},
    {"send-first", consist::OptionKind::flag, "true",
     "backward parts send before they compute weight gradients; of the last micro-batches also before those that read "
     "what would be updated in place"},
    {"cut", consist::OptionKind::choice, "operators", "where stages may begin: with a layer, or within one for more even stages",
     "layers|operators"},
    {"rank-speeds", consist::OptionKind::text, "",
     "how fast the ranks are beside one another, as in 0.97:1:1:1.02, where their GPUs differ: slower ones get less of the "
     "model"});
