// A run for programs: consist show --json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "launch/view/show/run_view.h"

namespace consist::launch {

/// docs/watch.md lists the keys; what is not known is null.
nlohmann::ordered_json json_of(const RunView& run, const std::string& price = "");

}  // namespace consist::launch
