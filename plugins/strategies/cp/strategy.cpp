// Context parallelism: every rank of the axis has a part of each sequence. Attention, which alone looks at other tokens, works on
// heads of whole sequences (Jacobs et al., 2023, "DeepSpeed Ulysses") or on gathered keys and values, with the sequence in zigzag
// order so that all ranks have equal work (Grattafiori et al., 2024, "The Llama 3 Herd of Models").
#include "consist/strategy.h"

#include "consist/plugin.h"
#include "plugins/strategies/cp/partition.h"

namespace {

using namespace consist;
using context_parallel::Attention;

class ContextParallel final : public ParallelStrategy {
 public:
  explicit ContextParallel(const Options& options)
      : attention_(options.text("attention") == "ulysses" ? Attention::ulysses : Attention::gather) {}

  AxisRequest axis() const override { return {.name = "context", .distance = 0, .shares_parameters = true}; }

  void partition(Program& forward, AxisSet axes) const override {
    context_parallel::partition(forward, axes.first(), attention_);
  }

 private:
  Attention attention_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, ContextParallel, "cp", "1.0.0",
               "context parallel (CP): each sequence divided over ranks, attention by heads (Ulysses) or on gathered keys and values");
CONSIST_PLUGIN_OPTIONS({"attention", consist::OptionKind::choice, "gather",
                        "gather: keys and values of all tokens are brought to every rank; ulysses: each rank attends in some of the "
                        "heads over the whole sequence",
                        "gather|ulysses", "", "gather|ulysses"});
