// Links in a machine file: their curves, and those of each transport.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "consist/cost.h"

namespace consist {

class FileObject;

/// The keys "node" and "network" of a machine file. Throws DataError as machine_from_json().
LinkRates links_from(FileObject object);
nlohmann::ordered_json json_of(const LinkRates& links);

/// The key "transports": by name, links of its own or, as "node" and "network", those of `machine`, which are read before.
std::vector<TransportLinks> transports_from(FileObject object, const Machine& machine);
nlohmann::ordered_json json_of(const std::vector<TransportLinks>& transports);

}  // namespace consist
