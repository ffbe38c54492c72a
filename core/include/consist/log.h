// Logging for plugins. Messages go to the program's logger; on ranks above 0 they carry the rank. Thread-safe.
#pragma once

#include <string_view>

#include "consist/export.h"

namespace consist::log {

CONSIST_API void debug(std::string_view message);
CONSIST_API void info(std::string_view message);
CONSIST_API void warn(std::string_view message);
CONSIST_API void error(std::string_view message);

}  // namespace consist::log
