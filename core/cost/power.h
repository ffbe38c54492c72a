// The power that devices of a machine draw and the clock that they keep under load, as its file has them, and what a step takes
// by it. No pass and no strategy asks for them, so that they are no part of Machine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "consist/cost.h"
#include "consist/export.h"
#include "core/cost/simulator.h"

namespace consist {

class FileObject;

/// Power of the device of one rank; hosts, network and cooling are not in it.
struct Power {
  /// Under the load of training steps, while the device does one kind of work.
  struct Load {
    std::string work;  ///< name_of() a Work, or "*": every kind that is not named
    Figure watts;
  };
  Figure clock{};           ///< Hz, mean under this load: that of the times of ops; 0: not known
  Figure limit;             ///< W that it may draw at most; 0: not known
  Figure idle;              ///< W of a device that computes nothing; 0: not known
  std::vector<Load> loads;  ///< none: of what a step draws nothing is known but the limit. With loads there are `idle` and "*"

  bool is_known() const { return limit.value > 0 || !loads.empty(); }
  /// Energies by it are upper bounds.
  bool is_bound() const { return loads.empty(); }
};

/// The key "power" of a machine file, whose other keys machine_from_json() reads. Nothing is known of files without it. Throws
/// DataError as that.
CONSIST_API Power power_from_json(std::string_view text, const std::string& name);
Power power_from(FileObject object);
nlohmann::ordered_json json_of(const Power& power);

/// "measured here", "at most, by the power limit of the data sheet (700 W)": for people, where the figures come from.
CONSIST_API std::string origin_of(const Power& power);

/// Joules of a rank in `seconds`, of which it did this work: it is idle in the rest, in which it waits. Beyond the limit alone:
/// the limit over all of the time. REQUIRES: power.is_known().
CONSIST_API double joules_of(const Power& power, double seconds, const WorkSeconds& work);

}  // namespace consist
