// The dtype of a model that a run exports: which it is, and weights rounded to it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/config/run_config.h"
#include "core/plan/parts.h"
#include "core/weights/safetensors.h"

namespace consist {

/// The dtype that --export-dtype names. "auto": the one in which the weights that the run begins from are stored (of several, the
/// one with the most elements); where there are none, what the model's config.json says; else f32. Of an adapter alone
/// it is f32, as PEFT keeps it. Throws as ModelWeights does.
StoredDType export_dtype(const RunConfig& config, const Parts& parts);

/// PyTorch's name of one of these: "bfloat16".
CONSIST_API std::string_view torch_name_of(StoredDType dtype) noexcept;

/// The text of a config.json that says that the weights beside it are of this dtype.
CONSIST_API std::string with_dtype(const std::string& config_json, StoredDType dtype);

/// `weights`, which are read as f32, rounded to nearest, ties to even. They are read in short pieces: the export of a narrow
/// dtype needs no more memory than that of f32.
CONSIST_API TensorSource rounded_to(StoredDType dtype, TensorSource weights);

/// The first finite weight that binary16 would make infinite, for a message; empty: there is none. The tensors are read as f32.
CONSIST_API std::string beyond_float16(std::span<const TensorSource> weights);

}  // namespace consist
