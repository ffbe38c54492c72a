// Costs of training: money by --price, energy by the power that was measured.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

namespace consist::launch {

struct Costs {
  std::optional<double> per_hour;                   ///< of all devices, in the currency of --price
  std::optional<double> per_billion_tokens;         ///< at the run's speed, in that currency
  std::optional<double> watts;                      ///< of rank 0's device, mean over the steady state
  std::optional<double> joules_per_billion_tokens;  ///< of all devices, if each draws what rank 0's does
};

/// `device_price`: of a device and hour. `tokens_per_second`: of all ranks; 0: not known.
Costs costs_of(int ranks, double tokens_per_second, std::optional<double> device_price, std::optional<double> watts);

/// The same of a run by its archive's /config and /environment. `price`: in place of the configuration's if it is not empty.
/// Throws UsageError for a price that is none.
Costs costs_of(const nlohmann::json& config, const nlohmann::json& environment, const std::string& price,
               double tokens_per_second, std::optional<double> watts);

/// Mean over the steps from `first` on, by their seconds; nothing where no reading is known. The two are columns of one archive.
std::optional<double> mean_power(std::span<const double> watts, std::span<const double> seconds, std::size_t first);

/// "12.3", "0.0042": three digits, without a prefix, as prices are written.
std::string price_text(double price);

}  // namespace consist::launch
