// Machines as files: reading and writing them, and the ones that ship. docs/machines.md describes the format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "core/cost/power.h"
#include "core/cost/step_errors.h"

namespace consist {

/// Throws DataError that begins with `name` and says which key is missing, unknown or wrong.
CONSIST_API Machine machine_from_json(std::string_view text, const std::string& name);
/// The text of a file: machine_from_json(), power_from_json() and step_errors_from_json() read the same from it, to the last bit.
/// Without `errors` Machine::step_error is written as that of three steps.
CONSIST_API std::string to_json(const Machine& machine, const Power& power = {}, const StepErrors& errors = {});

/// All that ship, by name.
CONSIST_API const std::vector<Machine>& known_machines();

/// A file that ships, by its name and its text; generated.
struct MachineText {
  const char* name;
  const char* text;
};
const std::vector<MachineText>& machine_texts();

}  // namespace consist
