// Ranks that are started to examine their machines, and what they say.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/hosts.h"
#include "launch/measure/short_figures.h"

namespace consist::doctor {

/// Keys of the lines that rank 0 of `consist examine` prints.
inline constexpr const char *hosts_event = "hosts", *figures_event = "figures";

struct Examination {
  std::vector<HostReport> hosts;  ///< where they were asked for
  std::optional<launch::ShortFigures> figures;
  std::string problem;  ///< why something was not measured; empty if all was
};

/// Takes what ranks say, line by line.
class ExaminationLines {
 public:
  void take_output(const std::string& line);
  void take_error(const std::string& line);
  /// All that was said until the ranks ended with that status.
  Examination ended(int status) &&;

 private:
  Examination said_;
  std::string last_error_;
};

/// Measures this machine with `consist examine WORDS` in processes of its own, which are ended if they take longer.
Examination examine_here(const std::vector<std::string>& words, std::chrono::seconds longest);

}  // namespace consist::doctor
