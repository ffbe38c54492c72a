// Cuts the sequences of a micro-batch into equal slices, each of which goes through all layers by itself.
#pragma once

#include <string>

#include "consist/program.h"

namespace consist::strategies {

struct CutProgram {
  Program program;      ///< unchanged if it cannot be cut
  std::string why_not;  ///< behind "--NAME.parts is N, but "; empty if it was cut
};

/// Forward of one micro-batch, placed on the mesh and not yet differentiated, with every instruction from the embedding to the
/// last norm in `parts` slices of the batch. The op's placement rule decides: each slice is treated as a shard of the batch.
/// Slices are views of the inputs; tensors that layers make for all tokens (statistics of routers) are added up; the outputs of
/// the last norm are joined again in place. `who` is the strategy, as Tag::inserted_by has it.
CutProgram cut_batch(const Program& forward, int parts, const char* who);

}  // namespace consist::strategies
