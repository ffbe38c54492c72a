#include "core/passes/pack_linears.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "consist/op.h"
#include "consist/places.h"
#include "core/passes/arrangement.h"

namespace consist {
namespace {

using Group = std::vector<InstructionId>;

// The inputs of linear and of its gradients.
constexpr std::size_t linear_x = 0, linear_w = 1, linear_bias = 2, linear_sum = 3;
constexpr std::size_t input_grad_dy = 0, input_grad_w = 1, input_grad_sum = 2;
constexpr std::size_t weight_grad_x = linear_x, weight_grad_dy = 1, weight_grad_sum = linear_bias;

class Packer {
 public:
  explicit Packer(Program& program)
      : program_(program), arrangement_(program), dropped_(program.instructions.size(), false), collectives_before_{0} {
    for (const Instruction& i : program.instructions)
      collectives_before_.push_back(collectives_before_.back() + (i.op->is_collective() ? 1 : 0));
  }

  void run() {
    const std::vector<Group> forward = groups_of(LinearPart::product), weights = groups_of(LinearPart::weight_gradient), chains = find_chains();
    // All in the order in which backward comes to them, so that one order of weights serves both directions.
    for (Group group : forward) {
      std::reverse(group.begin(), group.end());
      pack_runs(
          group, [this](const Group& run) { return can_pack_forward(run); }, [this](const Group& run) { pack_forward(run); });
    }
    for (const Group& group : chains)
      pack_runs(
          group, [this](const Group& run) { return can_pack_chain(run); }, [this](const Group& run) { pack_chain(run); });
    for (const Group& group : weights)
      pack_runs(
          group, [this](const Group& run) { return can_pack_weights(run); }, [this](const Group& run) { pack_weights(run); });
    rotate_in_place();
    std::vector<Instruction> kept;
    kept.reserve(program_.instructions.size());
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      if (!dropped_[i]) kept.push_back(std::move(program_.instructions[i]));
    }
    program_.instructions = std::move(kept);
  }

 private:
  const Instruction& at(InstructionId i) const { return program_.instructions[static_cast<std::size_t>(i)]; }
  TensorId input(InstructionId i, std::size_t k) const { return k < at(i).inputs.size() ? at(i).inputs[k] : no_tensor; }
  bool is(InstructionId i, LinearPart part) const {
    return at(i).op->linear_part() == part && at(i).queue == Queue::compute() && at(i).op->packed() != nullptr &&
           input(i, linear_sum) == no_tensor;
  }
  /// True if one packed instruction can compute both.
  bool is_alike(InstructionId a, InstructionId b) const {
    return at(a).op->packed() == at(b).op->packed() && at(a).attributes.all() == at(b).attributes.all();
  }

  /// Instructions of that part of linears that read one x and agree on whether they have the optional last input.
  std::vector<Group> groups_of(LinearPart part) const {
    std::map<std::tuple<TensorId, bool, Phase>, std::size_t> open;  // groups that may still grow
    std::vector<Group> groups;
    for (std::size_t position = 0; position < program_.instructions.size(); ++position) {
      const auto i = static_cast<InstructionId>(position);
      if (!is(i, part)) continue;
      const auto [known, is_new] =
          open.try_emplace({input(i, linear_x), input(i, linear_bias) != no_tensor, at(i).tag.phase}, groups.size());
      if (is_new || !is_alike(groups[known->second].front(), i) ||
          !can_wait(groups[known->second], i, part == LinearPart::weight_gradient)) {
        known->second = groups.size();
        groups.emplace_back();
      }
      groups[known->second].push_back(i);
    }
    return groups;
  }

  /// Gradients of one x that are added up one after the other.
  std::vector<Group> find_chains() const {
    std::vector<Group> chains;
    std::vector<bool> inside(program_.instructions.size(), false);
    for (std::size_t position = 0; position < program_.instructions.size(); ++position) {
      const auto first = static_cast<InstructionId>(position);
      if (inside[position] || !is(first, LinearPart::input_gradient)) continue;
      Group chain{first};
      for (InstructionId next = only_reader(at(first).outputs[0]);
           next >= 0 && is(next, LinearPart::input_gradient) && is_alike(first, next) && input(next, input_grad_sum) == at(chain.back()).outputs[0] &&
           can_wait(chain, next, false);
           next = only_reader(at(next).outputs[0])) {
        chain.push_back(next);
        inside[static_cast<std::size_t>(next)] = true;
      }
      chains.push_back(std::move(chain));
    }
    return chains;
  }

  /// The instruction that alone reads a tensor, -1 if there is none or more.
  InstructionId only_reader(TensorId tensor) const {
    InstructionId reader = -1;
    for (const Access& access : arrangement_.accesses(tensor)) {
      if (access.writes) continue;
      if (reader >= 0) return -1;
      reader = access.instruction;
    }
    return reader;
  }

