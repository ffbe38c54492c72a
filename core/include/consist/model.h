// Models: the forward part of a training step in logical shapes. A model does not know ranks, dtypes or devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "consist/builder.h"
#include "consist/export.h"

namespace consist {

struct ModelPreset {
  std::string name;     ///< as on the command line: "qwen3-0.6b"
  std::string summary;  ///< one line: sizes
};

/// Sizes that metrics need (docs/metrics.md).
struct ModelSizes {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;  ///< intermediate_size
  std::int64_t vocabulary = 0;
  std::int64_t max_sequence = 0;       ///< max_position_embeddings
  std::int64_t parameters = 0;         ///< all, tied weights counted once
  std::int64_t matmul_parameters = 0;  ///< weights of linears, the LM head included (also when tied), the embedding not
  std::int64_t window = 0;             ///< positions that attention sees in `windowed_layers` of the layers; 0: there are none
  std::int64_t windowed_layers = 0;
  std::int64_t experts = 0;  ///< of a layer that is a mixture of experts; 0: the model has none
};

/// One configured architecture. Immutable. THREADS: any.
class CONSIST_API Architecture {
 public:
  virtual ~Architecture();
  virtual ModelSizes sizes() const = 0;

  /// Emits forward and loss for one micro-batch: ids and targets are [batch, sequence] (i32), `loss_scale` multiplies the summed
  /// loss. Returns the loss (a scalar). Parameters are created with the names of Hugging Face's checkpoints, tied weights once.
  virtual TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const = 0;

  /// The text of the config.json from which `transformers` loads this model.
  virtual std::string config_json() const = 0;
};

/// Counts ModelSizes::parameters and matmul_parameters in what build() emits for one token: those of experts as many as one token
/// uses. For constructors of architectures, which may call it once they can build.
CONSIST_API void count_parameters(const Architecture& architecture, ModelSizes& sizes);

/// The plugin kind "model": a family of architectures.
class CONSIST_API Model {
 public:
  virtual ~Model();
  virtual std::vector<ModelPreset> presets() const = 0;
  /// Throws UsageError for a name that presets() does not list.
  virtual std::unique_ptr<Architecture> from_preset(std::string_view name) const = 0;
  /// True if config.json's "architectures" entry (for example "Qwen3ForCausalLM") is of this family.
  virtual bool accepts(std::string_view architecture) const = 0;
  /// Makes the architecture of a config.json, given its text. Throws DataError naming the field that is missing, malformed or not
  /// understood.
  virtual std::unique_ptr<Architecture> from_config(std::string_view json) const = 0;
};

}  // namespace consist
