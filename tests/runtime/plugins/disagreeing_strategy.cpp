// Data parallelism that errs on one rank in a way that nothing but a comparison of all ranks' programs can see: collectives in
// another order, one more of them, or others of the same number. For tests of agreement, on any transport and device.
#include <algorithm>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/plugin.h"
#include "consist/strategy.h"

namespace {

using namespace consist;

using Groups = std::vector<std::vector<std::size_t>>;  ///< of parameters: the gradients that one all_reduce sums

class Disagreeing final : public ParallelStrategy {
 public:
  explicit Disagreeing(const Options& options) : mistake_(options.text("mistake")), rank_(options.integer("rank")) {}

  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true}; }

  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
  }

  void schedule(Program& step, AxisSet axes) const override {
    Groups groups;  // pairs of parameters
    InstructionId last = -1;
    const std::vector<InstructionId> writers = last_writers(step);
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      const TensorId gradient = step.parameters[p].gradient;
      if (step[gradient].placements.on(axes) != Placement::partial()) continue;
      last = std::max(last, writers[static_cast<std::size_t>(gradient)]);
      if (groups.empty() || groups.back().size() == 2) groups.emplace_back();
      groups.back().push_back(p);
    }
    if (step.rank == rank_) err(step, groups);
    Inserter inserter(step);
    inserter.after(last, [&](Builder& builder) {
      builder.tag.inserted_by = "disagreeing";
      for (const std::vector<std::size_t>& group : groups) {
        std::vector<TensorId> gradients;
        for (std::size_t p : group) gradients.push_back(step.parameters[p].gradient);
        const std::vector<TensorId> sums = builder.all_reduce(gradients, axes);
        for (std::size_t i = 0; i < sums.size(); ++i) step.parameters[group[i]].gradient = sums[i];
      }
    });
    inserter.apply();
  }

 private:
  void err(const Program& step, Groups& groups) const {
    if (mistake_ == "order") {
      swap_equal_sizes(step, groups);
    } else if (mistake_ == "number") {  // a pair as two
      groups.insert(groups.begin() + 1, {groups[0].back()});
      groups[0].pop_back();
    } else if (mistake_ == "size") {  // as many, but one in another company
      groups[1].insert(groups[1].begin(), groups[0].back());
      groups[0].pop_back();
    }
  }

  /// Two gradients of one size, such as those of two layers, change places: all messages keep their sizes.
  static void swap_equal_sizes(const Program& step, Groups& groups) {
    for (std::size_t a = 0; a < groups.size(); ++a) {
      for (std::size_t b = a + 1; b < groups.size(); ++b) {
        const auto bytes = [&](std::size_t group) { return step.bytes(step.parameters[groups[group][0]].gradient); };
        if (bytes(a) != bytes(b)) continue;
        std::swap(groups[a][0], groups[b][0]);
        return;
      }
    }
  }

  const std::string mistake_;
  const std::int64_t rank_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Disagreeing, "disagreeing", "1.0.0",
               "data parallel, with collectives that differ on one rank; for tests");
CONSIST_PLUGIN_OPTIONS({"mistake", consist::OptionKind::choice, "none", "what the one rank does", "none|order|number|size"},
                       {"rank", consist::OptionKind::integer, "1", "which rank it is"});
