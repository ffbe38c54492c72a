// Any bytes as a model's config.json: refused with a DataError or UsageError, or taken, and what is written of it is read as the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "consist/error.h"
#include "models/decoder/config_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  using namespace consist::decoder;
  static const Variant variants[] = {
      {.architecture = "LlamaForCausalLM", .model_type = "llama"},
      {.architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .qkv_bias = true},
      {.architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .qk_norm = true, .head_dim = 128}};
  try {
    const std::string written = to_config_json(parse_config_json({reinterpret_cast<const char*>(data), size}, variants));
    try {
      if (to_config_json(parse_config_json(written, variants)) != written) std::abort();
    } catch (const Error&) {
      std::abort();
    }
  } catch (const DataError&) {
  } catch (const UsageError&) {
  }
  return 0;
}
