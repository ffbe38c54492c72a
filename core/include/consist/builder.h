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

/// Appends to one program, which must outlive it. Not thread-safe.
class CONSIST_API Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  Program& program() noexcept { return program_; }
  const Tensor& operator[](TensorId id) const { return program_[id]; }

  /// A tensor that the trainer writes before each step.
  TensorId input(std::string name, DType dtype, Shape shape, Placements placements = {});
  /// The field of that name as an input [batch, sequence] of the micro-batch, the same tensor each time; no_tensor if the dataset has
  /// no such field (Program::fields). A model that cannot do without states the tensor as an input(): who then lacks a dataset that
  /// writes it is told so before the first step.
  TensorId field(std::string_view name);
  /// A weight, initialised from a normal distribution (init_std > 0) or to the constant init_mean.
  TensorId parameter(std::string name, Shape shape, float init_mean, float init_std, bool decay);
  /// A tensor that keeps its value from step to step: zeros at the start of a run, saved in checkpoints and resumed by its name,
  /// which must be unique among all states. `kind` says what another layout may make of it.
  TensorId state(std::string name, DType dtype, Shape shape, Placements placements, StateKind kind = StateKind::logical);
  /// A replicated f32 tensor that never changes; `fill` receives its elements at set-up.
  TensorId constant(std::string name, Shape shape, std::function<void(std::span<float>)> fill);
  /// A tensor that only lends its bytes to others (see rehome in core/program/storage.h).
  TensorId storage(std::string name, std::int64_t bytes, Role role);

  /// Appends an instruction; returns its outputs. Types and placements come from the op; inputs that lie otherwise than the op's
  /// placement rule asks are resharded first. `names` names the outputs; missing ones are named after the op.
  std::vector<TensorId> emit(std::string_view op, std::vector<TensorId> inputs, Attributes attributes = {},
                             std::vector<std::string> names = {});
  /// The same for an op with one output.
  TensorId emit_one(std::string_view op, std::vector<TensorId> inputs, Attributes attributes = {}, std::string name = {});

  /// The tensor with the given placement on each of `axes`, through the collective that it takes, over all of them at once:
  /// partial→replicate all_reduce, partial→shard or flat reduce_scatter, shard or flat→replicate all_gather, replicate→shard or
  /// flat slice, shard→shard of another dimension all_to_all; between flat and shard it is gathered, then sliced. Throws
  /// ProgramError if it lies differently on some of the axes; if it is flat along these and others; and if an axis further in
  /// than one of these divides the same dimension, whose parts would not be contiguous.
  TensorId reshard(TensorId tensor, AxisSet axes, Placement placement);
  /// The tensor with these placements. Axes along which parts are gathered or made alike move together.
  TensorId reshard(TensorId tensor, const Placements& placements);

  /// The same for several tensors that lie alike on `axes`, as one instruction. All-reduces are in place; tensors of one that lie
  /// side by side in memory (see pack) move as one message.
  std::vector<TensorId> reshard(std::vector<TensorId> tensors, AxisSet axes, Placement placement);

  /// reshard of tensors that are partial on `axes` (ProgramError if one is not) to replicate.
  std::vector<TensorId> all_reduce(std::vector<TensorId> tensors, AxisSet axes);

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
  std::vector<Reshard> reshards_;  // of states all, else the latest: an input that two instructions want alike is moved once
};

}  // namespace consist
