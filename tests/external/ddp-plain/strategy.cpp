// Data parallelism without buckets: the two ends between which ddp's bucket size chooses, to measure what its buckets gain.
#include "consist/strategy.h"

#include <algorithm>
#include <vector>

#include "consist/edit.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

class DdpPlain final : public ParallelStrategy {
 public:
  explicit DdpPlain(const Options& options) : one_message_(options.text("message") == "all") {}

  AxisRequest axis() const override {
    return {.name = "data", .takes_rest = true, .splits_batch = true, .most_axes = Mesh::max_axes};
  }

  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }

  void schedule(Program& step, AxisSet axes) const override {
    std::vector<std::size_t> parameters;  // those whose gradients every rank has a summand of
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      const TensorId gradient = step.parameters[p].gradient;  // no_tensor: the parameter is frozen
      if (gradient != no_tensor && step[gradient].placements.on(axes) == Placement::partial()) parameters.push_back(p);
    }
    if (parameters.empty()) return;

    const std::vector<InstructionId> writers = last_writers(step);
    std::vector<InstructionId> ready(step.parameters.size(), -1);  // before sum_after() makes sums of the gradients
    for (std::size_t p : parameters) ready[p] = writers[static_cast<std::size_t>(step.parameters[p].gradient)];
    Inserter inserter(step);
    auto sum_after = [&](InstructionId position, const std::vector<std::size_t>& group) {
      std::vector<TensorId> gradients;
      for (std::size_t p : group) gradients.push_back(step.parameters[p].gradient);
      if (group.size() > 1) pack(step, gradients, "ddp-plain.gradients");  // adjacent in memory, so that they are one message
      inserter.after(position, [&](Builder& builder) {
        builder.tag.inserted_by = "ddp-plain";
        const std::vector<TensorId> sums = builder.all_reduce(gradients, axes);
        for (std::size_t i = 0; i < sums.size(); ++i) step.parameters[group[i]].gradient = sums[i];
      });
    };
    if (one_message_) {
      InstructionId last = -1;
      for (std::size_t p : parameters) last = std::max(last, ready[p]);
      sum_after(last, parameters);
    } else {
      for (std::size_t p : parameters) sum_after(ready[p], {p});
    }
    inserter.apply();
  }

 private:
  bool one_message_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, DdpPlain, "ddp-plain", "1.0.0",
               "data parallel without buckets: all gradients in one all_reduce behind backward, or one each");
CONSIST_PLUGIN_OPTIONS({"message", consist::OptionKind::choice, "all", "gradients that one all_reduce moves", "all|each"});
