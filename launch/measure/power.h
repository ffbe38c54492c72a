// Power that the device draws and the clock that it keeps, from its sensors, for `consist calibrate`.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "consist/device.h"
#include "core/cost/power.h"

namespace consist::launch {

/// Sensors of power show a mean over this long: NVML's over one second on most GPUs. Shorter work is not seen by itself, so that
/// kinds of work within a step cannot be told apart.
inline constexpr double power_window_seconds = 1.5;

/// W; nothing where the device has no such sensor, or it does not tell.
std::optional<double> power_reading(const std::vector<DeviceReading>& readings);
/// Hz; nothing as above.
std::optional<double> clock_reading(const std::vector<DeviceReading>& readings);

/// A step that was repeated for longer than the window.
struct PowerSample {
  double watts = 0;
  double seconds = 0;  ///< of the step
  double busy = 0;     ///< ... in which the compute queue worked
  double clock = 0;    ///< Hz; 0: the device does not tell
};

/// W of a device that computes, if it draws `idle` in the rest of each step. Nothing where no step computed.
std::optional<double> watts_under_load(double idle, std::span<const PowerSample> samples);

/// The figures of a machine file: measured here. `limit`: that of the device's machine, which is not measured. Nothing is known
/// where `idle` is not, or no step was measured, but for the limit.
Power measured_power(const Figure& limit, std::optional<double> idle, std::span<const PowerSample> samples);

}  // namespace consist::launch
