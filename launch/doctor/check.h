// A check of a machine: its name, what is expected, and the function that looks.
#pragma once

#include <span>
#include <string>
#include <utility>

namespace consist::doctor {

struct Facts;

/// In the order in which a report lists them.
enum class Status {
  wrong,           ///< a run fails, or hardware does
  warning,         ///< a run is slower than it could be, or may fail later
  unknown,         ///< it could not be looked at
  not_applicable,  ///< this machine or this build has no such thing
  ok,
};

/// The result of a check.
struct Finding {
  Status status = Status::ok;
  std::string found;   ///< the reason, where the check is not applicable or the answer unknown
  std::string remedy;  ///< empty where nothing need be done
};

struct Check {
  const char* subject;   ///< "gpus"
  const char* name;      ///< "gpu-ecc": unique, and the same in every version
  const char* expected;  ///< what holds on a machine that is well
  Finding (*look)(const Facts& facts);
};

inline Finding ok(std::string found) {
  return {Status::ok, std::move(found), {}};
}
inline Finding wrong(std::string found, std::string remedy) {
  return {Status::wrong, std::move(found), std::move(remedy)};
}
inline Finding warning(std::string found, std::string remedy) {
  return {Status::warning, std::move(found), std::move(remedy)};
}
inline Finding not_applicable(std::string why) {
  return {Status::not_applicable, std::move(why), {}};
}
inline Finding unknown(std::string why, std::string remedy = {}) {
  return {Status::unknown, std::move(why), std::move(remedy)};
}

std::span<const Check> driver_checks();
std::span<const Check> gpu_checks();
std::span<const Check> library_checks();
std::span<const Check> limit_checks();
std::span<const Check> network_checks();
std::span<const Check> clock_checks();

}  // namespace consist::doctor
