// Moves tensors of a finished program next to each other in memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "consist/program.h"

namespace consist {

/// One place where an instruction reads or writes a tensor.
struct Access {
  InstructionId instruction = -1;
  int index = 0;  ///< of the instruction's inputs or outputs
  bool writes = false;
};

/// The accesses of every tensor, and the tensors of every storage. The program's instructions may be replaced while it is used,
/// not renumbered; accesses are those of the program that it was made from.
class Arrangement {
 public:
  explicit Arrangement(Program& program);

  /// Tensors of a storage, in order of their ids.
  const std::vector<TensorId>& in_storage(TensorId storage) const { return in_storage_[static_cast<std::size_t>(storage)]; }
  std::span<const Access> accesses(TensorId tensor) const { return accesses_[static_cast<std::size_t>(tensor)]; }

  /// True if the tensors lie one behind the other already, or can be moved so: each owns a storage as large as itself.
  bool can_lie_behind_each_other(const std::vector<TensorId>& tensors) const;
  /// Moves them so.
  void put_behind_each_other(const std::vector<TensorId>& tensors);

  /// True if the tensors are strided views side by side already, or can become that: each is in a storage of its own of which
  /// all tensors are rows, and all instructions that touch them take strided views.
  bool can_lie_side_by_side(const std::vector<TensorId>& tensors) const;
  /// Moves their storages so.
  void put_side_by_side(const std::vector<TensorId>& tensors);

  /// True if every instruction that reads or writes the tensor takes a strided view there.
  bool takes_strided_view(TensorId tensor) const;

  /// True if `member`, in the same storage, consists of whole rows as `like` has them, is no strided view yet, and no state.
  bool is_rows_of(TensorId member, TensorId like) const;
  /// The distance in bytes from the first row to a tensor of such rows once rows are `row_stride` elements apart.
  std::int64_t strided_offset(TensorId tensor, std::int64_t row_stride) const;

  /// Gives all tensors of `storage`, which must be rows of it, the strided view that begins at `place`.
  void put_in_place_of(TensorId storage, TensorId place);

  /// Lets `owner`, a tensor at the start of its storage, own it.
  void make_owner(TensorId owner);

 private:
  void move(TensorId tensor, TensorId storage, std::int64_t offset, std::int64_t row_stride);
  TensorId add_storage(const std::vector<TensorId>& tensors, std::int64_t bytes);

  Program& program_;
  std::int64_t padding_;
  std::vector<std::vector<TensorId>> in_storage_;  // by storage
  std::vector<std::vector<Access>> accesses_;      // by tensor
};

}  // namespace consist
