// The clock, by which logs and archives of several hosts are put beside one another.
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"

namespace consist::doctor {
namespace {

Finding clock_is_right(const Facts& facts) {
  const std::optional<bool> synchronized = facts.machine.clock_is_synchronized();
  if (!synchronized) return unknown("the kernel does not say");
  if (*synchronized) return ok("the kernel says that it is synchronized");
  return warning("the kernel says that it is not synchronized",
                 "run chronyd, ntpd or systemd-timesyncd on the host (timedatectl): times of several hosts cannot be compared");
}

constexpr Check clock_table[] = {{"clock", "clock", "the clock is synchronized", clock_is_right}};

}  // namespace

std::span<const Check> clock_checks() {
  return clock_table;
}

}  // namespace consist::doctor
