// Data parallelism that adds passes of its own, one at every point.
#include <string>

#include "consist/builder.h"
#include "consist/pass.h"
#include "consist/plugin.h"
#include "consist/strategy.h"

namespace {

using namespace consist;

class WithPasses final : public ParallelStrategy {
 public:
  explicit WithPasses(const Options& options) : breaks_(options.text("breaks")) {}
  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }
  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }
  void add_passes(PassList& passes, AxisSet /*axes*/) const override {
    for (std::size_t p = 0; p < pass_points; ++p) {
      const auto point = static_cast<PassPoint>(p);
      const std::string name = "passes." + std::string(name_of(point));
      passes.add(point, {name, [breaks = breaks_, name](Program& program, PassContext& /*context*/) {
                           if (breaks == name) program.instructions.front().op = nullptr;
                         }});
    }
    passes.add(
        PassPoint::after_schedule,
        {"passes.copy_loss", [](Program& program, PassContext& /*context*/) {
           Builder builder(program);
           builder.tag = {Phase::backward, -1, -1, "passes.copy_loss"};
           program.loss = builder.emit_one("cast", {program.loss}, {{"dtype", std::string(name_of(DType::f32))}}, "loss.copy");
         }});
  }

 private:
  std::string breaks_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, WithPasses, "passes", "1.0.0", "data parallel with passes of its own");
CONSIST_PLUGIN_OPTIONS({"breaks", consist::OptionKind::text, "", "the pass that leaves an illegal program"});
