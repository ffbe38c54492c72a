#include "core/program/well_formed.h"

#include <set>
#include <string_view>

#include "consist/analysis.h"
#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

/// Sums and products of places below it stay within 64 bits.
constexpr std::int64_t most_bytes = std::int64_t{1} << 56;

constexpr int roles = static_cast<int>(Role::workspace) + 1;

void check_instruction(const Program& program, std::size_t index) {
  const Instruction& i = program.instructions[index];
  const auto fail = [&](const std::string& why) {
    throw ProgramError("instruction " + std::to_string(index) + (i.op == nullptr ? "" : " (" + std::string(i.op->name()) + ")") +
                       ": " + why);
  };
  if (i.op == nullptr) fail("it has no op");
  for (const auto* tensors : {&i.inputs, &i.outputs}) {
    for (std::size_t k = 0; k < tensors->size(); ++k) {
      if ((*tensors)[k] == no_tensor || exists(program, (*tensors)[k])) continue;
      fail((tensors == &i.inputs ? "input " : "output ") + std::to_string(k) + " does not exist: %" +
           std::to_string((*tensors)[k]) + " of " + std::to_string(program.tensors.size()) + " tensors");
    }
  }
  if (i.tag.inserted_by == nullptr) fail("its tag names nobody: Tag::inserted_by is null");
  if (static_cast<int>(i.tag.phase) > static_cast<int>(Phase::optimizer)) fail("its tag has no phase");
  if (i.queue.kind() > Queue::Kind::communication || static_cast<int>(i.queue.lane()) >= lanes) fail("its queue does not exist");
  const auto check_axes = [&](const char* what, AxisSet axes) {
    if (!axes.empty() && program.mesh.all_axes().contains(axes)) return;
    fail(what + program.mesh.text(axes) + ", the mesh has " + std::to_string(program.mesh.axes()) + " axes");
  };
  if (i.queue.is_communication()) check_axes("its queue is of ", i.queue.axes());
  if (!i.op->is_collective()) return;
  const AxisSet axes = i.attributes.axes("axis");
  check_axes("it is a collective over ", axes);
  if (!i.queue.is_communication() || i.queue.axes() != axes) fail("a collective runs on the queue of its axes");
}

void check_parameter(const Program& program, const Parameter& parameter) {
  const auto must_exist = [&](TensorId id, const char* what) {
    if (!exists(program, id))
      throw ProgramError("parameter '" + parameter.name + "': its " + what + ", %" + std::to_string(id) + ", does not exist");
  };
  must_exist(parameter.tensor, "tensor");
  if (parameter.gradient != no_tensor) must_exist(parameter.gradient, "gradient");
  if (parameter.master != no_tensor) must_exist(parameter.master, "master");
  for (const ParameterState& state : parameter.states) must_exist(state.tensor, state.name.c_str());
  if (parameter.tied_replica < -1 || parameter.tied_replica >= program.mesh.ranks())
    throw ProgramError("parameter '" + parameter.name + "': its tied replica is rank " + std::to_string(parameter.tied_replica));
}

}  // namespace

void check_ids(const Program& program) {
  if (program.rank < 0 || program.rank >= program.mesh.ranks()) {
    throw ProgramError("the program is of rank " + std::to_string(program.rank) + ", the mesh has " +
                       std::to_string(program.mesh.ranks()) + " ranks");
  }
  if (program.stage_axis < -1 || program.stage_axis >= program.mesh.axes())
    throw ProgramError("the axis of stages is " + std::to_string(program.stage_axis) + ", which the mesh does not have");
  if (program.micro_batches < 1)
    throw ProgramError("the program has " + std::to_string(program.micro_batches) + " micro-batches");
  if (program.loss != no_tensor && !exists(program, program.loss)) throw ProgramError("the loss does not exist");
  for (const StepOutput& output : program.outputs) {
    if (output.tensor != no_tensor && !exists(program, output.tensor))
      throw ProgramError("the output '" + output.name + "' does not exist");
  }
  for (std::size_t index = 0; index < program.instructions.size(); ++index) check_instruction(program, index);
  for (const Parameter& parameter : program.parameters) check_parameter(program, parameter);
  for (const Constant& constant : program.constants) {
    if (!exists(program, constant.tensor) || !constant.fill)
      throw ProgramError("a constant has no tensor, or nothing to fill it");
  }
}

std::string who_is(const Program& program, TensorId id) {
  return "tensor %" + std::to_string(id) + " '" + program[id].name + "': ";
}

void check_shape(const Program& program, TensorId id) {
  const Tensor& tensor = program[id];
  if (name_of(tensor.dtype) == "?" || static_cast<int>(tensor.role) >= roles || tensor.space > MemorySpace::host ||
      tensor.state_kind > StateKind::discardable)
    throw ProgramError(who_is(program, id) + "its dtype, role, memory space or kind of state does not exist");
  std::int64_t room = most_bytes / static_cast<std::int64_t>(size_of(tensor.dtype));
  for (int dim = 0; dim < tensor.shape.rank(); ++dim) {
    if (tensor.shape[dim] < 1) throw ProgramError(who_is(program, id) + "its shape " + tensor.shape.text() + " holds nothing");
    room /= tensor.shape[dim];
  }
  if (room < 1) throw ProgramError(who_is(program, id) + "its shape " + tensor.shape.text() + " has more bytes than any machine");
  if (tensor.row_stride < 0) throw ProgramError(who_is(program, id) + "its row stride is negative");
  if (tensor.row_stride > most_bytes / static_cast<std::int64_t>(size_of(tensor.dtype)) / tensor.shape.rows())
    throw ProgramError(who_is(program, id) + "its row stride " + std::to_string(tensor.row_stride) +
                       " puts its rows further apart than any machine holds");
  if (tensor.offset > most_bytes) throw ProgramError(who_is(program, id) + "its offset " + std::to_string(tensor.offset) + " lies outside of any machine");
}

void check_names(const Program& program, const DefUse& def_use) {
  std::set<std::string_view> parameters;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.name.empty()) throw ProgramError("a parameter has no name");
    if (!parameters.insert(parameter.name).second) throw ProgramError("two parameters are called '" + parameter.name + "'");
  }
  std::set<std::string_view> states;
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const Tensor& tensor = program.tensors[id];
    if (def_use.is_made(static_cast<TensorId>(id)) || !tensor.state || tensor.role != Role::optimizer_state) continue;
    if (tensor.name.empty()) throw ProgramError("a state has no name; a checkpoint could not tell it from others");
    if (!states.insert(tensor.name).second) throw ProgramError("two states are called '" + tensor.name + "'");
    for (int axis = 0; axis < program.mesh.axes(); ++axis) {
      if (axis == program.stage_axis || !tensor.placements[axis].is_partial() || tensor.state_kind == StateKind::per_rank)
        continue;
      throw ProgramError("the state '" + tensor.name + "' is a partial sum on axis '" + program.mesh.axis(axis).name +
                         "': no checkpoint could hold its value; sum it up, or make it StateKind::per_rank");
    }
  }
}

}  // namespace consist
