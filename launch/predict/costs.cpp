#include "launch/predict/costs.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "consist/text.h"
#include "core/config/price.h"

namespace consist::launch {

Costs costs_of(int ranks, double tokens_per_second, std::optional<double> device_price, std::optional<double> watts) {
  constexpr double billion = 1e9, seconds_of_hour = 3600;
  Costs costs;
  costs.watts = watts;
  if (device_price) costs.per_hour = *device_price * ranks;
  if (!(tokens_per_second > 0)) return costs;
  const double seconds = billion / tokens_per_second;
  if (costs.per_hour) costs.per_billion_tokens = *costs.per_hour * seconds / seconds_of_hour;
  if (watts) costs.joules_per_billion_tokens = *watts * ranks * seconds;
  return costs;
}

Costs costs_of(const nlohmann::json& config, const nlohmann::json& environment, const std::string& price,
               double tokens_per_second, std::optional<double> watts) {
  const auto text = [](const nlohmann::json& object, const char* path) {
    const nlohmann::json::json_pointer at(path);
    return object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : std::string();
  };
  // A run may be planned for another machine than that which it is on.
  const bool own = text(environment, "/planned_for/origin") == "the device's";
  const Price asked(price.empty() ? text(config, "/price") : price);
  const nlohmann::json::json_pointer ranks("/ranks");
  return costs_of(config.contains(ranks) && config[ranks].is_number_integer() ? config[ranks].get<int>() : 1, tokens_per_second,
                  asked.of(own ? text(environment, "/planned_for/machine") : "", text(environment, "/device")), watts);
}

std::optional<double> mean_power(std::span<const double> watts, std::span<const double> seconds, std::size_t first) {
  double joules = 0, known = 0;
  for (std::size_t i = first; i < watts.size() && i < seconds.size(); ++i) {
    if (!std::isfinite(watts[i]) || !(seconds[i] > 0)) continue;
    joules += watts[i] * seconds[i];
    known += seconds[i];
  }
  if (known == 0) return std::nullopt;
  return joules / known;
}

std::string price_text(double price) {
  if (price >= 1e6) return si_text(price);
  char text[32];
  std::snprintf(text, sizeof text, price >= 100 ? "%.0f" : "%.3g", price);
  return text;
}

}  // namespace consist::launch
