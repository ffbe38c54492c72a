// Values of own metrics (Builder::metric) as JSON, and those that an archive ends with.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "consist/observer.h"
#include "core/archive/reader.h"

namespace consist {

/// An object with a member for each; null where there is no number.
nlohmann::ordered_json json_of(const std::vector<OwnMetricValue>& metrics);

/// Those of the archive's last step, by name. Throws DataError for one that cannot be read.
std::vector<OwnMetricValue> final_metrics(const ArchiveReader& archive);

}  // namespace consist
