// Experts that ranks share, by any strategies: the experts of each rank, and its capacity in rows of tokens.
#pragma once

#include <optional>

#include "consist/options.h"
#include "consist/program.h"
#include "consist/strategy.h"

namespace consist::strategies {

/// Default capacity of a rank, as a multiple of the rows that each would have if all had the same.
constexpr double usual_capacity = 1.25;

/// The option that sets it, for a strategy that shards experts where its option "experts" is "divided".
inline constexpr OptionSpec capacity_option{
    "capacity",
    OptionKind::real,
    "",
    "rows that a rank has room for at its experts, as a multiple of what each would have if all had the same; without it "
    "--ep.capacity where ep is there, too, else 1.25",
    "0..",
    "experts=divided"};
/// The same for a strategy that always shards them.
inline constexpr OptionSpec capacity_option_of_all{
    "capacity",  OptionKind::real,
    "1.25",      "rows that a rank has room for at its experts, as a multiple of what each would have if all had the same",
    "0..",       "",
    "1.25|1.5|2"};

/// Returns the value of such an option; nothing where it was not given and has no default.
std::optional<double> capacity_of(const Options& options);

/// Treatment of a strategy with this capacity on one rank: the user's capacity holds for all strategies that shard
/// experts.
OnOneRank on_one_rank(std::optional<double> capacity);

/// Shards the weights of all experts over `axes`, the strategy `who`'s, and adds these to the axes along which tokens are
/// dispatched; other strategies may have sharded experts along theirs before. `capacity`: a multiple as above. A program has one
/// capacity: the first strategy sets it (usual_capacity without a value), later ones leave theirs out. `otherwise`: what
/// the user may do instead where the number of experts does not divide by the ranks; behind "choose a size for tp-sp that does".
/// Without `axes`, on one rank, nothing is sharded, and the capacity is that of the strategy that shards experts next.
/// Returns true if there are experts. Throws UsageError where they do not divide, have been changed by others, or where a later
/// strategy has a capacity. `forward` has not been placed yet.
bool divide_experts(Program& forward, AxisSet axes, std::optional<double> capacity, const char* who, const char* otherwise = "");

/// For add_passes() of a strategy that has no axes: removes the capacity that divide_experts() was given, if no strategy sharded
/// experts.
void add_pass_that_forgets_room(PassList& passes, const char* who);

}  // namespace consist::strategies
