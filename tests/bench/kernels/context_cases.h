// Attention as each rank of a context axis computes it, one after the other on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "tests/bench/kernels/attention_cases.h"

namespace consist::bench {

/// One attention and its gradient of one rank.
struct ContextRank {
  std::string label;
  std::vector<Case> cases;
};

/// For each kind of --cp.attention, each of `ranks` ranks; of ulysses, where all do the same, one. With a machine, what its cost
/// model says stands beside each case. REQUIRES: 2·ranks divides the sequence, ranks the heads.
std::vector<ContextRank> context_ranks(const AttentionSizes& sizes, DType dtype, int ranks,
                                       std::shared_ptr<const Machine> machine);

}  // namespace consist::bench
