#include "core/prove/first_difference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "consist/error.h"
#include "consist/op.h"
#include "consist/token_order.h"
#include "core/interpreter/step_run.h"
#include "core/program/local_ranges.h"

namespace consist::prove {
namespace {

using interpreter::Arena;

/// Sums in another order differ by less, and what follows from a wrong value by more.
constexpr double within = 1e-7;

/// A tensor by its name, within a micro-batch.
using Key = std::pair<std::string, int>;

struct Known {
  Shape shape;
  std::vector<double> values;  // logical
  double size = 0;             // the largest magnitude
};

/// True of an activation in zigzag order whose tokens are not along dimension 1, as attention's lse.
bool has_tokens_elsewhere(const Program& program, const Tensor& t) {
  if (program.zigzag == 0 || t.role != Role::activation) return false;
  bool along_one = false, further = false;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    const Placement placement = t.placements[axis];
    along_one |= placement.is_shard(1);
    further |= placement.is_shard() && !placement.is_shard(0) && !placement.is_shard(1);
  }
  return further && !along_one;
}

bool is_compared(const Program& program, TensorId id) {
  if (id == no_tensor) return false;
  const Tensor& t = program[id];
  if (t.name == "stop") return false;  // the number of ranks
  if (t.name.empty() || t.dtype == DType::u8 || t.role == Role::workspace) return false;
  for (int axis = 0; axis < program.mesh.axes(); ++axis) {
    if (t.placements.on(axis) == Placement::partial()) return false;
  }
  return !has_tokens_elsewhere(program, t);
}

/// Position in order of tokens of element `at` of a logical tensor that lies in the program's order.
std::int64_t in_order_of_tokens(const Program& program, const Tensor& t, std::int64_t at) {
  const bool has_tokens = t.role == Role::activation || t.role == Role::input;
  if (program.zigzag == 0 || !has_tokens || t.shape.rank() < 2) return at;
  std::int64_t inner = 1;
  for (int d = 2; d < t.shape.rank(); ++d) inner *= t.shape[d];
  const std::int64_t length = t.shape[1], row = at / inner;
  return (row / length * length + position_of(row % length, length, program.zigzag)) * inner + at % inner;
}

std::map<Key, Known> values_of_one_rank(const interpreter::RankPrograms& one) {
  std::map<Key, Known> known;
  const auto observer = [&](const Arena& rank, InstructionId id) {
    const Program& program = rank.planned().program;
    const Instruction& i = program.instructions[static_cast<std::size_t>(id)];
    if (!i.op->touches_memory()) return;
    for (const TensorId output : i.outputs) {
      if (!is_compared(program, output)) continue;
      Known& last = known[{program[output].name, i.tag.micro_batch}];
      last = {program[output].shape, rank.read(output).data, 0};
      for (const double v : last.values) last.size = std::max(last.size, std::abs(v));
    }
  };
  interpreter::run(one, {.steps = 1, .observer = observer});
  return known;
}

class Watch {
 public:
  Watch(std::map<Key, Known> known, const interpreter::RankPrograms& programs) : known_(std::move(known)) {
    for (const interpreter::Planned& step : programs.steps) {
      for (const Parameter& p : step.program.parameters) {
        if (p.tied_replica >= 0) of_stages_.insert(p.name + ".grad");
      }
    }
  }

  void see(const Arena& rank, InstructionId id) {
    if (first_) return;
    const Program& program = rank.planned().program;
    const Instruction& i = program.instructions[static_cast<std::size_t>(id)];
    if ((!i.op->touches_memory() && !i.op->is_collective()) || i.op == shift_) return;
    for (const TensorId output : i.outputs) {
      if (!is_compared(program, output) || of_stages_.contains(program[output].name)) continue;
      if (std::ranges::any_of(of(program).cut_anyhow, [&](int axis) { return program[output].placements[axis].is_shard(); }))
        continue;
      const auto known = known_.find({program[output].name, i.tag.micro_batch});
      if (known == known_.end() || of(program).last.at(known->first) != id) continue;
      compare(rank, id, output, known->second);
      if (first_) return;
    }
  }

