// A run with the same mesh and small sizes, which an interpreter can carry out: what decides how ranks share the work stays.
#pragma once

#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace consist::prove {

struct SmallRun {
  Plan plan;
  std::string sizes;               ///< for messages: "2 of 80 layers, 16 heads of 4, ..."
  std::vector<std::string> notes;  ///< options that were scaled with the sizes
};

/// Keeps the mesh, strategies and their options, precision, optimizer, recomputation, ties, kinds of layers, and the remainders
/// of heads, key and value heads, experts, vocabulary, layers and tokens by the sizes of the mesh's axes. Takes few layers,
/// heads, tokens and micro-batches, tokens and weights that are functions of position and name, and scales options that are sizes
/// (bytes, and numbers of 10,000 and more) and ranges of layers with the model. Throws UsageError where no small model goes
/// together with the run's options, and what Plan throws.
SmallRun small_run(const Plan& plan);

}  // namespace consist::prove
