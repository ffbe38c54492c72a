// Instructions of a run's programs as text, by the place that the archive's /timeline gives them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/archive/reader.h"

namespace consist::launch {

class ProgramLines {
 public:
  /// Those of /programs; none of archives that have none.
  explicit ProgramLines(const ArchiveReader& archive);

  /// The instruction of that index in the program of the n-th class of ranks, cut where it is very long; empty if it is not
  /// there.
  std::string line(std::size_t of_class, std::size_t instruction) const;

 private:
  std::vector<std::map<std::size_t, std::string>> classes_;
};

}  // namespace consist::launch
