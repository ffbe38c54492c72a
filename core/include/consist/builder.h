// Builds programs: appends instructions, infers types, and keeps placements legal by inserting collectives.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/op.h"
#include "consist/program.h"

namespace consist {

/// Appends to one program. REQUIRES: the program outlives the builder. THREADS: one at a time.
class CONSIST_API Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  Program& program() noexcept { return program_; }
  const Tensor& operator[](TensorId id) const { return program_[id]; }

  /// An input of the program: the trainer writes it before each step.
  TensorId input(std::string name, DType dtype, Shape shape, Placements placements = {});
  /// The field of that name as an input [batch, sequence] of the micro-batch, the same tensor each time; no_tensor if the dataset
  /// has no such field (Program::fields). A model that needs the field makes it an input() instead: a run whose dataset does not
  /// write that input is refused before the first step.
  TensorId field(std::string_view name);
  /// A weight, initialised from a normal distribution (init_std > 0) or to the constant init_mean.
  TensorId parameter(std::string name, Shape shape, float init_mean, float init_std, bool decay);
  /// A tensor that keeps its value from step to step: zeros at the start of a run, saved in checkpoints and resumed by its name,
  /// which must be unique among all states. `kind` says how another layout resumes it.
  TensorId state(std::string name, DType dtype, Shape shape, Placements placements, StateKind kind = StateKind::logical);
  /// A replicated f32 tensor that never changes; `fill` receives its elements at set-up.
  TensorId constant(std::string name, Shape shape, std::function<void(std::span<float>)> fill);
  /// A tensor of `bytes` bytes in which others lie (Tensor::storage).
  TensorId storage(std::string name, std::int64_t bytes, Role role);

  /// Appends an instruction; returns its outputs. Types and placements come from the op; inputs with other placements than
  /// the op's placement rule asks for are resharded first. `names` names the outputs; missing ones are named after the op.
  /// ERRORS: ProgramError of Op::infer.
  std::vector<TensorId> emit(std::string_view op, std::vector<TensorId> inputs, Attributes attributes = {},
                             std::vector<std::string> names = {});
  /// The same for an op with one output.
  TensorId emit_one(std::string_view op, std::vector<TensorId> inputs, Attributes attributes = {}, std::string name = {});

  /// The tensor with the given placement on each of `axes`, by one collective over all of them at once:
  /// partial→replicate all_reduce, partial→shard or flat reduce_scatter, shard or flat→replicate all_gather, replicate→shard or
  /// flat slice, shard→shard of another dimension all_to_all; between flat and shard it is gathered, then sliced. ERRORS:
  /// ProgramError if its placements on the axes differ; if it is flat along these and other axes; and if an inner axis that is
  /// not among these shards the same dimension, so that the slices would not be contiguous.
  TensorId reshard(TensorId tensor, AxisSet axes, Placement placement);
  /// The tensor with these placements. Axes with the same change from or to a shard or flat placement take one collective.
  TensorId reshard(TensorId tensor, const Placements& placements);

  /// The same for several tensors with equal placements on `axes`, as one instruction. All-reduces are in place; tensors that are
  /// adjacent in memory (see pack) move as one message.
  std::vector<TensorId> reshard(std::vector<TensorId> tensors, AxisSet axes, Placement placement);

  /// reshard of tensors that are partial on `axes` (ProgramError if one is not) to replicate.
  std::vector<TensorId> all_reduce(std::vector<TensorId> tensors, AxisSet axes);

  /// Reports a number of a model's, loss's or strategy's own (docs/plugins.md): `sum`, an f32 scalar of a micro-batch such as
  /// layers::total makes it, is added up over the micro-batches and ranks of a step, and of an evaluation, as the loss is, and
  /// divided by the sum of `count`, another one; without `count` the sum itself is reported. Nothing is trained on it. `name`:
  /// lower-case letters, digits and "_", such as "preference_accuracy", the column of archives and observers; `unit` and
  /// `description` are written beside it. Before micro-batches are unrolled. ERRORS: ProgramError for another tensor, and for a
  /// name that is taken.
  void metric(const std::string& name, TensorId sum, TensorId count = no_tensor, std::string description = {},
              std::string unit = "1");

  /// Tag of the instructions that follow.
  Tag tag;

 private:
  struct Reshard {
    TensorId from;
    AxisSet axes;
    Placement placement;
    TensorId to;
  };
  TensorId add_tensor(Tensor tensor);

  Program& program_;
  std::vector<Reshard> reshards_;  // all of states, else the latest: an input that two instructions need alike is resharded once
};

}  // namespace consist
