// Distributed data parallel: each rank trains on sequences of its own; gradients are summed in buckets while backward still runs
// (Li et al., 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training").
#include "consist/strategy.h"

#include <algorithm>
#include <string>
#include <vector>

#include "consist/analysis.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "consist/plugin.h"
#include "consist/rewrite.h"

namespace {

using namespace consist;

struct Bucket {
  std::vector<std::size_t> parameters;
  InstructionId ready = -1;  ///< the instruction that completes the bucket's last gradient
  std::int64_t bytes = 0;
};

class Ddp final : public ParallelStrategy {
 public:
  explicit Ddp(const Options& options) : bucket_bytes_(options.integer("bucket-size")) {}

  AxisRequest axis() const override {
    return {.name = "data",
            .takes_rest = true,
            .splits_batch = true,
            .distance = 2,
            .most_axes = Mesh::max_axes,
            .takes_shared = true,
            .on_one_rank = OnOneRank::changes_nothing};
  }

  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state)
        tensor.placements.set(axes_with(tensor, Placement::replicate(), axes), Placement::shard(0));
    }
  }

  void schedule(Program& step, AxisSet axes) const override {
    std::vector<TensorId> gradients;
    for (const Parameter& parameter : step.parameters) gradients.push_back(parameter.gradient);
    // Parameters that another strategy has sharded along some of the axes (experts) are summed along the others.
    const std::vector<AxisSet> sets = sets_with(step, gradients, Placement::partial(), axes);
    for (const AxisSet set : sets) {
      std::vector<std::size_t> along_set;
      for (std::size_t p = 0; p < gradients.size(); ++p) {
        if (gradients[p] != no_tensor && axes_with(step[gradients[p]], Placement::partial(), axes) == set) along_set.push_back(p);
      }
      reduce(step, along_set, set, set == sets.front() ? "ddp.bucket" : "ddp." + step.mesh.text(set) + ".bucket");
    }
  }

 private:
  /// Sums the gradients of `parameters`, which are partial along `axes`; `name` is that of buckets but for their number.
  void reduce(Program& step, const std::vector<std::size_t>& parameters, AxisSet axes, const std::string& name) const {
    std::vector<TensorId> partial;
    for (const std::size_t p : parameters) partial.push_back(step.parameters[p].gradient);
    compute_beside_last_reduction(step, partial, {.axes = axes, .collective = &registry().get("all_reduce"), .reduce_dtype = {}});
    const std::vector<Bucket> buckets = fill_buckets(step, parameters);
    std::vector<Pack> packs;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      Pack& together = packs.emplace_back(Pack{{}, name + std::to_string(b)});
      for (std::size_t p : buckets[b].parameters) together.tensors.push_back(step.parameters[p].gradient);
    }
    pack(step, packs);
    Inserter inserter(step);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      inserter.after(buckets[b].ready, [&](Builder& builder) {
        builder.tag.inserted_by = "ddp";
        const std::vector<TensorId> reduced = builder.all_reduce(packs[b].tensors, axes);
        for (std::size_t i = 0; i < reduced.size(); ++i) step.parameters[buckets[b].parameters[i]].gradient = reduced[i];
      });
    }
    inserter.apply();
  }

  /// Gradients of `order` in the order in which backward completes them, cut into buckets of about bucket_bytes_.
  std::vector<Bucket> fill_buckets(const Program& step, std::vector<std::size_t> order) const {
    const std::vector<InstructionId> writers = last_writers(step);
    auto ready = [&](std::size_t p) { return writers[static_cast<std::size_t>(step.parameters[p].gradient)]; };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ready(a) < ready(b); });
    std::vector<Bucket> buckets;
    for (std::size_t p : order) {
      const std::int64_t bytes = step.bytes(step.parameters[p].gradient);
      if (buckets.empty() || buckets.back().bytes + bytes > bucket_bytes_) buckets.emplace_back();
      Bucket& bucket = buckets.back();
      bucket.parameters.push_back(p);
      bucket.ready = ready(p);
      bucket.bytes += bytes;
    }
    return buckets;
  }

  std::int64_t bucket_bytes_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, Ddp, "ddp", "1.0.0",
               "distributed data parallel: gradients summed in buckets, overlapped with backward");
CONSIST_PLUGIN_OPTIONS({"bucket-size", consist::OptionKind::bytes, "25Mi", "bytes of gradients per all_reduce", "", "",
                        "10Mi|25Mi|100Mi|400Mi"});
