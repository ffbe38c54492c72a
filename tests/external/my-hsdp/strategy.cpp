// Hybrid sharding (MiCS, Zhang et al., 2022, arXiv 2205.00119; HSDP in PyTorch): `my-hsdp=RxS` has R replicas, each divided over
// the S ranks of a group. Parameters, gradients and optimizer states are divided within a group and alike in all groups, so that
// parameters are gathered over the fast links of a group, and what crosses groups is one rank's part of the gradients, once per
// step.
#include <consist/analysis.h>
#include <consist/edit.h>
#include <consist/op.h>
#include <consist/plugin.h>
#include <consist/rewrite.h>
#include <consist/strategy.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using namespace consist;

constexpr const char* name = "my-hsdp";

/// The axes by what they are for. One of size 1 does not exist; the other one is then known by its number.
struct Axes {
  AxisSet replicas, shards;
  explicit Axes(const Mesh& mesh) : replicas(mesh.find("data.0")), shards(mesh.find("data.1")) {}
};

/// An input that is the whole of a parameter of which each rank has a part.
struct Use {
  InstructionId instruction;
  std::size_t input;
  TensorId part;
};

/// A parameter's gradient from one micro-batch, as the ranks have it before they add it up.
struct Summand {
  std::size_t parameter;
  TensorId tensor;
  InstructionId ready;  ///< the instruction that completes it
  bool first, last;     ///< of the parameter's in this step
};

class MyHsdp final : public ParallelStrategy {
 public:
  explicit MyHsdp(const Options& options) : bucket_bytes_(options.integer("bucket-size")) {}

  AxisRequest axis() const override { return {.name = "data", .takes_rest = true, .splits_batch = true, .least_axes = 2, .most_axes = 2}; }

  void partition(Program& forward, AxisSet axes) const override {
    for (Tensor& tensor : forward.tensors) {
      if (tensor.role == Role::input && !tensor.state) tensor.placements.set(axes, Placement::shard(0));
    }
    for (const Parameter& parameter : forward.parameters)
      forward[parameter.tensor].placements.set(Axes(forward.mesh).shards, Placement::flat());
  }

  /// The core has put a gather in front of the first use of each parameter and a reduction behind each gradient, as placements
  /// demand. Both are made anew here, in buckets and in time; nobody reads the core's then, and they are removed.
  void schedule(Program& step, AxisSet) const override {
    const Axes axes(step.mesh);
    const DefUse made(step);
    Inserter inserter(step);
    gather_by_layers(step, inserter, made, axes);
    const std::vector<std::vector<TensorId>> sums = reduce_in_buckets(step, inserter, made, axes);
    inserter.apply();
    remove_dead(step);
    std::vector<Pack> packs;  // adjacent in memory, so that one message sums a bucket over the replicas
    for (const std::vector<TensorId>& bucket : sums)
      packs.push_back({bucket, std::string(name) + ".sums" + std::to_string(packs.size())});
    pack(step, packs);
  }

 private:
  /// The collective of that movement over `axes`, in flat shards, that made the tensor; null if none did.
  static const Instruction* made_by(const Program& step, const DefUse& made, TensorId tensor, Movement movement, AxisSet axes) {
    const InstructionId by = made.producer(tensor);
    if (by < 0) return nullptr;
    const Instruction& i = step.instructions[static_cast<std::size_t>(by)];
    const bool is = i.op->movement() == movement && i.attributes.axes("axis") == axes && i.attributes.integer("dim") < 0;
    return is ? &i : nullptr;
  }

  /// One message for the parameters of a layer in forward, and one in backward, where they are gathered again; each goes when the
  /// layer before begins, beside whose computation it travels.
  static void gather_by_layers(Program& step, Inserter& inserter, const DefUse& made, const Axes& axes) {
    std::vector<std::vector<Use>> layers;  // in the order of the step
    Tag before;
    for (std::size_t n = 0; n < step.instructions.size(); ++n) {
      const Instruction& i = step.instructions[n];
      for (std::size_t k = 0; k < i.inputs.size(); ++k) {
        const Instruction* gather = made_by(step, made, i.inputs[k], Movement::all_gather, axes.shards);
        if (gather == nullptr) continue;
        const auto at = std::ranges::find(gather->outputs, i.inputs[k]) - gather->outputs.begin();
        const TensorId part = gather->inputs[static_cast<std::size_t>(at)];
        if (!step[part].state) continue;  // made within the step: gathered where it is
        if (layers.empty() || i.tag.layer != before.layer || i.tag.phase != before.phase ||
            i.tag.micro_batch != before.micro_batch)
          layers.emplace_back();
        before = i.tag;
        layers.back().push_back({static_cast<InstructionId>(n), k, part});
      }
    }
    for (std::size_t g = 0; g < layers.size(); ++g) {
      std::vector<TensorId> parts, wholes;
      for (const Use& use : layers[g]) {
        if (std::ranges::find(parts, use.part) == parts.end()) parts.push_back(use.part);
      }
      inserter.after(g == 0 ? -1 : layers[g - 1].front().instruction - 1, [&](Builder& builder) {
        builder.tag = step.instructions[static_cast<std::size_t>(layers[g].front().instruction)].tag;
        builder.tag.inserted_by = name;
        wholes = builder.reshard(parts, axes.shards, Placement::replicate());
      });
      for (TensorId whole : wholes) step[whole].role = Role::parameter;
      for (const Use& use : layers[g]) {
        const auto at = std::ranges::find(parts, use.part) - parts.begin();
        step.instructions[static_cast<std::size_t>(use.instruction)].inputs[use.input] = wholes[static_cast<std::size_t>(at)];
      }
    }
  }