  std::optional<FirstDifference> first() && { return std::move(first_); }

 private:
  struct Facts {
    std::map<Key, InstructionId> last;  ///< that writes a tensor of that name: those before it hold a part of a sum
    std::vector<int> cut_anyhow;        ///< axes over which tokens are cut into equal slices in whatever order
  };
  const Facts& of(const Program& program) {
    const auto [found, added] = facts_.try_emplace(program.rank);
    Facts& facts = found->second;
    if (!added) return facts;
    for (std::size_t n = 0; n < program.instructions.size(); ++n) {
      const Instruction& i = program.instructions[n];
      for (const TensorId output : i.outputs) {
        if (output == no_tensor) continue;
        facts.last[{program[output].name, i.tag.micro_batch}] = static_cast<InstructionId>(n);
        if (!i.op->is_collective() || i.attributes.integer_or("dim", 0) >= 0) continue;
        for (const int axis : i.attributes.axes("axis")) {
          if (program[output].placements[axis].is_shard()) facts.cut_anyhow.push_back(axis);
        }
      }
    }
    return facts;
  }

  void compare(const Arena& rank, InstructionId id, TensorId output, const Known& known) {
    const Program& program = rank.planned().program;
    const Tensor& t = program[output];
    if (t.shape != known.shape) return;  // something else of that name
    const std::vector<double> local = rank.read(output).data;
    for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
      for (std::int64_t n = 0; n < range.count; ++n) {
        const double found = local[static_cast<std::size_t>(range.local + n)],
                     expected = known.values[static_cast<std::size_t>(in_order_of_tokens(program, t, range.logical + n))];
        if (std::abs(found - expected) <= within * known.size) continue;
        return report(program, id, output, found, expected);
      }
    }
  }

  void report(const Program& program, InstructionId id, TensorId output, double found, double expected) {
    const Instruction& i = program.instructions[static_cast<std::size_t>(id)];
    first_ = FirstDifference{.tensor = program[output].name,
                             .op = std::string(i.op->name()),
                             .pass = i.tag.inserted_by,
                             .rank = program.rank,
                             .layer = i.tag.layer,
                             .micro_batch = i.tag.micro_batch,
                             .instruction = interpreter::place_of(program, id),
                             .found = found,
                             .expected = expected,
                             .inputs_from = {}};
    for (const TensorId input : i.inputs) {
      for (InstructionId before = id; before-- > 0 && input != no_tensor;) {
        const std::vector<TensorId>& made = program.instructions[static_cast<std::size_t>(before)].outputs;
        if (std::find(made.begin(), made.end(), input) == made.end()) continue;
        const std::string from = interpreter::place_of(program, before);
        if (std::ranges::find(first_->inputs_from, from) == first_->inputs_from.end()) first_->inputs_from.push_back(from);
        break;
      }
    }
  }

  std::map<Key, Known> known_;
  std::set<std::string> of_stages_;                   // gradients of tied parameters: each stage has a summand
  const Op* const shift_ = &registry().get("shift");  // its outputs are the neighbour's slices
  std::map<int, Facts> facts_;                        // by rank
  std::optional<FirstDifference> first_;
};

}  // namespace

std::optional<FirstDifference> first_difference(const interpreter::RankPrograms& programs, const interpreter::RankPrograms& one,
                                                std::uint64_t order) {
  Watch watch(values_of_one_rank(one), programs);
  try {
    interpreter::run(programs,
                     {.order = order, .steps = 1, .observer = [&](const Arena& rank, InstructionId id) { watch.see(rank, id); }});
  } catch (const ProgramError&) {
    // An error of the step itself has been told; a difference ahead of it counts.
  }
  return std::move(watch).first();
}

}  // namespace consist::prove
