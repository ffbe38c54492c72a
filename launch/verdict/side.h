// A side of a verdict: the repeats of one configuration, read from their archives.
#pragma once

#include <string>
#include <vector>

#include "launch/compare/joined.h"
#include "launch/compare/outcome.h"
#include "launch/verdict/contrast.h"

namespace consist::launch {

struct SideRun {
  RunOutcome outcome;
  MeasuredRun speed;               ///< tokens/s, and the seconds of its steady steps
  MeasuredRun energy;              ///< J for a billion tokens, and the joules of those steps; value NaN: not measured
  std::vector<double> step, loss;  ///< of all steps
  double expert_load = unknown;    ///< mean over the steady steps
  std::string seed, schedule, dataset;
  double steps = 0, parameters = 0;  ///< steps that the configuration asks for
};

struct Side {
  std::string name;  ///< as it was given
  std::vector<SideRun> runs;
  std::vector<std::string> notes;  ///< about what was named
};

/// The archives that `given` names: archives (or a comparison.h5) joined by commas; a folder, all of whose archives are taken; or
/// the name of a row in the folder of a comparison without ".h5" (runs/c/llama-tiny_fp32), with all its repeats. `notes` gets
/// what lies beside and is not taken. Throws UsageError where nothing is there.
std::vector<std::string> archives_of_side(const std::string& given, std::vector<std::string>& notes);

/// Reads a side. Throws UsageError where the archives are not finished runs of one configuration (seeds may differ), and says how
/// to name one; otherwise as read_outcome().
Side read_side(const std::string& given);

/// The side of these archives.
Side read_side(const std::string& name, const std::vector<std::string>& archives);

/// The side's row of a comparison: its runs, and their speed.
CompareOutcome row_of(const Side& side);

/// Differences in configuration and conditions of rows that are not columns of a table, each by the labels given.
std::vector<Condition> differences_of(const std::vector<std::pair<std::string, CompareOutcome>>& rows, bool configurations);

}  // namespace consist::launch
