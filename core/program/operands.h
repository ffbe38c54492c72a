// Operands of an instruction: its inputs and outputs, told alike by all who print, check or estimate it.
#pragma once

#include <cstdint>
#include <string>

#include "consist/program.h"

namespace consist {

/// The first input that is there; no_tensor if there is none. Optional inputs, such as a sum to add to, may come first.
CONSIST_API TensorId first_operand(const Instruction& instruction);

/// Name of what the instruction makes first, "" if it makes nothing (release).
CONSIST_API std::string first_output_name(const Program& program, const Instruction& instruction);

/// Bytes that a rank gives to a collective: of its inputs, or of its outputs where it only receives.
CONSIST_API std::int64_t message_bytes(const Program& program, const Instruction& collective);

}  // namespace consist
