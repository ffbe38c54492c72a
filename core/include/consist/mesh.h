// The mesh: the ranks of a job arranged along axes that strategies name ("data", "tensor", ...), and how a tensor lies on it.
// Placements follow GSPMD (Xu et al., 2021) and PyTorch's DTensor.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/shape.h"

namespace consist {

struct MeshAxis {
  std::string name;
  int size = 1;
  bool operator==(const MeshAxis&) const = default;
};

/// Ranks in row-major order over the axes: the last axis varies fastest, so its members are neighbours (the chattiest
/// axis goes last). A mesh without axes has one rank.
class CONSIST_API Mesh {
 public:
  static constexpr int max_axes = 4;

  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes);  ///< throws UsageError beyond max_axes, for a size < 1 or a repeated name

  int axes() const noexcept { return static_cast<int>(axes_.size()); }
  const MeshAxis& axis(int index) const { return axes_.at(static_cast<std::size_t>(index)); }
  int size_of(int axis) const { return this->axis(axis).size; }
  /// Index of the axis of that name, -1 if there is none.
  int find(std::string_view name) const noexcept;
  int ranks() const noexcept;

  /// Position of `rank` along `axis`.
  int coordinate(int rank, int axis) const;
  /// The ranks that differ from `rank` only along `axis`, in order of their coordinate.
  std::vector<int> group(int rank, int axis) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

/// How a tensor lies along one axis of the mesh.
class Placement {
 public:
  constexpr Placement() = default;  ///< replicate
  static constexpr Placement replicate() noexcept { return {}; }
  /// Each rank holds an equal, contiguous part of dimension `dim`.
  static constexpr Placement shard(int dim) noexcept { return Placement(static_cast<std::int8_t>(dim)); }
  /// Each rank holds a summand; the value is the sum over the axis.
  static constexpr Placement partial() noexcept { return Placement(std::int8_t{-2}); }
  /// The tensor as the other axes leave it, flattened and cut into equal parts of ceil(elements / ranks) elements; the last parts
  /// may be shorter or empty. Any shape divides so, and parts are contiguous: how ZeRO shards (Rajbhandari et al., 2020).
  static constexpr Placement flat() noexcept { return Placement(std::int8_t{-3}); }

  constexpr bool is_replicate() const noexcept { return code_ == -1; }
  constexpr bool is_partial() const noexcept { return code_ == -2; }
  constexpr bool is_flat() const noexcept { return code_ == -3; }
  constexpr bool is_shard() const noexcept { return code_ >= 0; }
  constexpr bool is_shard(int dim) const noexcept { return code_ == dim; }
  constexpr int dim() const noexcept { return code_; }  ///< of a shard
  constexpr bool operator==(const Placement&) const noexcept = default;

 private:
  explicit constexpr Placement(std::int8_t code) : code_(code) {}
  std::int8_t code_ = -1;  // -1 replicate, -2 partial, -3 flat, >= 0 the sharded dimension
};

/// One placement per mesh axis, by index; axes beyond those of the mesh stay replicate.
class CONSIST_API Placements {
 public:
  Placement operator[](int axis) const noexcept { return on_[static_cast<std::size_t>(axis)]; }
  Placement& operator[](int axis) noexcept { return on_[static_cast<std::size_t>(axis)]; }
  bool all_replicate() const noexcept;
  /// The axis along which the tensor is flat, -1 if there is none.
  int flat_axis() const noexcept;
  bool operator==(const Placements&) const noexcept = default;
  /// "" if replicated on every axis, else e.g. "{data:S0,tensor:P}" ("F": flat).
  std::string text(const Mesh& mesh) const;

 private:
  std::array<Placement, Mesh::max_axes> on_{};
};

/// What one rank holds of a tensor of `shape`, in memory: sharded extents divided by the axis size; [ceil(elements / ranks)]
/// where it is flat. Throws ProgramError if an extent does not divide, or for more than one flat axis.
CONSIST_API Shape local_shape(const Shape& shape, const Placements& placements, const Mesh& mesh);

/// An index per dimension.
using Origin = std::array<std::int64_t, Shape::max_rank>;

/// The part of a tensor that one rank holds.
struct LocalPart {
  Shape shape;      ///< as local_shape, but without the padding of a flat tensor's last parts
  Origin origin{};  ///< where it begins in the logical tensor; for a flat one [0] is the index in the flattened tensor that it is
                    ///< cut from
};
CONSIST_API LocalPart local_part(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank);

}  // namespace consist
