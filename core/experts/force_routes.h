// Stated loads of experts: tokens go where a stated load sends them, not where routers would.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// Shares of the experts of router `row` (an index of Program::routers), of which a token chooses `choices`: one an expert, none
/// above 1 / choices, with the sum 1.
using SharesOfRouter = std::function<std::vector<double>(std::size_t row, std::int64_t experts, std::int64_t choices)>;

/// Lets a hash of each token's id choose its experts (Roller et al., 2021, "Hash Layers For Large Sparse Models"), each expert as
/// often as its share says where ids are equally frequent, as in random data; for another router another hash. Experts' weights
/// stay the probabilities of the logits, and are trained as ever. A token's choice depends on nothing but its id, so that all
/// layouts choose alike. On an unplaced program.
CONSIST_API void force_routes(Program& forward, const SharesOfRouter& shares);

}  // namespace consist
