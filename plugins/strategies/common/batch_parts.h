// The sequences of a micro-batch in equal parts, each of which goes through all layers by itself.
#pragma once

#include <string>

#include "consist/program.h"

namespace consist::strategies {

struct CutProgram {
  Program program;      ///< as it was if it cannot be cut
  std::string why_not;  ///< behind "--NAME.parts is N, but "; empty if it was cut
};

/// Forward of one micro-batch, placed on the mesh and not yet differentiated, with every instruction from the embedding to the
/// last norm in `parts` along the batch. What an op makes of a part it says itself: a part is to it what a rank is that has some
/// of the sequences. Parts are views of the inputs; what layers make for all tokens (statistics of routers) is added up; what the
/// last norm makes is joined again in place. `who` is the strategy, as Tag::inserted_by has it.
CutProgram cut_batch(const Program& forward, int parts, const char* who);

}  // namespace consist::strategies
