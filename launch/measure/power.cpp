#include "launch/measure/power.h"

#include <cmath>

namespace consist::launch {

std::optional<double> power_reading(const std::vector<DeviceReading>& readings) {
  for (const DeviceReading& reading : readings) {
    if (reading.name == "power" && reading.unit == "W" && std::isfinite(reading.value) && reading.value > 0) return reading.value;
  }
  return std::nullopt;
}

std::optional<double> watts_under_load(double idle, std::span<const PowerSample> samples) {
  double joules = 0, busy = 0;
  for (const PowerSample& sample : samples) {
    joules += sample.watts * sample.seconds - idle * (sample.seconds - sample.busy);
    busy += sample.busy;
  }
  if (!(busy > 0) || !(joules > 0)) return std::nullopt;
  return joules / busy;
}

Power measured_power(const Figure& limit, std::optional<double> idle, std::span<const PowerSample> samples) {
  Power power{.limit = limit, .idle = {}, .loads = {}};
  if (!idle) return power;
  power.idle = {*idle, FigureSource::measured_here};
  if (const std::optional<double> watts = watts_under_load(*idle, samples))
    power.loads.push_back({"*", {*watts, FigureSource::measured_here}});
  return power;
}

}  // namespace consist::launch
