// A verdict for programs: consist verdict --json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launch/verdict/verdict.h"

namespace consist::launch {

/// docs/json/verdict.schema.json has its keys; what is not known is null.
nlohmann::ordered_json json_of(const Verdict& verdict);

/// Names of a method and of a call: "welch_runs", "better".
const char* name_of(Method method) noexcept;
const char* name_of(Call call) noexcept;

}  // namespace consist::launch
