// Infers a program anew after its inputs or parameters have changed dtype or placement.
#pragma once

#include "consist/program.h"

namespace consist {

/// Re-emits every instruction of a forward program: types, placements and the collectives between them follow from the inputs,
/// parameters and constants as they stand in `program`. Instructions keep their tags; collectives that earlier placements needed
/// are dropped.
CONSIST_API Program rebuild(const Program& program);

}  // namespace consist
