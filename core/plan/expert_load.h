// Load of a mixture's experts: their shares of the tokens' choices, for runs whose routes are forced and for predictions; for
// these also what the fullest rank has of them, and the program of a run that has grown its capacity for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"
#include "core/config/run_config.h"

namespace consist {

/// A value. Every layer has the same load; of an archive's layers the mean time and the largest memory count. THREADS: any.
class CONSIST_API ExpertLoad {
 public:
  /// "zipf:S": shares ~ 1/rank^S, in the order of the experts, the worst for ranks that hold neighbours; the name of a JSON file
  /// with a list of shares, by expert; that of an archive, whose recorded choices count; "balanced": equal shares. Null for
  /// "natural": routers choose as they will, which predictions take for balanced. Throws UsageError, and as read_json() and
  /// ArchiveReader.
  static std::shared_ptr<const ExpertLoad> parse(const std::string& text);

  const std::string& text() const noexcept { return text_; }

  /// Shares, one list a layer, that sum to 1: none above 1 / `choices`, since a token chooses an expert once at most; what is
  /// above goes to the others. Throws UsageError where there are shares for another number of experts.
  std::vector<std::vector<double>> shares(std::int64_t experts, std::int64_t choices) const;

  /// Multiple of the capacity that a run of this program comes to need: it grows by room_growth until all rows find a place. 1
  /// where no capacity limits rows. Throws as shares().
  double room_for(const Program& program) const;

  /// Rates products of a program with `room` times its first capacity as on the fullest rank, for which the others wait: by the
  /// rows in use there, and never by fewer than the first capacity.
  void rate(Program& program, double room) const;

 private:
  std::string text_;
  double exponent_ = 0;                      // without stated ones
  std::vector<std::vector<double>> stated_;  // by layer and expert, not normalized
};

/// The load by which predictions of a run with this --expert-load rate.
inline std::string rated_load(const std::string& expert_load) {
  return expert_load == natural_experts ? "balanced" : expert_load;
}

}  // namespace consist
