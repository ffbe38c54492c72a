#include "core/passes/arrangement.h"

#include <algorithm>

#include "consist/builder.h"
#include "consist/edit.h"
#include "consist/op.h"
#include "consist/places.h"
#include "core/base/index.h"
#include "core/passes/pack_linears.h"

namespace consist {
namespace {

std::int64_t row_bytes(const Program& program, TensorId tensor) {
  return program.local(tensor).last() * static_cast<std::int64_t>(size_of(program[tensor].dtype));
}

/// True if `holds` is true for every pair of neighbours.
template <typename Holds>
bool all_pairs(const std::vector<TensorId>& tensors, Holds holds) {
  return std::adjacent_find(tensors.begin(), tensors.end(), [&](TensorId a, TensorId b) { return !holds(a, b); }) ==
         tensors.end();
}

bool all_different(std::vector<TensorId> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

}  // namespace

Arrangement::Arrangement(Program& program)
    : program_(program), padding_(program.padding()), in_storage_(program.tensors.size()), accesses_(program.tensors.size()) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    in_storage_[index(program.tensors[t].storage)].push_back(static_cast<TensorId>(t));
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto note = [&](const std::vector<TensorId>& tensors, bool writes) {
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        if (tensors[k] != no_tensor)
          accesses_[index(tensors[k])].push_back({static_cast<InstructionId>(i), static_cast<int>(k), writes});
      }
    };
    note(program.instructions[i].inputs, false);
    note(program.instructions[i].outputs, true);
  }
}

bool Arrangement::can_lie_behind_each_other(const std::vector<TensorId>& tensors) const {
  const auto behind = [&](TensorId a, TensorId b) { return lie_behind_each_other(program_, a, b); };
  if (all_pairs(tensors, behind)) return true;
  const Tensor& first = program_[tensors[0]];
  return padding_ == 0 && all_different(tensors) && std::all_of(tensors.begin(), tensors.end(), [&](TensorId id) {
           const Tensor &t = program_[id], &storage = program_[t.storage];
           return t.offset == 0 && t.row_stride == 0 && t.space == first.space &&
                  storage.state == program_[first.storage].state && storage.role == program_[first.storage].role &&
                  program_.bytes(id) == program_.bytes(t.storage) && program_.bytes(id) % tensor_alignment == 0;
         });
}

void Arrangement::put_behind_each_other(const std::vector<TensorId>& tensors) {
  if (all_pairs(tensors, [&](TensorId a, TensorId b) { return lie_behind_each_other(program_, a, b); })) return;
  std::int64_t bytes = 0;
  for (TensorId id : tensors) bytes += program_.bytes(id);
  const TensorId storage = add_storage(tensors, bytes);
  std::int64_t offset = 0;
  for (TensorId id : tensors) {
    const std::vector<TensorId> all = in_storage_[index(program_[id].storage)];
    const std::int64_t own = program_.bytes(id);
    for (TensorId member : all) move(member, storage, offset + program_[member].offset, 0);
    offset += own;
  }
}

bool Arrangement::takes_strided_view(TensorId tensor) const {
  return std::all_of(accesses_[index(tensor)].begin(), accesses_[index(tensor)].end(), [&](const Access& access) {
    const Op& op = *program_.instructions[static_cast<std::size_t>(access.instruction)].op;
    return !op.touches_memory() || (access.writes ? op.makes_strided_view(access.index) : op.takes_strided_view(access.index));
  });
}

bool Arrangement::can_lie_side_by_side(const std::vector<TensorId>& tensors) const {
  if (all_pairs(tensors, [&](TensorId a, TensorId b) { return lie_side_by_side(program_, a, b); })) return true;
  std::vector<TensorId> storages;
  for (TensorId id : tensors) storages.push_back(program_[id].storage);
  if (!all_different(storages)) return false;
  const Tensor& first = program_[tensors[0]];
  const auto rows_of_storage = [&](TensorId id) { return program_.bytes(program_[id].storage) / row_bytes(program_, id); };
  return std::all_of(tensors.begin(), tensors.end(), [&](TensorId id) {
    const Tensor& t = program_[id];
    const std::int64_t row = row_bytes(program_, id), offset = program_[tensors[0]].offset / row_bytes(program_, tensors[0]);
    const std::vector<TensorId>& all = in_storage_[index(t.storage)];
    return t.dtype == first.dtype && row > 0 && row % column_alignment == 0 && t.offset / row == offset &&
           program_[t.storage].role == Role::activation && program_[t.storage].space == first.space &&
           program_.bytes(t.storage) % row == 0 && rows_of_storage(id) == rows_of_storage(tensors[0]) &&
           std::all_of(all.begin(), all.end(),
                       [&](TensorId member) { return is_rows_of(member, id) && takes_strided_view(member); });
  });
}

bool Arrangement::is_rows_of(TensorId member, TensorId like) const {
  const Tensor &m = program_[member], &t = program_[like];
  const std::int64_t row = row_bytes(program_, like);
  return m.row_stride == 0 && !m.state && m.dtype == t.dtype && row > 0 && row_bytes(program_, member) == row &&
         m.offset % row == 0;
}

std::int64_t Arrangement::strided_offset(TensorId tensor, std::int64_t row_stride) const {
  const Tensor& t = program_[tensor];
  return t.offset / row_bytes(program_, tensor) * row_stride * static_cast<std::int64_t>(size_of(t.dtype));
}

void Arrangement::put_side_by_side(const std::vector<TensorId>& tensors) {
  if (all_pairs(tensors, [&](TensorId a, TensorId b) { return lie_side_by_side(program_, a, b); })) return;
  std::int64_t bytes = 0, row_stride = 0, column = 0;
  for (TensorId id : tensors) {
    bytes += program_.bytes(program_[id].storage);
    row_stride += program_.local(id).last();
  }
  const TensorId storage = add_storage(tensors, bytes);
  for (TensorId id : tensors) {
    const std::vector<TensorId> all = in_storage_[index(program_[id].storage)];
    for (TensorId member : all) move(member, storage, column + strided_offset(member, row_stride), row_stride);
    column += row_bytes(program_, id);
  }
}

void Arrangement::put_in_place_of(TensorId storage, TensorId place) {
  const TensorId target = program_[place].storage;
  const std::int64_t offset = program_[place].offset, row_stride = program_[place].row_stride;
  const std::vector<TensorId> all = in_storage_[index(storage)];
  for (TensorId member : all) move(member, target, offset + strided_offset(member, row_stride), row_stride);
}

void Arrangement::make_owner(TensorId owner) {
  const std::vector<TensorId> all = in_storage_[index(program_[owner].storage)];
  for (TensorId member : all) move(member, owner, program_[member].offset, program_[member].row_stride);
}

void Arrangement::move(TensorId tensor, TensorId storage, std::int64_t offset, std::int64_t row_stride) {
  Tensor& t = program_[tensor];
  std::erase(in_storage_[index(t.storage)], tensor);
  t.storage = storage;
  t.offset = offset;
  t.row_stride = row_stride;
  in_storage_[index(storage)].push_back(tensor);
}

TensorId Arrangement::add_storage(const std::vector<TensorId>& tensors, std::int64_t bytes) {
  const Tensor like = program_[program_[tensors[0]].storage];
  const TensorId storage = Builder(program_).storage(like.name + " and beside", bytes, like.role);
  program_[storage].state = like.state;
  program_[storage].space = like.space;
  in_storage_.resize(program_.tensors.size());
  accesses_.resize(program_.tensors.size());
  in_storage_[index(storage)].push_back(storage);
  return storage;
}

}  // namespace consist
