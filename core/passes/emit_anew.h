// Emits a program's instructions once more, so that types, placements and the collectives between them follow from its
// changed inputs, parameters and constants.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "consist/builder.h"
#include "consist/program.h"

namespace consist {

/// Replaces an instruction: emits into the builder and returns as many outputs as the instruction has, or returns nothing to have
/// it emitted as it was. `inputs` are the instruction's, in the new program. `i` may not be a collective.
using Replace =
    std::function<std::optional<std::vector<TensorId>>(Builder&, const Instruction& i, std::vector<TensorId>& inputs)>;

/// Inputs, states and constants keep their order; instructions keep their tags; collectives that earlier placements needed are
/// dropped. An output that is replaced by no_tensor may not be read. Throws ProgramError as Builder::emit().
CONSIST_API Program emit_anew(const Program& old, const Replace& replace = nullptr);

}  // namespace consist
