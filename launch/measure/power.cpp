#include "launch/measure/power.h"

#include <cmath>
#include <string_view>

namespace consist::launch {
namespace {

std::optional<double> reading_of(const std::vector<DeviceReading>& readings, std::string_view name, std::string_view unit) {
  for (const DeviceReading& reading : readings) {
    if (reading.name == name && reading.unit == unit && std::isfinite(reading.value) && reading.value > 0) return reading.value;
  }
  return std::nullopt;
}

/// Mean over the samples that tell it, each for its seconds; 0 where none does.
double mean_clock(std::span<const PowerSample> samples) {
  double cycles = 0, seconds = 0;
  for (const PowerSample& sample : samples) {
    if (sample.clock <= 0) continue;
    cycles += sample.clock * sample.seconds;
    seconds += sample.seconds;
  }
  return seconds > 0 ? cycles / seconds : 0;
}

}  // namespace

std::optional<double> power_reading(const std::vector<DeviceReading>& readings) {
  return reading_of(readings, "power", "W");
}

std::optional<double> clock_reading(const std::vector<DeviceReading>& readings) {
  return reading_of(readings, "sm_clock", "Hz");
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
  Power power{.clock = {mean_clock(samples), FigureSource::measured_here}, .limit = limit, .idle = {}, .loads = {}};
  if (!idle) return power;
  power.idle = {*idle, FigureSource::measured_here};
  if (const std::optional<double> watts = watts_under_load(*idle, samples))
    power.loads.push_back({"*", {*watts, FigureSource::measured_here}});
  return power;
}

}  // namespace consist::launch
