#include "tests/interpreter/random_configuration.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace consist::interpreter {
namespace {

class Dice {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}

  /// One in `n`.
  bool one_in(std::uint64_t n) { return random_() % n == 0; }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random_() % choices.size()));
  }
  std::string text(std::initializer_list<const char*> choices) { return of<const char*>(choices); }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    std::shuffle(list.begin(), list.end(), random_);
  }

 private:
  std::mt19937_64& random_;
};

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : dice_(random) {}

  RandomConfiguration make() {
    draw_strategies();
    draw_model();
    draw_sizes();
    draw_options();
    draw_precision();
    if (dice_.one_in(3)) draw_optimizer();
    if (dice_.one_in(2)) draw_recompute();
    if (dice_.one_in(3)) add("offload-activations", dice_.text({"all", "all", "0-0"}));
    add("pack", dice_.text({"on", "off"}));
    add("max-norm", dice_.text({"0", "0.01", "1"}));
    if (dice_.one_in(4)) draw_frozen();
    if (dice_.one_in(4)) add("synthetic.fields", dice_.text({"loss_mask", "document_start", "loss_mask,document_start"}));
    return std::move(made_);
  }

 private:
  void add(const std::string& option, const std::string& value) { made_.words.push_back("--" + option + "=" + value); }
  void maybe(const std::string& option, std::initializer_list<const char*> values) {
    if (dice_.one_in(2)) add(option, dice_.text(values));
  }

  void draw_strategies() {
    do {
      tensor_ = dice_.of({1, 1, 1, 2, 2, 3, 4, 8});
      stages_ = dice_.of({1, 1, 1, 2, 2, 3, 4, 6});
      data_ = dice_.of({1, 2, 2, 3, 4, 5, 8});
      context_ = dice_.of({1, 1, 1, 2, 2, 3, 4});
    } while (tensor_ * stages_ * data_ * context_ > (dice_.one_in(16) ? 16 : 8));
    over_data_ = dice_.text({"ddp", "zero2", "zero3-offload"});
    std::vector<std::string> uses;
    if (tensor_ > 1) uses.push_back("tp-sp=" + std::to_string(tensor_));
    if (stages_ > 1) uses.push_back("pipeline=" + std::to_string(stages_));
    if (context_ > 1) uses.push_back("cp=" + std::to_string(context_));
    if (over_data_ != "ddp" && data_ % 2 == 0 && dice_.one_in(3)) replicas_ = dice_.of({2, data_ % 4 == 0 ? data_ / 2 : 2, data_});
    if (replicas_ > 1) {  // within them parts; of a single rank where there are as many as ranks
      uses.push_back(over_data_ + "=" + std::to_string(data_ / replicas_));
      uses.push_back("ddp=" + std::to_string(replicas_));
    } else if (data_ > 1 || uses.empty() || dice_.one_in(4)) {
      uses.push_back(over_data_);
    }
    dice_.shuffle(uses);
    std::string strategy = uses[0];
    for (std::size_t i = 1; i < uses.size(); ++i) strategy += "+" + uses[i];
    add("strategy", strategy);
    add("ranks", std::to_string(tensor_ * stages_ * data_ * context_));
  }

  void draw_model() {
    const std::string golden = dice_.text(
        {"llama-untied", "llama-tied", "llama-rope-scaled", "qwen3-untied", "qwen3-tied", "qwen3-padded", "qwen2.5-bias"});
    const int kv_heads = dice_.of({1, 2, 2, 4}) * (tensor_ == 3 || context_ == 3 ? 3 : 1), heads = kv_heads * dice_.of({1, 1, 2, 3}),
              head_dim = dice_.of({2, 4, 6, 8});
    nlohmann::json changes{{"num_attention_heads", heads},
                           {"num_key_value_heads", kv_heads},
                           {"hidden_size", golden == "qwen2.5-bias" ? heads * head_dim : dice_.of({8, 12, 16, 20, 32})},
                           {"intermediate_size", dice_.of({12, 16, 24, 32, 64})},
                           {"num_hidden_layers", stages_ * dice_.of({1, 1, 2}) + dice_.of({0, 0, 1})},
                           {"vocab_size", dice_.of({32, 36, 37, 48, 64})},
                           {"tie_word_embeddings", dice_.one_in(2)}};
    if (golden != "qwen2.5-bias") changes["head_dim"] = head_dim;
    if (golden.ends_with("padded")) changes["pad_token_id"] = dice_.of({0, 5, 31, -2});
    if (golden.starts_with("qwen")) {
      nlohmann::json types;
      const bool windows = dice_.one_in(3);
      for (int layer = 0; layer < changes["num_hidden_layers"]; ++layer) {
        types.push_back(windows && !dice_.one_in(3) ? "sliding_attention" : "full_attention");
      }
      changes["layer_types"] = types;
      changes["use_sliding_window"] = windows;
      changes["sliding_window"] = windows ? dice_.of({1, 2, 3, 7}) : 4096;
    }
    made_.model = {golden, changes.dump()};
  }

  void draw_sizes() {
    const int accumulation = dice_.of({1, 1, 2, 2, 3, 4}), micro_batch = dice_.of({1, 1, 2, 3});
    add("accumulation", std::to_string(accumulation));
    add("global-batch", std::to_string(accumulation * micro_batch * data_));
    add("sequence",
        std::to_string(context_ > 1  ? 2 * context_ * tensor_ * dice_.of({1, 1, 2})
                       : tensor_ > 1 ? std::max(tensor_, 4) * dice_.of({1, 2, tensor_ == 3 ? 3 : 2})
                                     : dice_.of({1, 3, 4, 5, 8})));
  }

  void draw_options() {
    if (context_ > 1) {
      maybe("cp.attention", {"gather", "ulysses", "ring"});
      maybe("cp.gather-again", {"true", "false"});
      maybe("cp.queries-beside-gathers", {"true", "false"});
      maybe("cp.delay-weight-gradients", {"true", "false"});
    }
    if (tensor_ > 1) {
      const bool sequences = !dice_.one_in(4);
      if (!sequences) add("tp-sp.sequence-parallel", "false");
      maybe("tp-sp.delay-weight-gradients", {"true", "false"});
      if (sequences) maybe("tp-sp.gather-again", {"true", "false"});
      if (sequences) maybe("tp-sp.overlap-parts", {"1", "2", "4"});
      maybe("tp-sp.logits-bytes", {"500", "1500", "4000"});
    }
    if (stages_ > 1) {
      const std::string schedule = dice_.text({"gpipe", "1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"});
      add("pipeline.schedule", schedule);
      if (schedule == "interleaved") maybe("pipeline.chunks", {"1", "2", "3"});
      maybe("pipeline.send-first", {"true", "false"});
      maybe("pipeline.cut", {"layers", "blocks", "operators"});
    }
    if (data_ == 1) return;
    if (over_data_ == "ddp" || replicas_ > 1) maybe("ddp.bucket-size", {"1Ki", "4Ki", "20Ki"});
    if (over_data_ == "ddp") return;
    const auto zero = [&](const std::string& option) { return over_data_ + "." + option; };
    maybe(zero("overlap-comm"), {"true", "false"});
    maybe(zero("contiguous-gradients"), {"true", "false"});
    maybe(zero("reduce-bucket-size"), {"0", "500", "4000"});
    maybe(zero("communication-data-type"), {"auto", "fp32", "bf16"});
    const bool third = over_data_ == "zero3-offload";
    if (third) {
      maybe(zero("prefetch-bucket-size"), {"0", "500", "4000"});
      maybe(zero("param-persistence-threshold"), {"0", "100", "1000"});
      maybe(zero("max-reuse-distance"), {"0", "1000"});
      maybe(zero("max-live-parameters"), {"0", "1000", "5000"});
      maybe(zero("reduce-each-micro-batch"), {"true", "false"});
      if (dice_.one_in(4)) add(zero("offload-param.device"), "cpu");
    } else {
      maybe(zero("stage"), {"1", "2"});
      maybe(zero("allgather-bucket-size"), {"0", "500", "4000"});
    }
    if (!dice_.one_in(3)) return;
    add(zero("offload-optimizer.device"), "cpu");
    maybe(zero("offload-optimizer.update"), {"device", "cpu"});
    maybe(zero("offload-optimizer.ratio"), {"0", "0.3", "0.7", "1"});
    maybe(zero("sub-group-size"), {"0", "500", "3000"});
  }

  void draw_precision() {
    const std::string precision = dice_.text({"fp32", "fp32", "bf16", "fp8"});
    if (precision == "fp32") return;
    add("precision", precision);
    maybe(precision + ".gradients", {"f32", "bf16"});
    maybe(precision + ".states", {"f32", "bf16"});
    if (precision != "fp8") return;
    maybe("fp8.scaling", {"tensor", "delayed", "row", "block"});
    if (dice_.one_in(4)) add("fp8.gathers", "true");
    if (dice_.one_in(4)) add("fp8.bf16-first", "1");
    if (dice_.one_in(4)) add("fp8.except", "*down_proj*");
  }

  void draw_optimizer() {
    const std::string optimizer = dice_.text({"sgd", "lion", "muon"});
    add("optimizer", optimizer);
    maybe("weight-decay", {"0", "0.3"});
    if (optimizer == "sgd") {
      maybe("sgd.momentum", {"0", "0.7"});
      if (dice_.one_in(3)) add("sgd.nesterov", "true");
    } else if (optimizer == "lion") {
      maybe("lion.beta1", {"0.8", "0.95"});
    } else {
      maybe("muon.nesterov", {"true", "false"});
      maybe("muon.scale", {"adamw", "original"});
      maybe("muon.iterations", {"1", "3", "5"});
    }
  }

  void draw_recompute() {
    add("recompute", dice_.text({"full", "full", "swiglu", "swiglu,rms_norm", "attention", "rope,attention", "rms_norm,rope"}));
    if (dice_.one_in(3)) add("recompute-layers", "0-0");
  }

  /// Some match nothing or everything of some models, and are refused.
  void draw_frozen() {
    if (dice_.one_in(3)) add("frozen-weights", dice_.text({"nf4:1", "nf4:2", "e4m3:1"}));
    if (dice_.one_in(2))
      return add("freeze", dice_.text({"model.embed_tokens.weight", "model.layers.0.*", "model.embed_tokens.weight,model.layers.0.*",
                                       "model.layers.*", "*mlp*", "*norm*", "*q_proj*,*k_proj*,*o_proj*", "lm_head.weight",
                                       "*up_proj*,model.norm.weight"}));
    add("train-only", dice_.text({"*norm*", "*layernorm*", "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight",
                                  "*v_proj*", "*bias", "model.layers.1.*", "*down_proj*", "model.layers.0.self_attn.*"}));
  }

  Dice dice_;
  RandomConfiguration made_;
  int tensor_ = 1, stages_ = 1, data_ = 1, context_ = 1, replicas_ = 1;
  std::string over_data_;
};

}  // namespace

RandomConfiguration draw(std::mt19937_64& random) {
  return Draw(random).make();
}

}  // namespace consist::interpreter
