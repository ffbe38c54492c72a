// Values that steps of the interpreter begin with: functions of name and element alone, or of sequence and position, whatever the
// layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/interpreter/arena.h"

namespace consist::interpreter {

/// Parameters, masters and optimizer states. States of no parameter begin with zeros.
void write_initial_states(Arena& arena);

/// Writes the input of that name, if the program has it, as the trainer does. Throws where its size is another.
void write_input(Arena& arena, const std::string& name, const std::vector<double>& values);

/// `rows` sequences from `first` on, as "ids", "targets" and fields of datasets with a suffix. Some positions count nothing.
void write_tokens(Arena& arena, const std::string& suffix, std::int64_t first, std::int64_t rows, std::int64_t length,
                  std::int64_t vocabulary);

}  // namespace consist::interpreter
