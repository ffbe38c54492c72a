#include "launch/import/megatron_model.h"

#include <nlohmann/json.hpp>

#include "consist/text.h"
#include "core/base/lower.h"
#include "launch/import/common/model_by_sizes.h"

namespace consist::megatron {
namespace {

using readers::as_text;
using readers::StoredValues;
using readers::Target;

constexpr std::int64_t most = 1'000'000'000;

/// The words of a tokenizer whose number is the same everywhere; 0 for others.
std::int64_t words_of(const std::string& tokenizer) {
  if (tokenizer == "GPT2BPETokenizer") return 50257;
  return tokenizer == "Llama2Tokenizer" ? 32000 : 0;
}

/// As Megatron-LM pads it, so that ranks of tensor parallelism have equal parts.
std::int64_t vocabulary(const StoredValues& values) {
  if (values.has("padded-vocab-size")) return values.whole("padded-vocab-size", 0, 1, most);
  const std::string tokenizer = values.text("tokenizer-type", "");
  std::int64_t words = values.whole("vocab-size", words_of(tokenizer), 1, most);
  if (words == 0)
    values.refuse("vocab-size",
                  "is not given, and a tokenizer's words are not known here; give --from-set vocab-size=N, or --model");
  if (tokenizer == "NullTokenizer") ++words;  // its end of a document
  const std::int64_t multiple = values.whole("make-vocab-size-divisible-by", 128, 1, most / 65'536) *
                                values.whole("tensor-model-parallel-size", 1, 1, 65'536);
  return (words + multiple - 1) / multiple * multiple;
}

/// Refuses models other than the decoders that there are here. Messages say how the file would have to state one of these.
void refuse_other_models(const StoredValues& values) {
  const std::string other =
      "; models here are decoders with RMSNorm, rotary embedding and SwiGLU. To see one of these sizes: --from-set ";
  if (values.has("spec")) values.refuse("spec", "names a model made of Python modules, which is not done here");
  // Megatron-DeepSpeed writes it in small letters.
  if (lower(values.text("normalization", "LayerNorm")) != "rmsnorm")
    values.refuse("normalization", "is " + values.text("normalization", "LayerNorm") + other + "normalization=RMSNorm");
  const bool rotary = values.truth("use-rotary-position-embeddings", false) ||
                      values.text("position-embedding-type", "learned_absolute") == "rope";
  if (!rotary) values.refuse("position-embedding-type", "is not rope" + other + "position-embedding-type=rope");
  if (!values.truth("swiglu", false)) values.refuse("swiglu", "is not given" + other + "swiglu=true");
  if (!values.truth("disable-bias-linear", false))
    values.refuse("disable-bias-linear", "is not given" + other + "disable-bias-linear=true");
  for (const char* dropout : {"attention-dropout", "hidden-dropout"}) {
    if (values.number(dropout, 0.1) != 0)
      values.refuse(dropout, "is " + as_text(values.number(dropout, 0.1)) + ": there is no dropout here; --from-set " + dropout +
                                 "=0 leaves it out");
  }
}

readers::ModelBySizes sizes_of(const StoredValues& values) {
  const auto needed = [&](const char* name) {
    if (!values.has(name))
      values.refuse(name, "is not given; without it the model has no size (--from-set " + std::string(name) + "=N, or --model)");
    return values.whole(name, 0, 1, most);
  };
  readers::ModelBySizes m;
  m.hidden = needed("hidden-size");
  m.layers = needed("num-layers");
  m.heads = needed("num-attention-heads");
  m.kv_heads = values.truth("group-query-attention", false) ? values.whole("num-query-groups", 1, 1, most) : m.heads;
  m.head_dim = values.whole("kv-channels", m.hidden / m.heads, 1, most);
  // Two thirds of the width without a gate, as a multiple of 64.
  m.ffn = values.whole("ffn-hidden-size", m.hidden * 4 * 2 / 3 / 64 * 64, 1, most);
  m.vocabulary = vocabulary(values);
  m.positions = values.whole("max-position-embeddings", values.whole("seq-length", 2048, 1, most), 1, most);
  m.rope_theta = values.number("rotary-base", 10000);
  if (values.truth("use-rope-scaling", false)) m.rope_factor = values.number("rope-scaling-factor", 8);
  m.tied = !values.truth("untie-embeddings-and-output-weights", false);
  m.qk_norm = values.truth("qk-layernorm", false);
  m.qkv_bias = values.truth("add-qkv-bias", false);
  m.norm_epsilon = values.number(values.has("layernorm-epsilon") ? "layernorm-epsilon" : "norm-epsilon", 1e-5);
  m.initializer_range = values.number("init-method-std", 0.02);
  if (!values.has("num-experts")) return m;
  m.experts = values.whole("num-experts", 0, 1, 65'536);
  m.choices = values.whole("moe-router-topk", 2, 1, 65'536);
  m.expert_ffn = values.whole("moe-ffn-hidden-size", m.ffn, 1, most);
  // The weights of the choices alone, unless the probabilities come first.
  m.normalized_choices = !values.truth("moe-router-pre-softmax", false);
  const std::string kind = values.choice("moe-router-load-balancing-type", "aux_loss", {"aux_loss", "none"});
  if (kind == "aux_loss") m.balance = values.number("moe-aux-loss-coeff", 0);
  return m;
}

}  // namespace

void read_model(const StoredValues& values, Target& target) {
  const char* const names[] = {"num-layers",
                               "hidden-size",
                               "ffn-hidden-size",
                               "num-attention-heads",
                               "kv-channels",
                               "group-query-attention",
                               "num-query-groups",
                               "max-position-embeddings",
                               "position-embedding-type",
                               "use-rotary-position-embeddings",
                               "rotary-base",
                               "use-rope-scaling",
                               "rope-scaling-factor",
                               "normalization",
                               "norm-epsilon",
                               "layernorm-epsilon",
                               "swiglu",
                               "untie-embeddings-and-output-weights",
                               "disable-bias-linear",
                               "add-qkv-bias",
                               "qk-layernorm",
                               "vocab-size",
                               "padded-vocab-size",
                               "make-vocab-size-divisible-by",
                               "tokenizer-type",
                               "init-method-std",
                               "attention-dropout",
                               "hidden-dropout",
                               "num-experts",
                               "moe-router-topk",
                               "moe-ffn-hidden-size",
                               "moe-aux-loss-coeff",
                               "moe-router-load-balancing-type",
                               "moe-router-pre-softmax",
                               "spec"};
  RunConfig& config = target.config;
  const bool given = target.context.given("model");
  if (!given) {
    refuse_other_models(values);
    const readers::ModelBySizes sizes = sizes_of(values);
    std::string why;
    config.model = config_json_of(sizes, why);
    if (config.model.empty()) target.refuse("the model", "has " + why + ", which is not done here");
    target.stated.insert("model");
    target.detail("model: --model " + config.model);
    if (sizes.initializer_range > 0)
      target.differs(
          "init-method-std: output layers of attention and of the MLP begin with it here, in Megatron-LM smaller by the "
          "root of twice the layers");
  }
  const std::string what = given ? "--model is given and goes before the file" : "a size of --model";
  for (const char* name : names) values.note(name, what);
  if (values.has("seq-length")) values.state("seq-length", "sequence", config.sequence, values.whole("seq-length", 0, 1, most));
}

}  // namespace consist::megatron
