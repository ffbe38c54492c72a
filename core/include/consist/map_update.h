// The op `map_update_N`: an optimizer's rule by elements as expressions (consist/expression.h), for N states of each parameter, 1
// to 8. Its operands are those of Op::states_per_update(), so that emit_update() emits it and ZeRO divides and offloads it.
//
// In attribute "f" a is the weight (the master, if there is one), b the gradient, c[k] the scalars that
// Optimizer::write_scalars() wrote, d[0] the factor that clips gradients, and e, f, ... are the states, e[0], f[0], ... those
// that are scalars. Results: the new weight, then the new states in order. All read what was there before; the result of a scalar
// state must not depend on elements. A step that changes nothing (d[0] < 0) leaves all as it was. There is no stochastic
// rounding. States are f32 or bf16, those like the parameter also e4m3 or e5m2, which are rounded as consist/float8.h says.
//
// A rule of blocks has two more attributes: "block", the neighbouring elements that share a value, of which rows are multiples,
// and "largest", expressions of the same inputs: of each the largest over a block is an input behind the states. Those, and
// states of StateShape::blocks, are read as f[b]; the result of such a state must not depend on elements.
#pragma once

#include <vector>

#include "consist/export.h"
#include "consist/expression.h"
#include "consist/program.h"

namespace consist {

inline constexpr int max_update_states = 8;

/// The inputs of an update's expressions before the states: weight, gradient, scalars, clip.
inline constexpr int update_state_input = 4;

/// One parameter's update as loops, in this order: over its elements to find the largest of each block, over its elements, its
/// blocks and its scalars, each of which reads what the later ones write. The elements of a rule of blocks are a matrix with a
/// block in each row: what belongs to a block is read as [r] by the loops over elements, and as it is by the loop over blocks.
struct UpdateLoops {
  std::vector<Expressions> largest;
  Expressions elements;  ///< results: the weight, once more for the master if there is one, then the states like the parameter
  Expressions blocks;    ///< results: the states of blocks; none if there are none
  Expressions scalars;   ///< the same for scalar states
  std::vector<Reads> states;  ///< the way in which each is read: same, block, or element if it is a scalar
};

/// The loops for attributes "f" and "largest". ERRORS: ProgramError where results and states differ in number, or the result of a
/// scalar or a block depends on elements.
CONSIST_API UpdateLoops update_loops(const Attributes& attributes, int states, bool has_master);

}  // namespace consist
