#include "launch/predict/failure_options.h"

#include <string>

#include "consist/error.h"

namespace consist::launch {

std::optional<FailureModel> failure_model_of(const CommandLine& line) {
  if (!line.has("mtbf")) {
    for (const char* option : {"restart", "storage"}) {
      if (line.has(option)) throw UsageError("--" + std::string(option) + " has no effect without --mtbf");
    }
    return std::nullopt;
  }
  const FailureModel model{line.real("mtbf"), line.real("restart"), static_cast<double>(line.integer("storage"))};
  if (model.device_hours <= 0 || model.storage_rate <= 0) throw UsageError("--mtbf and --storage must be more than 0");
  return model;
}

}  // namespace consist::launch
