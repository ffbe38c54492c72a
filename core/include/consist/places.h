// Places of tensors in memory, relative to each other.
#pragma once

#include <cstdint>
#include <vector>

#include "consist/program.h"

namespace consist {

/// Bytes from the start of the first element that a rank holds of the tensor to the end of the last one; of a strided view with
/// those between its rows.
CONSIST_API std::int64_t extent_of(const Program& program, TensorId tensor);

/// Bytes that `instruction` moves of one of its tensors, from its first element on: extent_of(), plus, behind an unsharded
/// tensor, the padding that a collective over equal flat slices moves with it (Program::padding).
CONSIST_API std::int64_t extent_moved(const Program& program, const Instruction& instruction, TensorId tensor);

/// True if both lie in one storage and their extents have bytes in common.
CONSIST_API bool extents_overlap(const Program& program, TensorId a, TensorId b);

/// The last instruction that names a tensor in each storage, by the storage's id; -1 if none does.
CONSIST_API std::vector<InstructionId> last_uses(const Program& program);

/// True if both are dense and `next` begins where `first` ends, in the same storage.
CONSIST_API bool lie_behind_each_other(const Program& program, TensorId first, TensorId next);

/// True if both are strided views of one wider tensor, and the rows of `next` begin where those of `first` end.
CONSIST_API bool lie_side_by_side(const Program& program, TensorId first, TensorId next);

/// Offset in bytes of a tensor in its storage if the column ranges of the storage were stored one after the other, each dense.
/// Two tensors overlap exactly if they overlap there, as long as all tensors of the storage are rows of the same column ranges,
/// or all of it. Throws ProgramError for a strided view that does not lie in whole rows of its storage.
CONSIST_API std::int64_t unstrided_begin(const Program& program, TensorId tensor);

}  // namespace consist
