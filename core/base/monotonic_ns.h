// Time as signal handlers and several processes of a machine can read it.
#pragma once

#include <time.h>

#include <cstdint>

namespace consist {

/// Nanoseconds of the clock that all processes of a machine share. Async-signal-safe.
inline std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace consist
