// The op `map_update_N`: an optimizer's rule by elements as expressions (consist/expression.h), for N states of each parameter, 1
// to 8. Its operands are those of Op::states_per_update(), so that emit_update() emits it and ZeRO divides and offloads it.
//
// In attribute "f" a is the weight (the master, if there is one), b the gradient, c[k] the scalars that
// Optimizer::write_scalars() wrote, d[0] the factor that clips gradients, and e, f, ... are the states, e[0], f[0], ... those
// that are scalars. Results: the new weight, then the new states in order. All read what was there before; the result of a scalar
// state must not depend on elements. A step that changes nothing (d[0] < 0) leaves all as it was. There is no stochastic
// rounding.
#pragma once

#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/expression.h"

namespace consist {

inline constexpr int max_update_states = 8;

/// The inputs of an update's expressions before the states: weight, gradient, scalars, clip.
inline constexpr int update_state_input = 4;

/// One parameter's update as two loops: over its elements, then over the scalars, which the first one reads.
struct UpdateLoops {
  Expressions elements;  ///< results: the weight, once more for the master if there is one, then the states like the parameter
  Expressions scalars;   ///< results: the scalar states; none if there are none
  std::vector<bool> is_scalar;  ///< of each state
};

/// ERRORS: ProgramError where results and states differ in number, or a scalar's result depends on elements.
CONSIST_API UpdateLoops update_loops(std::string_view f, int states, bool has_master);

}  // namespace consist