  /// All summands of a parameter, the last one first: the core adds each to the sum of those before.
  static std::vector<Summand> summands_of(const Program& step, std::size_t parameter, const DefUse& made, const Axes& axes) {
    std::vector<Summand> found;
    for (TensorId sum = step.parameters[parameter].gradient; sum != no_tensor;) {
      TensorId part = sum;
      const InstructionId by = made.producer(sum);
      const bool adds = by >= 0 && step.instructions[static_cast<std::size_t>(by)].op->adds_pairs();
      if (adds) part = step.instructions[static_cast<std::size_t>(by)].inputs[1];
      const Instruction* reduction = made_by(step, made, part, Movement::reduce_scatter, axes.shards);
      if (reduction == nullptr) return {};  // the optimizer sums what is left
      const TensorId whole = reduction->inputs[0];
      found.push_back({parameter, whole, made.producer(whole), !adds, found.empty()});
      sum = adds ? step.instructions[static_cast<std::size_t>(by)].inputs[0] : no_tensor;
    }
    return found;
  }

  /// In the order in which backward completes them.
  static std::vector<Summand> summands_of(const Program& step, const DefUse& made, const Axes& axes) {
    std::vector<Summand> all;
    const std::vector<InstructionId> writers = last_writers(step);
    for (std::size_t p = 0; p < step.parameters.size(); ++p) {
      const TensorId gradient = step.parameters[p].gradient;
      if (gradient == no_tensor) continue;
      if (!axes.shards.empty()) {
        for (const Summand& summand : summands_of(step, p, made, axes)) all.push_back(summand);
      } else if (step[gradient].placements.on(axes.replicas) == Placement::partial()) {
        all.push_back({p, gradient, writers[static_cast<std::size_t>(gradient)], true, true});  // added up in place
      }
    }
    std::ranges::stable_sort(all, {}, &Summand::ready);
    return all;
  }

  /// reduce_scatter over a group in each micro-batch, all_reduce over the replicas behind the last one. A bucket's parts are
  /// added up and sent on when the next bucket is complete, so that backward does not wait for them. Returns what is to lie side
  /// by side.
  std::vector<std::vector<TensorId>> reduce_in_buckets(Program& step, Inserter& inserter, const DefUse& made,
                                                       const Axes& axes) const {
    std::vector<std::vector<Summand>> buckets;
    std::int64_t bytes = 0;
    for (const Summand& summand : summands_of(step, made, axes)) {
      const std::int64_t more = step.bytes(summand.tensor);
      // One bucket is of one micro-batch: it begins sums, adds to them, or ends them.
      if (buckets.empty() || bytes + more > bucket_bytes_ || summand.first != buckets.back().front().first ||
          summand.last != buckets.back().front().last || contains(buckets.back(), summand.parameter)) {
        buckets.emplace_back();
        bytes = 0;
      }
      buckets.back().push_back(summand);
      bytes += more;
    }
    std::vector<std::vector<TensorId>> sums;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::vector<TensorId> tensors, parts;
      for (const Summand& summand : buckets[b]) tensors.push_back(summand.tensor);
      const InstructionId ready = buckets[b].back().ready;
      const auto with_builder = [&](InstructionId position, const auto& emit) {
        inserter.after(position, [&](Builder& builder) {
          builder.tag = step.instructions[static_cast<std::size_t>(ready)].tag;
          builder.tag.inserted_by = name;
          emit(builder);
        });
      };
      with_builder(ready, [&](Builder& builder) {
        parts = axes.shards.empty() ? tensors : builder.reshard(tensors, axes.shards, Placement::flat());
        for (TensorId part : parts) step[part].role = Role::gradient;
      });
      with_builder(b + 1 < buckets.size() ? buckets[b + 1].back().ready : ready, [&](Builder& builder) {
        if (!axes.shards.empty()) builder.emit("release", tensors);  // until here the reduction reads them
        add_up(step, builder, buckets[b], parts);
        if (!buckets[b].front().last || axes.replicas.empty()) return;
        std::vector<TensorId> of_group;
        for (const Summand& summand : buckets[b]) of_group.push_back(step.parameters[summand.parameter].gradient);
        sums.push_back(of_group);
        const std::vector<TensorId> of_all = builder.all_reduce(of_group, axes.replicas);
        for (std::size_t k = 0; k < of_all.size(); ++k) step.parameters[buckets[b][k].parameter].gradient = of_all[k];
      });
    }
    return sums;
  }

  /// Lets Parameter::gradient be the sum of the micro-batches so far.
  static void add_up(Program& step, Builder& builder, const std::vector<Summand>& bucket, const std::vector<TensorId>& parts) {
    std::vector<TensorId> pairs;
    std::vector<std::string> names;
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      TensorId& gradient = step.parameters[bucket[k].parameter].gradient;
      pairs.insert(pairs.end(), {gradient, parts[k]});
      names.push_back(step[parts[k]].name);
      if (bucket[k].first) gradient = parts[k];
    }
    if (bucket.front().first) return;
    const std::vector<TensorId> sums = builder.emit("add", pairs, {}, names);
    for (std::size_t k = 0; k < bucket.size(); ++k) step.parameters[bucket[k].parameter].gradient = sums[k];
  }

  static bool contains(const std::vector<Summand>& bucket, std::size_t parameter) {
    return std::ranges::find(bucket, parameter, &Summand::parameter) != bucket.end();
  }

  std::int64_t bucket_bytes_;
};

}  // namespace

CONSIST_PLUGIN(strategy, consist::ParallelStrategy, MyHsdp, "my-hsdp", "1.0.0",
               "hybrid sharding: RxS has R replicas, each divided over S ranks");
CONSIST_PLUGIN_OPTIONS({"bucket-size", consist::OptionKind::bytes, "25Mi", "bytes of gradients per reduction"});
