// A residual as text for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "launch/residual/residual.h"

namespace consist::launch {

/// The waterfall, a term a line, and the causes with what to look at; of a residual with a problem that. Ends with a newline.
std::string residual_text(const Residual& residual);

/// "predicted 152.3 ms for h100, measured 171.9 ms (+12.9%): clock and power +10.8 ms, links between ranks +3.1 ms". Empty where
/// there is none.
std::string residual_line(const Residual& residual);

/// docs/json/residual.schema.json says what is in it.
nlohmann::ordered_json json_of(const Residual& residual);

}  // namespace consist::launch
