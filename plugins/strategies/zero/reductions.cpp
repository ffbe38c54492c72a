#include "plugins/strategies/zero/reductions.h"

#include <set>
#include <string>

#include "consist/error.h"
#include "consist/op.h"
#include "plugins/strategies/zero/reduce_dtype.h"

namespace consist::zero {
namespace {

struct Bucket {
  std::vector<PartialGradient> gradients;  ///< of different parameters
  InstructionId ready = -1;
  std::int64_t elements = 0;    ///< of the unsharded gradients, on this rank
  std::vector<TensorId> parts;  ///< once it is reduced
};

std::vector<Bucket> cut(const Program& step, std::span<const PartialGradient> gradients, std::int64_t most) {
  std::vector<Bucket> buckets;
  std::set<std::size_t> inside;
  for (const PartialGradient& gradient : gradients) {
    const std::int64_t more = step.local(gradient.whole).elements();
    // Summands of different micro-batches stay apart: later ones must not delay those that are complete.
    if (buckets.empty() || buckets.back().elements + more > most || inside.contains(gradient.parameter) ||
        gradient.first != buckets.back().gradients.front().first) {
      buckets.emplace_back();
      inside.clear();
    }
    buckets.back().gradients.push_back(gradient);
    buckets.back().ready = gradient.ready;
    buckets.back().elements += more;
    inside.insert(gradient.parameter);
  }
  return buckets;
}

/// The first summand as a tensor that others can be added to.
TensorId sum_of(Program& step, Builder& builder, TensorId part, DType dtype) {
  if (step[part].dtype == dtype || step[part].dtype == DType::f32) return part;
  const TensorId sum = builder.emit_one("cast", {part}, {{"dtype", std::string(name_of(dtype))}}, step[part].name);
  step[sum].role = Role::gradient;
  return sum;
}

/// Frees a bucket that has been reduced: its results are added to the sums, its memory is free.
void finish(Program& step, Builder& builder, const Bucket& bucket, const std::vector<int>& summands) {
  std::vector<TensorId> wholes, pairs;
  std::vector<std::string> names;
  std::vector<Parameter*> added;
  for (std::size_t k = 0; k < bucket.gradients.size(); ++k) {
    const PartialGradient& gradient = bucket.gradients[k];
    Parameter& parameter = step.parameters[gradient.parameter];
    wholes.push_back(gradient.whole);
    if (gradient.first) {
      // The update reads a gradient of the parameter's dtype.
      const bool only = summands[gradient.parameter] == 1 && step[parameter.tensor].dtype != DType::f32;
      parameter.gradient = only ? bucket.parts[k] : sum_of(step, builder, bucket.parts[k], gradient.dtype);
    } else {
      pairs.insert(pairs.end(), {parameter.gradient, bucket.parts[k]});
      names.push_back(step[bucket.parts[k]].name);
      added.push_back(&parameter);
    }
  }
  builder.emit("release", wholes);
  if (pairs.empty()) return;
  const std::vector<TensorId> sums = builder.emit("add", pairs, {}, names);
  for (std::size_t k = 0; k < sums.size(); ++k) added[k]->gradient = sums[k];
}

}  // namespace

namespace {

/// By parameter: true if the instructions that begin its gradients can add to a sum instead. They cannot where the first summand
/// has another placement than the final gradient: a tied table of which another axis reduces the head's summand before the
/// embedding's is added.
std::vector<bool> can_add_up(const Program& step, std::span<const PartialGradient> gradients) {
  std::vector<bool> begins(step.tensors.size(), false);  // by storage: an instruction makes it that can add
  for (const Instruction& i : step.instructions) {
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const TensorId output = i.outputs[k];
      if (output != no_tensor && step[output].storage == output)
        begins[static_cast<std::size_t>(output)] = !i.op->is_collective() && i.op->updates_in_place(static_cast<int>(k)) >= 0;
    }
  }
  std::vector<bool> can(step.parameters.size(), true);
  for (const PartialGradient& gradient : gradients) {
    const Tensor& whole = step[gradient.whole];
    if (!begins[static_cast<std::size_t>(whole.storage)] || step[whole.storage].placements != whole.placements)
      can[gradient.parameter] = false;
  }
  return can;
}

}  // namespace