  /// True if all of `group` can be delayed until `later`.
  bool can_wait(const Group& group, InstructionId later, bool before_collectives) const {
    const auto collectives = [&](InstructionId i) { return collectives_before_[static_cast<std::size_t>(i)]; };
    if (before_collectives && collectives(group.front()) != collectives(later)) return false;
    return std::all_of(group.begin(), group.end(), [&](InstructionId i) {
      const auto free = [&](TensorId id, bool of_reads) { return id == no_tensor || !is_touched(id, i, later, of_reads, group); };
      return std::all_of(at(i).inputs.begin(), at(i).inputs.end(), [&](TensorId id) { return free(id, false); }) &&
             std::all_of(at(i).outputs.begin(), at(i).outputs.end(), [&](TensorId id) { return free(id, true); });
    });
  }

  /// True if instructions between `after` and `before`, those of `group` apart, write elements of the tensor (or read them).
  bool is_touched(TensorId tensor, InstructionId after, InstructionId before, bool or_read, const Group& group) const {
    const auto overlaps = [&](TensorId other) {
      const Tensor &a = program_[tensor], &b = program_[other];
      return b.offset < a.offset + program_.bytes(tensor) && a.offset < b.offset + program_.bytes(other);
    };
    const std::vector<TensorId>& all = arrangement_.in_storage(program_[tensor].storage);
    return std::any_of(all.begin(), all.end(), [&](TensorId member) {
      const auto accesses = arrangement_.accesses(member);
      auto access = std::upper_bound(accesses.begin(), accesses.end(), after,
                                     [](InstructionId i, const Access& a) { return i < a.instruction; });
      for (; access != accesses.end() && access->instruction < before; ++access) {
        if (!or_read && !access->writes) continue;
        if (std::find(group.begin(), group.end(), access->instruction) == group.end() && overlaps(member)) return true;
      }
      return false;
    });
  }

  /// Cuts a group into the longest runs that can be packed, and packs them.
  template <typename Can, typename Pack>
  void pack_runs(const Group& group, Can can, Pack pack) {
    Group run;
    const auto close = [&] {
      if (run.size() > 1) pack(run);
      run.clear();
    };
    for (InstructionId i : group) {
      run.push_back(i);
      if (run.size() == 1 || can(run)) continue;
      run.pop_back();
      close();
      run.push_back(i);
    }
    close();
  }

  std::vector<TensorId> inputs(const Group& run, std::size_t k) const {
    std::vector<TensorId> tensors;
    for (InstructionId i : run) tensors.push_back(input(i, k));
    return tensors;
  }
  std::vector<TensorId> outputs(const Group& run) const {
    std::vector<TensorId> tensors;
    for (InstructionId i : run) tensors.push_back(at(i).outputs[0]);
    return tensors;
  }

  bool can_pack_forward(const Group& run) const {
    const std::vector<TensorId> biases = inputs(run, linear_bias);
    return arrangement_.can_lie_behind_each_other(inputs(run, linear_w)) &&
           (biases[0] == no_tensor || arrangement_.can_lie_behind_each_other(biases)) &&
           arrangement_.can_lie_side_by_side(outputs(run));
  }
  void pack_forward(const Group& run) {
    const std::vector<TensorId> weights = inputs(run, linear_w), biases = inputs(run, linear_bias);
    arrangement_.put_behind_each_other(weights);
    if (biases[0] != no_tensor) arrangement_.put_behind_each_other(biases);
    arrangement_.put_side_by_side(outputs(run));
    replace(run, input(run[0], linear_x), weights, biases, outputs(run));
  }

  bool can_pack_chain(const Group& run) const {
    return arrangement_.can_lie_behind_each_other(inputs(run, input_grad_w)) &&
           arrangement_.can_lie_side_by_side(inputs(run, input_grad_dy));
  }
  void pack_chain(const Group& run) {
    const std::vector<TensorId> weights = inputs(run, input_grad_w), gradients = inputs(run, input_grad_dy);
    arrangement_.put_behind_each_other(weights);
    arrangement_.put_side_by_side(gradients);
    const TensorId dx = at(run.back()).outputs[0];
    // The sums in between are gone: the memory is that of the last.
    if (program_[dx].storage == at(run.front()).outputs[0]) arrangement_.make_owner(dx);
    replace(run, input(run[0], input_grad_sum), gradients, weights, {dx});
  }

  bool can_pack_weights(const Group& run) const {
    return arrangement_.can_lie_side_by_side(inputs(run, weight_grad_dy)) && arrangement_.can_lie_behind_each_other(outputs(run));
  }
  void pack_weights(const Group& run) {
    arrangement_.put_side_by_side(inputs(run, weight_grad_dy));
    arrangement_.put_behind_each_other(outputs(run));
    replace(run, input(run[0], weight_grad_x), inputs(run, weight_grad_dy), inputs(run, weight_grad_sum), outputs(run));
  }

