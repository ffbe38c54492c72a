#include "core/record/start_times.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "consist/text.h"

namespace consist {
namespace {

constexpr double long_start = 10;    // seconds: a line about it
constexpr double short_part = 0.05;  // seconds: not in that line

}  // namespace

double seconds_since_start() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string text;
  std::getline(stat, text);
  double up = 0;
  if (!(uptime >> up)) return 0;
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // starttime is field 22, the first one here field 3
  return up - std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

StartTimes::StartTimes(double process_seconds) {
  parts_.emplace_back("process", process_seconds);
}

void StartTimes::finished(std::string part) {
  const Clock::time_point now = Clock::now();
  parts_.emplace_back(std::move(part), std::chrono::duration<double>(now - last_).count());
  last_ = now;
}

std::string StartTimes::json(double total) const {
  const auto milliseconds = [](double seconds) { return std::round(seconds * 1e3) / 1e3; };
  nlohmann::ordered_json json{{"seconds", milliseconds(total)}};
  for (const auto& [part, seconds] : parts_) json[part] = milliseconds(seconds);
  return json.dump();
}

std::string StartTimes::text(double total) const {
  if (total <= long_start) return {};
  std::string text = "the first step began " + fixed_text(total, 1) + " s after the start of the process:";
  for (const auto& [part, seconds] : parts_) {
    if (seconds >= short_part) text += " " + part + " " + fixed_text(seconds, 1) + " s,";
  }
  text.pop_back();
  return text;
}

}  // namespace consist
