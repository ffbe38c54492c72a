// Pipeline parallel: each rank has some of the layers; micro-batches pass through the ranks one after the other.
#include "consist/strategy.h"

#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/plugin.h"
#include "plugins/strategies/pipeline/divide.h"
#include "plugins/strategies/pipeline/estimate.h"
#include "plugins/strategies/pipeline/in_flight_messages.h"
#include "plugins/strategies/pipeline/orders.h"
#include "plugins/strategies/pipeline/reorder.h"
#include "plugins/strategies/pipeline/stages.h"
#include "plugins/strategies/pipeline/stream.h"

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

pipeline::Cut cut_of(const std::string& name) {
  if (name == "layers") return pipeline::Cut::layers;
  if (name == "blocks") return pipeline::Cut::blocks;
  if (name == "operators") return pipeline::Cut::operators;
  return pipeline::Cut::automatic;
}

/// True if ranks of another axis share matrices (tensor parallelism): the stream that crosses between blocks is then sharded
/// over them, tensors that cross within a block mostly are not.
bool shares_matrices(const Mesh& mesh) {
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (mesh.axis(axis).name == "tensor") return true;
  }
  return false;
}

class Pipeline final : public ParallelStrategy, public StageEstimator {
 public:
  explicit Pipeline(const Options& options)
      : schedule_(schedule_of(options.text("schedule"))),
        chunks_(schedule_ == Schedule::interleaved ? static_cast<int>(options.integer("chunks")) : 1),
        sends_first_(options.flag("send-first")),
        cut_(cut_of(options.text("cut"))),
        speeds_(pipeline::speeds_of(options.text("rank-speeds"))) {
    if (chunks_ < 1 || chunks_ > 64) {
      throw UsageError("--pipeline.chunks is " + std::to_string(chunks_) + "; it must be between 1 and 64");
    }
  }

  AxisRequest axis() const override { return {.name = "pipeline", .distance = 3, .on_one_rank = OnOneRank::changes_nothing}; }

  void partition(Program& forward, AxisSet axes) const override {
    const int axis = axes.first();
    const int ranks = forward.mesh.size_of(axis);
    pipeline::check_speeds(speeds_, ranks);
    const bool blocks = cut_ == pipeline::Cut::automatic && shares_matrices(forward.mesh);
    pipeline::assign_stages(forward, axis, ranks * chunks_, blocks ? pipeline::Cut::blocks : cut_,
                            schedule_ == Schedule::zero_bubble_h2, speeds_);
    pipeline::sum_before_cuts(forward);
  }

  StageEstimate estimate_stages(const StageRequest& request) const override {
    return pipeline::estimate_stages({schedule_, chunks_, cut_, sends_first_, speeds_}, request);
  }

  void divide(Program& segment, AxisSet axes) const override { pipeline::divide(segment, axes.first()); }

  void schedule(Program& step, AxisSet axes) const override {
    const int axis = axes.first();
    const int ranks = step.mesh.size_of(axis), mine = step.mesh.coordinate(step.rank, axis);
    // Only the last micro-batches' way back through the stages is not filled by others' forward parts.
    pipeline::reorder(step, pipeline::order_of(schedule_, ranks, chunks_, step.micro_batches, mine),
                      pipeline::asked_before(schedule_, ranks, chunks_, step.micro_batches, mine),
                      {.on = sends_first_, .of_last = ranks});
    pipeline::keep_in_flight_messages(step);
    pipeline::sum_tied_gradients(step, axis);
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
     "gpipe|1f1b|interleaved|zero-bubble|zero-bubble-h2", "", "1f1b|interleaved|zero-bubble|zero-bubble-h2"},
    {"chunks", consist::OptionKind::integer, "2", "parts of the model per rank, of schedule interleaved", "",
     "schedule=interleaved", "2|divisors(layers)"},
    {"send-first", consist::OptionKind::flag, "true",
     "backward parts send before they compute weight gradients; of the last micro-batches also before those that read "
     "what would be updated in place"},
    {"cut", consist::OptionKind::choice, "auto",
     "where stages may begin: with a layer; with attention or MLP (blocks), where one tensor crosses; in front of any op with "
     "parameters, for more even stages and larger messages; auto: blocks, or operators if the longest stage is then 1% shorter "
     "and "
     "tp-sp does not divide the stream",
     "auto|layers|blocks|operators"},
    {"rank-speeds", consist::OptionKind::text, "",
     "how fast the ranks are beside one another, as in 0.97:1:1:1.02, where their GPUs differ: slower ones get less of the "
     "model"});
