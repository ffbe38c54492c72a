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

  /// The tensor with the given placement on `axis`, through the collective that it takes: partial→replicate all_reduce,
  /// partial→shard or flat reduce_scatter, shard or flat→replicate all_gather, replicate→shard or flat slice.
  TensorId reshard(TensorId tensor, int axis, Placement placement);

  /// The same for several tensors that lie alike on `axis`, as one instruction. All-reduces are in place; tensors of one that lie
  /// side by side in memory (see pack) move as one message.
  std::vector<TensorId> reshard(std::vector<TensorId> tensors, int axis, Placement placement);

  /// reshard of tensors that are partial on `axis` (ProgramError if one is not) to replicate.
  std::vector<TensorId> all_reduce(std::vector<TensorId> tensors, int axis);

  /// Tag of the instructions that follow.
  Tag tag;

 private:
  struct Reshard {
    TensorId from;
    int axis;
    Placement placement;
    TensorId to;
  };
  TensorId add_tensor(Tensor tensor);

  Program& program_;
  std::vector<Reshard> reshards_;  // of states all, else the latest: an input that two instructions want alike is moved once
};

}  // namespace consist
