#include "consist/log.h"

#include <spdlog/spdlog.h>

namespace consist::log {

void debug(std::string_view message) { spdlog::debug(message); }
void info(std::string_view message) { spdlog::info(message); }
void warn(std::string_view message) { spdlog::warn(message); }
void error(std::string_view message) { spdlog::error(message); }

}  // namespace consist::log
