// The mesh: the ranks of a job arranged along axes that strategies name ("data", "tensor", ...), and how a tensor lies on it.
// Placements follow GSPMD (Xu et al., 2021) and PyTorch's DTensor.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <optional>
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

/// Some axes of a mesh, by index. Over a set of axes ranks form groups: the members of a group differ along these axes only, in
/// row-major order, the last axis of the set fastest. Tensors, collectives and queues treat a set as one axis, whose size is the
/// product of the sizes.
class CONSIST_API AxisSet {
 public:
  static constexpr int max_axes = 64;  ///< indices 0..63

  constexpr AxisSet() = default;  ///< no axis
  /// The set of one axis; of none for a negative index ("no axis"). Throws ProgramError for an index of max_axes and more.
  constexpr AxisSet(int axis) : bits_(axis < 0 ? 0 : bit(axis)) {}
  static constexpr AxisSet of_bits(std::uint64_t bits) noexcept {
    AxisSet set;
    set.bits_ = bits;
    return set;
  }
  constexpr std::uint64_t bits() const noexcept { return bits_; }  ///< bit a: axis a

  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr int count() const noexcept { return std::popcount(bits_); }
  constexpr bool contains(AxisSet other) const noexcept { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool intersects(AxisSet other) const noexcept { return (bits_ & other.bits_) != 0; }
  constexpr int first() const noexcept { return empty() ? -1 : std::countr_zero(bits_); }  ///< the outermost; -1 of no axis
  constexpr int last() const noexcept { return 63 - std::countl_zero(bits_); }             ///< the innermost; -1 of no axis
  constexpr AxisSet operator|(AxisSet other) const noexcept { return of_bits(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const noexcept { return of_bits(bits_ & other.bits_); }
  constexpr AxisSet without(AxisSet other) const noexcept { return of_bits(bits_ & ~other.bits_); }
  constexpr AxisSet& operator|=(AxisSet other) noexcept { return *this = *this | other; }
  constexpr auto operator<=>(const AxisSet&) const noexcept = default;

  /// Goes through the indices in the order of the mesh: for (int axis : axes).
  class Iterator {
   public:
    constexpr explicit Iterator(std::uint64_t rest) : rest_(rest) {}
    constexpr int operator*() const noexcept { return std::countr_zero(rest_); }
    constexpr Iterator& operator++() noexcept {
      rest_ &= rest_ - 1;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const noexcept = default;

   private:
    std::uint64_t rest_;
  };
  constexpr Iterator begin() const noexcept { return Iterator(bits_); }
  constexpr Iterator end() const noexcept { return Iterator(0); }

 private:
  static constexpr std::uint64_t bit(int axis) {
    if (axis >= max_axes) throw_no_such_axis(axis);
    return std::uint64_t{1} << axis;
  }
  [[noreturn]] static void throw_no_such_axis(int axis);
  std::uint64_t bits_ = 0;
};

/// Ranks in row-major order over the axes: the last axis varies fastest, so its members are neighbours (the axis with
/// the most communication goes last). A mesh without axes has one rank.
class CONSIST_API Mesh {
 public:
  static constexpr int max_axes = 16;  ///< each of two ranks or more: 65,536 ranks

  Mesh() = default;
  explicit Mesh(std::vector<MeshAxis> axes);  ///< throws UsageError beyond max_axes, for a size < 1 or a repeated name

  int axes() const noexcept { return static_cast<int>(axes_.size()); }
  const MeshAxis& axis(int index) const { return axes_.at(static_cast<std::size_t>(index)); }
  /// Index of the axis of that name, -1 if there is none.
  int find(std::string_view name) const noexcept;
  int ranks() const noexcept;
  AxisSet all_axes() const noexcept;

  // For a set of axes (an index is the set of that axis). ERRORS: std::out_of_range for an axis that the mesh does not have.

  int size_of(AxisSet axes) const;  ///< members of a group: the product of the sizes, 1 of no axis
  int groups(AxisSet axes) const { return ranks() / size_of(axes); }
  /// Position of `rank` in its group.
  int coordinate(int rank, AxisSet axes) const;
  /// The ranks that differ from `rank` only along `axes`, in order of their coordinate.
  std::vector<int> group(int rank, AxisSet axes) const;
  /// "data", or "data+context"; "none" of no axis.
  std::string text(AxisSet axes) const;
  /// The axes that such a text names, nothing if it is not one of this mesh's.
  std::optional<AxisSet> parse(std::string_view text) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
};

/// The way in which a tensor lies along one axis of the mesh.
class Placement {
 public:
  constexpr Placement() = default;  ///< replicate
  static constexpr Placement replicate() noexcept { return {}; }
  /// Each rank holds an equal, contiguous slice of dimension `dim`.
  static constexpr Placement shard(int dim) noexcept { return Placement(static_cast<std::int8_t>(dim)); }
  /// Each rank holds a summand; the value is the sum over the axis.
  static constexpr Placement partial() noexcept { return Placement(std::int8_t{-2}); }
  /// The tensor as the other axes leave it, flattened and cut into equal slices of ceil(elements / ranks) elements; the last ones
  /// may be shorter or empty. Any shape divides so, and slices are contiguous: how ZeRO shards (Rajbhandari et al., 2020). A
  /// tensor that is flat along several axes is cut once, over the group of all of them.
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

/// One placement per mesh axis, by index; axes beyond those of the mesh stay replicate. A tensor lies on a set of axes as it lies
/// on each of them; slices of one dimension nest, the first axis outermost.
class CONSIST_API Placements {
 public:
  Placement operator[](int axis) const noexcept { return on_[static_cast<std::size_t>(axis)]; }
  Placement& operator[](int axis) noexcept { return on_[static_cast<std::size_t>(axis)]; }
  bool all_replicate() const noexcept;
  /// The placement on `axes`, nothing where those differ (or there are none).
  std::optional<Placement> on(AxisSet axes) const noexcept;
  void set(AxisSet axes, Placement placement) noexcept {
    for (int axis : axes) (*this)[axis] = placement;
  }
  /// The axes along which the tensor is flat.
  AxisSet flat_axes() const noexcept;
  bool operator==(const Placements&) const noexcept = default;
  /// "" if replicated on every axis, else e.g. "{data:S0,tensor:P}" ("F": flat).
  std::string text(const Mesh& mesh) const;

 private:
  std::array<Placement, Mesh::max_axes> on_{};
};

/// The shape of the slice of a tensor of `shape` that one rank holds in memory: sharded extents divided by the axis size;
/// [ceil(elements / ranks)] where it is flat. Throws ProgramError if an extent does not divide.
CONSIST_API Shape local_shape(const Shape& shape, const Placements& placements, const Mesh& mesh);

/// An index per dimension.
using Origin = std::array<std::int64_t, Shape::max_rank>;

/// The slice of a tensor that one rank holds.
struct LocalPart {
  Shape shape;      ///< as local_shape, but without the padding of a flat tensor's last slices
  Origin origin{};  ///< where it begins in the logical tensor; for a flat one [0] is the index in the flattened tensor that it is
                    ///< cut from
};
CONSIST_API LocalPart local_part(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank);

}  // namespace consist
