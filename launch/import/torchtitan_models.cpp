// Sizes are those of torchtitan/models/*/__init__.py at 238fa99 (today's layout of files) and of
// torchtitan/models/llama/__init__.py at 6a6f755 (the old one, whose test tokenizer has 2,256 words).
#include "launch/import/torchtitan_models.h"

#include <span>

namespace consist::torchtitan {
namespace {

using readers::ModelBySizes;

constexpr ModelBySizes llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t ffn, std::int64_t vocabulary, std::int64_t positions, double theta, double factor = 0) {
  return {.hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .vocabulary = vocabulary,
          .positions = positions,
          .rope_theta = theta,
          .rope_factor = factor};
}

constexpr ModelBySizes qwen3(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t ffn, std::int64_t vocabulary, std::int64_t positions, double theta, bool tied) {
  ModelBySizes sizes = llama(hidden, layers, heads, kv_heads, ffn, vocabulary, positions, theta);
  sizes.head_dim = 128;
  sizes.tied = tied;
  sizes.qk_norm = true;
  sizes.norm_epsilon = 1e-6;
  return sizes;
}

/// 8 experts per token, whose routers are balanced by a bias instead of a loss.
constexpr ModelBySizes with_experts(ModelBySizes sizes, std::int64_t experts, std::int64_t ffn) {
  sizes.experts = experts;
  sizes.choices = 8;
  sizes.expert_ffn = ffn;
  return sizes;
}

constexpr Flavor flavors[] = {
    {"llama3", "debugmodel", "", llama(256, 6, 16, 16, 768, 2048, 131072, 500000, 8)},
    {"llama3", "8B", "llama-3.1-8b"},
    {"llama3", "70B", "llama-3.1-70b"},
    {"llama3", "405B", "", llama(16384, 126, 128, 8, 53248, 128256, 131072, 500000, 8)},
    {"qwen3", "debugmodel", "", qwen3(256, 8, 16, 8, 3072, 2048, 4096, 1e6, true)},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "debugmodel_moe", "", with_experts(qwen3(256, 8, 16, 8, 3072, 2048, 4096, 1e6, false), 64, 768)},
    {"qwen3", "30B-A3B", "", with_experts(qwen3(2048, 48, 32, 4, 6144, 151936, 262144, 1e6, false), 128, 768)},
    {"qwen3", "235B-A22B", "", with_experts(qwen3(4096, 94, 64, 4, 12288, 151936, 4096, 5e6, false), 128, 1536)},
};

constexpr Flavor old_flavors[] = {
    {"llama2", "debugmodel", "", llama(256, 8, 16, 16, 768, 2256, 2048, 10000)},
    {"llama2", "271M", "", llama(1024, 16, 8, 8, 2816, 32000, 2048, 10000)},
    {"llama2", "1B", "", llama(2048, 18, 16, 16, 5632, 32000, 2048, 10000)},
    {"llama2", "7B", "llama-2-7b"},
    {"llama2", "13B", "llama-2-13b"},
    {"llama2", "26B", "", llama(5120, 80, 40, 40, 13824, 32000, 2048, 10000)},
    {"llama2", "70B", "llama-2-70b"},
    {"llama3", "debugmodel", "", llama(256, 8, 16, 16, 768, 2256, 2048, 500000)},
    {"llama3", "8B", "llama-3-8b"},
    {"llama3", "70B", "llama-3-70b"},
    {"llama3", "405B", "", llama(16384, 126, 128, 8, 53248, 128256, 8192, 500000)},
};

std::span<const Flavor> all(bool old) {
  return old ? std::span<const Flavor>(old_flavors) : std::span<const Flavor>(flavors);
}

}  // namespace

const Flavor* find_flavor(const std::string& model, const std::string& flavor, bool old) {
  for (const Flavor& row : all(old)) {
    if (model == row.model && flavor == row.flavor) return &row;
  }
  return nullptr;
}

std::string known_flavors(bool old) {
  std::string text;
  for (const Flavor& row : all(old)) text += (text.empty() ? "" : ", ") + std::string(row.model) + " " + row.flavor;
  return text;
}

}  // namespace consist::torchtitan
