// Experts that ranks share, by whichever strategies: who has which, and for how many rows of tokens there is room.
#pragma once

#include <optional>

#include "consist/program.h"

namespace consist::strategies {

/// Rows that a rank has room for where nobody says how many, as a multiple of what each would have if all had the same.
constexpr double usual_capacity = 1.25;

/// Divides the weights of all experts over `axes`, the strategy `who`'s, and adds these to the axes along which tokens are
/// dispatched; other strategies may have divided experts along theirs before. `capacity`: a multiple as above. A program has one
/// room: the strategy that comes first states it (usual_capacity without a value), later ones leave theirs out. `otherwise`: what
/// the user may do instead where the number of experts does not divide by the ranks; behind "choose a size for tp-sp that does".
/// Returns whether there are experts. Throws UsageError where they do not divide, have been changed by others, or where a later
/// strategy has a capacity. `forward` has not been placed yet.
bool divide_experts(Program& forward, AxisSet axes, std::optional<double> capacity, const char* who, const char* otherwise = "");

}  // namespace consist::strategies
