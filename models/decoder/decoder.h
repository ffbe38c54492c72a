// The pre-norm decoder that Llama and Qwen share: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "consist/model.h"
#include "consist/rope_scaling.h"

namespace consist::decoder {

/// Layers whose feed-forward part is a mixture of experts.
struct MixtureConfig {
  std::int64_t experts = 0;  ///< 0: there are none
  std::int64_t choices = 0;  ///< experts per token
  std::int64_t ffn = 0;      ///< of an expert
  bool normalize = true;     ///< weights of a token's choices are divided by their sum
  /// Weight of the balance loss, as config.json's router_aux_loss_coef. It is trained on where `trains_balance` is true
  /// (output_router_logits, as transformers has it).
  double balance = 0;
  bool trains_balance = false;
  double z = 0;              ///< weight of the routers' z-loss, as config.json's router_z_loss_coef; 0: it is not trained on
  std::vector<bool> sparse;  ///< by layer: it has experts; as many as layers
  enum class Names { qwen3, mixtral };
  Names names = Names::qwen3;  ///< of weights and of fields in config.json

  bool any() const noexcept { return experts != 0; }
  bool at(std::int64_t layer) const { return any() && sparse.at(static_cast<std::size_t>(layer)); }
  std::int64_t layers() const;  ///< number of layers with experts
};

/// The configuration of one of these models.
struct Config {
  std::string architecture = "LlamaForCausalLM";
  std::string model_type = "llama";
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t max_positions = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  double norm_epsilon = 1e-6;
  double initializer_range = 0.02;
  bool tied = false;           ///< the LM head is the embedding
  bool qkv_bias = false;       ///< Qwen2
  bool qk_norm = false;        ///< Qwen3
  std::int64_t window = 0;     ///< positions that attention sees in windowed layers; 0: there are none
  std::vector<bool> windowed;  ///< by layer: it has the window; as many as layers where `window` is not 0
  MixtureConfig mixture;
  std::optional<std::int64_t> pad_token;  ///< as config.json has it: its row of the embedding gets no gradient; -1: the last row
  // Not used in training. An exported folder hands them on, so that generation from it stops where it did.
  std::optional<std::int64_t> bos_token;
  std::vector<std::int64_t> eos_tokens;
  std::string weights_dtype = "float32";  ///< as config.json has it, by PyTorch's name

  /// Throws DataError naming the field and what is legal.
  void check() const;
  /// The row of the embedding that pad_token names; -1: there is none.
  std::int64_t padding_row() const;
};

class Decoder final : public Architecture {
 public:
  explicit Decoder(Config config);
  ModelSizes sizes() const override { return sizes_; }
  TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const override;
  std::string config_json() const override;
  const Config& config() const noexcept { return config_; }

 private:
  Config config_;
  ModelSizes sizes_;
};

}  // namespace consist::decoder
