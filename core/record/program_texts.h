// The programs of a run's step as text, for the archive: what each class of ranks executed.
#pragma once

#include <cstddef>
#include <string>

#include "consist/export.h"
#include "consist/job.h"
#include "consist/program.h"

namespace consist {

/// Limit for the texts of all classes together, in bytes; programs beyond it lose their last lines.
inline constexpr std::size_t most_program_bytes = 16 << 20;

/// The program as to_text() prints it, up to the last whole line within `most` bytes; `left_out`: how many lines are not in it.
struct ProgramText {
  std::string text;
  std::size_t left_out = 0;
};
CONSIST_API ProgramText program_text(const Program& program, std::size_t most);

/// The archive's /programs, on rank 0; elsewhere nothing. Called by every rank, once. `own`: the rank's step. `ranks`: of the
/// job. Throws as Job::gather.
std::string programs_json(Job& job, const Program& own, int ranks);

}  // namespace consist
