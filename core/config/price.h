// Price of a device per hour: --price.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/export.h"

namespace consist {

/// In any currency, of one device, which is one rank's, for an hour.
class Price {
 public:
  Price() = default;
  /// "2.5", or by names of machines: "h200=2.5,a100=1.2". Empty: not known. Throws UsageError for anything else, for a price
  /// below 0, and for a name that stands there twice.
  CONSIST_API explicit Price(const std::string& text);

  /// The price of a device named `device` ("NVIDIA H200") in a machine named `machine` ("h200"); either may be empty: not known.
  /// A name in the list stands for the machine of that name, else for devices whose name contains it, in upper or lower case.
  /// Nothing if no name in the list applies.
  CONSIST_API std::optional<double> of(std::string_view machine, std::string_view device) const;

  bool empty() const noexcept { return entries_.empty(); }

 private:
  std::vector<std::pair<std::string, double>> entries_;  // the name empty: of every device
};

}  // namespace consist
