#include "consist/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "consist/text.h"

namespace consist::log {
namespace {

/// On stderr: stdout is for results, which other programs read.
spdlog::logger& logger() {
  // Never destroyed: threads that still end may have something to say.
  static spdlog::logger& made = *new spdlog::logger("consist", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  return made;
}

}  // namespace

void debug(std::string_view message) {
  logger().debug(printable(message));
}
void info(std::string_view message) {
  logger().info(printable(message));
}
void warn(std::string_view message) {
  logger().warn(printable(message));
}
void error(std::string_view message) {
  logger().error(printable(message));
}

}  // namespace consist::log
