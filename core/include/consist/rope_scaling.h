// Changes of the rotary embedding's frequencies for longer contexts, as config.json's "rope_scaling" says them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "consist/export.h"

namespace consist {

/// Field names as in config.json.
struct CONSIST_API RopeScaling {
  enum class Kind {
    none,
    linear,  ///< all frequencies divided by `factor` (Chen et al., 2023)
    llama3,  ///< those of long wavelengths (Grattafiori et al., 2024)
    yarn,    ///< those of pairs that turn seldom; cosines and sines have a factor (YaRN, Peng et al., 2023)
  };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;                      ///< of llama3
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  ///< of yarn; 0: not stated
  double attention_factor = 0;                                           ///< of yarn; 0: by mscale and factor
  std::int64_t original_max_position_embeddings = 8192;                  ///< of llama3 and yarn

  bool is_yarn() const noexcept { return kind == Kind::yarn; }
  /// The factor of cosines and sines.
  double table_factor() const;
  /// 0.1 · of · ln(factor) + 1, by which YaRN lets scores grow; 1 without YaRN.
  double magnitude(double of) const;
};

/// Radians per position of each pair of channels of a head (layers::rope_frequencies), changed as transformers does it, in f32.
CONSIST_API std::vector<float> rope_frequencies(std::int64_t head_dim, double base, const RopeScaling& scaling);

/// Reads the object in `field`. `positions`: max_position_embeddings. ERRORS: DataError naming the field that is not understood.
CONSIST_API RopeScaling read_rope_scaling(const nlohmann::json& object, const char* field, std::int64_t positions);
/// Writes it to `config` as "rope_scaling", if it is any.
CONSIST_API void write_rope_scaling(const RopeScaling& scaling, nlohmann::ordered_json& config);

}  // namespace consist