  /// Puts one packed instruction in the place of the last of `run`.
  void replace(const Group& run, TensorId shared, const std::vector<TensorId>& firsts, const std::vector<TensorId>& seconds,
               std::vector<TensorId> made) {
    for (InstructionId i : run) dropped_[static_cast<std::size_t>(i)] = true;
    const auto last = static_cast<std::size_t>(*std::max_element(run.begin(), run.end()));
    dropped_[last] = false;
    Instruction& packed = program_.instructions[last];
    packed.op = packed.op->packed();
    packed.inputs = {shared};
    for (std::size_t k = 0; k < run.size(); ++k) packed.inputs.insert(packed.inputs.end(), {firsts[k], seconds[k]});
    packed.outputs = std::move(made);
  }

  /// Strided views of the same columns as `view`, itself included.
  std::vector<TensorId> views_of_same_columns(TensorId view) const {
    const Tensor& t = program_[view];
    const auto row = t.row_stride * static_cast<std::int64_t>(size_of(t.dtype));
    std::vector<TensorId> found;
    for (TensorId member : arrangement_.in_storage(t.storage)) {
      if (program_[member].row_stride == t.row_stride && program_[member].offset % row == t.offset % row) found.push_back(member);
    }
    return found;
  }
  /// True if nothing touches the elements of the view before (after) an instruction.
  bool untouched(TensorId view, InstructionId i, bool before) const {
    const std::vector<TensorId> all = views_of_same_columns(view);
    return std::all_of(all.begin(), all.end(), [&](TensorId member) {
      const auto accesses = arrangement_.accesses(member);
      return !extents_overlap(program_, view, member) || std::all_of(accesses.begin(), accesses.end(), [&](const Access& access) {
        return before ? access.instruction >= i : access.instruction <= i;
      });
    });
  }

  void rotate_in_place() {
    std::map<TensorId, Group> rotations;  // by the storage of their outputs, which may be slices of it
    for (std::size_t position = 0; position < program_.instructions.size(); ++position) {
      const auto i = static_cast<InstructionId>(position);
      if (dropped_[position]) continue;
      if (at(i).queue != Queue::compute() || at(i).outputs.empty() || at(i).op->may_take_place_of(0) != 0) continue;
      if (program_[at(i).inputs[0]].row_stride != 0) {
        rotations[program_[at(i).outputs[0]].storage].push_back(i);
      } else if (program_[at(i).outputs[0]].row_stride != 0) {
        const TensorId dy = at(i).inputs[0], dx = at(i).outputs[0];
        if (untouched(dx, i, true) && program_[dy].storage == dy && arrangement_.in_storage(dy).size() == 1 &&
            can_be_strided(dy) && only_reader(dy) == i)
          arrangement_.put_in_place_of(dy, dx);
      }
    }
    for (const auto& [storage, group] : rotations) {
      const auto first =
          std::find_if(group.begin(), group.end(), [&](InstructionId i) { return program_[at(i).outputs[0]].offset == 0; });
      if (first != group.end() && can_rotate(storage, group, at(*first).inputs[0]))
        arrangement_.put_in_place_of(storage, at(*first).inputs[0]);
    }
  }

  /// True if all that lies in `storage` is made by `group`, row by row from the view that begins at `place`, which has no readers
  /// afterwards.
  bool can_rotate(TensorId storage, const Group& group, TensorId place) const {
    const Tensor& view = program_[place];
    const std::vector<TensorId>& members = arrangement_.in_storage(storage);
    const auto in_group = [&](const Access& access) {
      return !access.writes || !at(access.instruction).op->touches_memory() ||
             std::find(group.begin(), group.end(), access.instruction) != group.end();
    };
    return can_be_strided(storage) &&
           std::all_of(members.begin(), members.end(),
                       [&](TensorId member) {
                         const auto accesses = arrangement_.accesses(member);
                         return std::all_of(accesses.begin(), accesses.end(), in_group);
                       }) &&
           std::all_of(group.begin(), group.end(), [&](InstructionId i) {
             const TensorId x = at(i).inputs[0], y = at(i).outputs[0];
             return program_[x].storage == view.storage && program_[x].row_stride == view.row_stride &&
                    program_[x].offset == view.offset + arrangement_.strided_offset(y, view.row_stride) && untouched(x, i, false);
           });
  }

  /// True if all tensors of a storage are rows of it, and all instructions that touch them take strided views.
  bool can_be_strided(TensorId storage) const {
    const std::vector<TensorId>& members = arrangement_.in_storage(storage);
    return program_[storage].role == Role::activation && std::all_of(members.begin(), members.end(), [&](TensorId member) {
             return arrangement_.is_rows_of(member, storage) && arrangement_.takes_strided_view(member);
           });
  }

  Program& program_;
  Arrangement arrangement_;
  std::vector<bool> dropped_;
  std::vector<int> collectives_before_;  // by instruction
};

}  // namespace

void pack_linears(Program& program) {
  Packer(program).run();
}

}  // namespace consist
