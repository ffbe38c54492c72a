// The export of a run with an adapter: the adapter alone, as PEFT loads it, or the model with the adapter added.
#pragma once

#include <string>
#include <vector>

#include "consist/files.h"
#include "core/config/run_config.h"
#include "core/plan/adapted_architecture.h"
#include "core/weights/safetensors.h"

namespace consist {

/// Stands before the names of a model's modules in PEFT.
inline constexpr const char* peft_prefix = "base_model.model.";
/// The file of an adapter's weights.
inline constexpr const char* adapter_weights = "adapter_model.safetensors";

/// True if a folder has the weights of a model or of an adapter.
bool holds_export(const std::string& folder);

/// The adapter's parameters of all that are `trained`, under the names that PEFT gives them.
std::vector<TensorSource> of_adapter_alone(const AdaptedArchitecture& adapted, const std::vector<TensorSource>& trained);

/// The model's parameters with what the adapter adds to them. `trained`: all parameters of the adapted model, in f32, which the
/// result reads later.
std::vector<TensorSource> with_adapter_added(const AdaptedArchitecture& adapted, const std::vector<TensorSource>& trained);

/// Writes adapter_config.json and adapter_model.safetensors into a folder that is there: complete, and under their names once
/// they are published.
std::vector<AtomicFile> write_adapter(const std::string& folder, const AdaptedArchitecture& adapted, const RunConfig& config,
                                      const std::vector<TensorSource>& weights);

}  // namespace consist