std::vector<PartialGradient> add_up_whole(Program& step, std::span<const PartialGradient> gradients) {
  const std::vector<bool> can = can_add_up(step, gradients);
  std::vector<TensorId> sum(step.parameters.size(), no_tensor);  // of each parameter, so far
  std::vector<TensorId> joins(step.tensors.size(), no_tensor);   // by storage: the sum that it is to become part of
  std::vector<std::size_t> last(step.parameters.size(), gradients.size());
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    const PartialGradient& gradient = gradients[g];
    if (!can[gradient.parameter]) continue;
    const TensorId storage = step[gradient.whole].storage;
    if (storage < 0 || step[gradient.whole].offset != 0)
      throw ProgramError("the gradient '" + step[gradient.whole].name + "' is a view");
    joins[static_cast<std::size_t>(storage)] = sum[gradient.parameter];
    sum[gradient.parameter] = gradient.whole;
    last[gradient.parameter] = g;
  }
  for (Instruction& instruction : step.instructions) {
    for (std::size_t k = 0; k < instruction.outputs.size(); ++k) {
      const TensorId output = instruction.outputs[k];
      if (output == no_tensor) continue;
      const TensorId before = joins[static_cast<std::size_t>(step[output].storage)];
      if (before == no_tensor) continue;
      if (step[output].storage == output) add_into(step, instruction, k, before);  // the first to write there
    }
  }
  // Storages last: the sums that instructions were pointed to are named by tensors, whose storages change here.
  for (Tensor& tensor : step.tensors) {
    while (joins[static_cast<std::size_t>(tensor.storage)] != no_tensor)
      tensor.storage = step[joins[static_cast<std::size_t>(tensor.storage)]].storage;
  }
  std::vector<PartialGradient> left;
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    if (!can[gradients[g].parameter]) left.push_back(gradients[g]);
    if (last[gradients[g].parameter] != g) continue;
    left.push_back(gradients[g]);
    left.back().first = true;
  }
  return left;
}

void insert_reductions(Program& step, Inserter& inserter, std::span<PartialGradient> gradients, AxisSet axes,
                       const std::string& bucket, const Settings& settings) {
  if (settings.reduce_dtype) cast_to(step, inserter, gradients, *settings.reduce_dtype, settings.strategy);
  std::vector<int> summands(step.parameters.size(), 0);
  for (const PartialGradient& gradient : gradients) ++summands[gradient.parameter];
  std::vector<Bucket> buckets = cut(step, gradients, settings.reduce_bucket);
  std::vector<Pack> packs;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    packs.push_back({{}, bucket + std::to_string(b)});
    for (const PartialGradient& gradient : buckets[b].gradients) {
      packs.back().tensors.push_back(gradient.whole);
      step[gradient.whole].role = step[step[gradient.whole].storage].role = Role::gradient;
    }
  }
  if (settings.contiguous_gradients) pack(step, packs);

  std::size_t finished = 0;  // buckets that no instruction waits for any more
  std::int64_t behind = 0;   // elements of buckets that were issued after the first unfinished one
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    inserter.after(buckets[b].ready, [&](Builder& builder) {
      builder.tag.inserted_by = settings.strategy;
      buckets[b].parts = builder.reshard(packs[b].tensors, axes, Placement::flat());
      for (TensorId part : buckets[b].parts) step[part].role = Role::gradient;
      if (b > finished) behind += buckets[b].elements;
      const auto finish_next = [&] {
        finish(step, builder, buckets[finished++], summands);
        if (finished < buckets.size() && finished <= b) behind -= buckets[finished].elements;
      };
      // A large one (an embedding) takes the network as long as several small ones.
      while (finished < b && behind >= buckets[finished].elements) finish_next();
      while (finished <= b && (!settings.overlap || b + 1 == buckets.size())) finish_next();
    });
  }
}

}  // namespace consist::zero
