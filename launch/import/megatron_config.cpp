#include "launch/import/megatron_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/json_input.h"
#include "core/passes/offload_activations.h"
#include "launch/import/common/fsdp.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/common/stored_values.h"
#include "launch/import/megatron_keys.h"
#include "launch/import/megatron_model.h"
#include "launch/import/megatron_schedule.h"
#include "launch/import/shell_script.h"

namespace consist::megatron {
namespace {

using readers::as_text;
using readers::Json;
using readers::StoredValues;
using readers::Target;

constexpr std::int64_t most_ranks = 65'536;

/// Words of a command line as the numbers and truth values that they are.
Json typed(const Json& value) {
  if (!value.is_string()) return value;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  std::int64_t whole = 0;
  const char* const end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, whole); error == std::errc() && stop == end) return whole;
  double real = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, real);
  return error == std::errc() && stop == end && std::isfinite(real) ? Json(real) : value;
}

bool is_unknown(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), is_unknown);
  return value.is_string() && value.get_ref<const std::string&>().find(shell::unknown_mark) != std::string::npos;
}

class Reader final : public readers::KeyReader {
 public:
  explicit Reader(Target& target) : KeyReader(target, rules), values_(target) {}

  void run(Json arguments) {
    prepare(arguments, "");
    readers::drop_nulls(arguments, "", target_);
    read_all(arguments,
             {[&] { read_batch(); }, [&] { read_precision(); }, [&] { read_strategies(); }, [&] { read_model(values_, target_); },
              [&] { read_optimizer(); }, [&] { read_schedule(values_, target_); }, [&] { read_recompute(); },
              [&] { read_activation_offload(); }, [&] { read_pipeline(); }});
  }

 private:
  /// Takes out what could only be known by running the script.
  void prepare(Json& object, const std::string& prefix) {
    for (auto entry = object.begin(); entry != object.end();) {
      const std::string key = prefix + entry.key();
      if (entry->is_object()) {
        prepare(*entry, key + ".");
      } else if (is_unknown(*entry)) {
        target_.differs(key + ": its value is not known without running the script; as if it were absent");
        entry = object.erase(entry);
        continue;
      } else {
        *entry = typed(*entry);
      }
      ++entry;
    }
  }

  const readers::KeyRule* rule_of(const std::string& key) const override {
    if (const readers::KeyRule* exact = KeyReader::rule_of(key); exact != nullptr) return exact;
    for (const readers::KeyRule& family : families) {
      if (key.starts_with(family.path)) return &family;
    }
    return nullptr;
  }

  void read_own(const std::string& key, const Json& value) override {
    if (key == "num-key-value-heads") {  // of Megatron-DeepSpeed
      values_.add("group-query-attention", key, true);
      values_.add("num-query-groups", key, value);
    } else {
      values_.add(key.starts_with("torchrun.") ? key.substr(9) : key, key, value);
    }
  }

  bool flag(const char* name) const { return values_.truth(name, false); }
  std::int64_t size(const char* name) const { return values_.whole(name, 1, 1, most_ranks); }

  void read_batch() {
    values_.note("mock-data", "--dataset synthetic is data of that kind");
    if (values_.has("micro-batch-size"))
      values_.state("micro-batch-size", "batch", config_.batch, values_.whole("micro-batch-size", 1, 1, 1'000'000'000));
    if (!values_.has("global-batch-size")) return;
    if (target_.context.given("accumulation") || (target_.context.given("batch") && config_.global_batch > 0))
      return values_.note("global-batch-size", "the command line's goes before the file");
    values_.state("global-batch-size", "global-batch", config_.global_batch,
                  values_.whole("global-batch-size", 1, 1, 1'000'000'000'000));
  }

  void read_precision() {
    if (flag("fp16"))
      values_.refuse("fp16",
                     "is given: training in fp16, with a scaled loss, is not done here; bf16 is (--from-set fp16=false "
                     "--from-set bf16=true)");
    values_.note("fp16", "off");
    const bool fp8 = values_.has("fp8-format") || flag("fp8-hybrid") || flag("fp8-e4m3");
    const std::string precision = fp8 ? "fp8" : flag("bf16") ? "bf16" : "fp32";
    const char* from = values_.has("fp8-format") ? "fp8-format"
                       : flag("fp8-hybrid")      ? "fp8-hybrid"
                       : flag("fp8-e4m3")        ? "fp8-e4m3"
                                                 : "bf16";
    values_.state(from, "precision", config_.precision, precision);
    if (fp8) values_.note("bf16", "--precision fp8, whose other ops are in bf16");
    const char* const of_fp8[] = {"fp8-format",      "fp8-hybrid",           "fp8-e4m3",
                                  "fp8-recipe",      "fp8-amax-history-len", "fp8-amax-compute-algo",
                                  "fp8-param-gather"};
    if (config_.precision == "fp8" && fp8) {
      read_fp8();
    } else {
      for (const char* name : of_fp8) {
        if (name != std::string(from)) values_.note(name, "no effect: --precision " + config_.precision);
      }
    }
    const bool low = flag("grad-reduce-in-bf16");
    for (const char* name : {"grad-reduce-in-bf16", "accumulate-allreduce-grads-in-fp32"})
      values_.note(name, "gradients are added up and sent in " + std::string(low ? "bf16" : "fp32"));
    if (config_.precision != "fp32")
      target_.derive_plugin("grad-reduce-in-bf16", config_.precision, "gradients", low ? "bf16" : "f32");
  }

  void read_fp8() {
    const std::string format = flag("fp8-hybrid") ? "hybrid"
                               : flag("fp8-e4m3") ? "e4m3"
                                                  : values_.choice("fp8-format", "hybrid", {"hybrid", "e4m3"});
    const std::string recipe = values_.choice("fp8-recipe", "delayed", {"delayed", "tensorwise", "blockwise"});
    const std::string scaling = recipe == "tensorwise" ? "tensor" : recipe == "blockwise" ? "block" : "delayed";
    target_.derive_plugin("fp8-format", "fp8", "gradient-format", format == "hybrid" ? "e5m2" : "e4m3");
    values_.state_plugin("fp8-recipe", "fp8", "scaling", scaling);
    const bool latest = values_.choice("fp8-amax-compute-algo", "most_recent", {"most_recent", "max"}) == "most_recent";
    const std::int64_t history = latest ? 1 : values_.whole("fp8-amax-history-len", 1, 1, 1'000'000);
    if (scaling == "delayed") target_.derive_plugin("fp8-amax-history-len", "fp8", "amax-history-len", as_text(history));
    for (const char* name : {"fp8-amax-history-len", "fp8-amax-compute-algo"})
      values_.note(name, scaling == "delayed" ? "--fp8.amax-history-len" : "no effect: the recipe is " + recipe);
    if (!flag("fp8-param-gather")) return values_.note("fp8-param-gather", "off");
    if (scaling == "tensor")
      values_.state_plugin("fp8-param-gather", "fp8", "gathers", "true");
    else
      values_.note("fp8-param-gather",
                   "no effect here: with " + scaling + " scales weights are gathered in bf16, which are the same numbers");
  }

  void read_strategies() {
    const std::int64_t tensor = size("tensor-model-parallel-size"), pipeline = size("pipeline-model-parallel-size"),
                       context = size("context-parallel-size"), experts = size("expert-model-parallel-size");
    std::int64_t groups = read_experts(experts, tensor);
    if (groups > 1 && context > 1 && groups % context == 0) {  // its ranks of experts are those of context first, then of data
      groups /= context;
      target_.derive_plugin("expert-model-parallel-size", "cp", "experts", "divided");
    }
    std::vector<StrategyChoice> all;
    if (tensor > 1) all.push_back({"tp-sp", static_cast<int>(tensor)});
    if (context > 1) all.push_back({"cp", static_cast<int>(context)});
    if (groups > 1) all.push_back({"ep", static_cast<int>(groups)});
    const std::string data = data_strategy();
    all.push_back({data, 0});
    if (pipeline > 1) all.push_back({"pipeline", static_cast<int>(pipeline)});
    target_.state_strategies("arguments", all);
    for (const char* name : {"tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
                             "expert-model-parallel-size", "use-distributed-optimizer"})
      values_.note(name, "--strategy " + text_of(config_.strategies));
    if (tensor > 1)
      values_.state_plugin("sequence-parallel", "tp-sp", "sequence-parallel", flag("sequence-parallel") ? "true" : "false");
    else
      values_.note("sequence-parallel", "no effect: tensor-model-parallel-size is 1");
    read_context(context);
    read_ranks();
    read_data(data);
  }

  /// Ranks of ep. Megatron's ranks of experts are some of those of tensor and data parallelism; matrices of an expert are divided
  /// over "expert-tensor-parallel-size" ranks, those of tensor parallelism unless it says otherwise.
  std::int64_t read_experts(std::int64_t experts, std::int64_t tensor) {
    const char* const of_matrices = "expert-tensor-parallel-size";
    if (!values_.has("num-experts") || tensor == 1) {
      if (values_.has(of_matrices) && size(of_matrices) != 1 && values_.has("num-experts"))
        values_.refuse(of_matrices, "is " + as_text(size(of_matrices)) + ", but tensor-model-parallel-size is 1");
      values_.note(of_matrices, "no effect: nothing divides experts over ranks of tp-sp");
      return experts;
    }
    const std::int64_t matrices = values_.has(of_matrices) ? size(of_matrices) : tensor;
    const std::string beside = " beside tensor-model-parallel-size " + as_text(tensor);
    if (matrices != 1 && matrices != tensor)
      values_.refuse(of_matrices, "is " + as_text(matrices) + beside + "; it may be 1 or as many");
    if (matrices == 1 && experts > 1 && experts % tensor != 0)
      values_.refuse("expert-model-parallel-size", "is " + as_text(experts) + beside +
                                                       ": it must be a multiple of that here, where ranks of "
                                                       "tp-sp share experts all or not at all");
    const bool whole = matrices == 1 && experts == 1;
    target_.derive_plugin(of_matrices, "tp-sp", "experts", whole ? "whole" : "divided");
    values_.note(of_matrices, whole ? "--tp-sp.experts whole"
                              : matrices == 1
                                  ? "ranks of tp-sp share experts"
                                  : "ranks of tp-sp share experts instead of matrices of each expert: the same memory");
    return matrices == 1 && !whole ? experts / tensor : experts;
  }

  /// The strategy that divides parameters, gradients and states.
  std::string data_strategy() const {
    if (flag("use-torch-fsdp2")) return "zero3-offload";
    if (flag("use-megatron-fsdp") || flag("use-custom-fsdp")) {
      const std::string kind = values_.choice("data-parallel-sharding-strategy", "no_shard",
                                              {"no_shard", "optim", "optim_grads", "optim_grads_params"});
      return kind == "optim_grads_params" ? "zero3-offload" : kind == "no_shard" ? "ddp" : "zero2";
    }
    return flag("use-distributed-optimizer") ? "zero2" : "ddp";
  }

  void read_data(const std::string& data) {
    const bool fsdp = flag("use-megatron-fsdp") || flag("use-custom-fsdp");
    for (const char* name : {"use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp"}) values_.note(name, "--strategy " + data);
    values_.note("data-parallel-sharding-strategy", fsdp ? "--strategy " + data : "no effect: it concerns Megatron's FSDP");
    const bool overlaps = flag("overlap-grad-reduce");
    if (data == "zero2") {
      const bool gradients = fsdp && values_.text("data-parallel-sharding-strategy", "") == "optim_grads";
      target_.derive_plugin("use-distributed-optimizer", "zero2", "stage", gradients ? "2" : "1");
      values_.state_plugin("overlap-grad-reduce", "zero2", "overlap-comm", overlaps || fsdp ? "true" : "false");
      values_.note("overlap-param-gather",
                   "gathers and reductions run beside computation together: --zero2.overlap-comm, as overlap-grad-reduce says");
    } else {
      values_.note("overlap-grad-reduce", "reductions of gradients run beside backward in any case");
      values_.note("overlap-param-gather",
                   data == "ddp" ? "no effect: nothing is gathered" : "gathers run beside computation in any case");
    }
    const bool offload = flag("optimizer-cpu-offload");
    if (data == "zero3-offload")
      readers::derive_fsdp({.offload = false, .reduce_dtype = flag("grad-reduce-in-bf16") ? "bf16" : "fp32"}, target_);
    if (!offload) {
      for (const char* name : {"optimizer-cpu-offload", "optimizer-offload-fraction"}) values_.note(name, "off");
    } else if (data == "ddp") {
      values_.refuse("optimizer-cpu-offload", "is given, which needs use-distributed-optimizer");
    } else {
      values_.state_plugin("optimizer-cpu-offload", data, "offload-optimizer.device", "cpu");
      values_.state_plugin("optimizer-offload-fraction", data, "offload-optimizer.ratio",
                           as_text(values_.number("optimizer-offload-fraction", 1.0)));
      target_.derive_plugin("optimizer-cpu-offload", data, "offload-optimizer.update", "cpu");
    }
  }

  void read_context(std::int64_t context) {
    if (context == 1) return values_.note("cp-comm-type", "no effect: the sequence is not divided");
    const std::string way = values_.choice("cp-comm-type", "p2p", {"p2p", "all_gather", "a2a"});
    const bool ring = target_.context.has_choice && target_.context.has_choice("cp.attention", "ring");
    values_.state_plugin("cp-comm-type", "cp", "attention", way == "a2a" ? "ulysses" : way == "p2p" && ring ? "ring" : "gather");
    if (way == "p2p" && !ring)
      target_.differs("cp-comm-type p2p: keys and values are gathered here instead of sent around a ring");
  }

  void read_ranks() {
    if (!values_.has("nproc-per-node")) {
      values_.note("nnodes", std::string(finds_ranks));
      target_.differs("says no number of ranks: --ranks " + as_text(config_.ranks));
      return;
    }
    const std::int64_t ranks = size("nproc-per-node") * size("nnodes");
    if (ranks > most_ranks)
      values_.refuse("nproc-per-node", "makes " + as_text(ranks) + " ranks; the most are " + as_text(most_ranks));
    values_.state("nproc-per-node", "ranks", config_.ranks, static_cast<int>(ranks));
    values_.note("nnodes", "--ranks " + as_text(config_.ranks));
  }

  void read_optimizer() {
    values_.choice("optimizer", "adam", {"adam"});
    values_.state("optimizer", "optimizer", config_.optimizer_plugin, std::string("adamw"));
    values_.state("weight-decay", "weight-decay", config_.optimizer.weight_decay, values_.number("weight-decay", 0.01));
    values_.state("clip-grad", "clip", config_.optimizer.max_norm, values_.number("clip-grad", 1.0));
    values_.state_plugin("adam-beta1", "adamw", "beta1", as_text(values_.number("adam-beta1", 0.9)));
    values_.state_plugin("adam-beta2", "adamw", "beta2", as_text(values_.number("adam-beta2", 0.999)));
    values_.state_plugin("adam-eps", "adamw", "epsilon", as_text(values_.number("adam-eps", 1e-8)));
    values_.state("seed", "seed", config_.seed, static_cast<std::uint64_t>(values_.whole("seed", 1234, 0, INT64_MAX / 2)));
  }

  void read_recompute() {
    std::string granularity = values_.choice("recompute-granularity", "none", {"none", "selective", "full"});
    // Older names.
    if (values_.has("activations-checkpoint-method") || flag("checkpoint-activations")) granularity = "full";
    RecomputeRequest wanted;
    std::string what = "attention keeps no scores that could be made again";
    if (granularity == "full") {
      const std::string method =
          values_.choice(values_.has("activations-checkpoint-method") ? "activations-checkpoint-method" : "recompute-method",
                         "uniform", {"uniform", "block"});
      const std::int64_t layers = values_.whole("recompute-num-layers", 1, 1, 100'000);
      if (method == "uniform" && layers > 1)
        values_.refuse("recompute-num-layers",
                       "is " + as_text(layers) + " with the method uniform: the input of each layer is kept here; it may be 1");
      if (method == "block" && size("pipeline-model-parallel-size") > 1)
        values_.refuse(
            "recompute-method",
            "is block beside a pipeline: which layers of each stage are made again cannot be said here; uniform is done");
      wanted =
          parse_recompute("full", method == "block" ? "0-" + as_text(std::min(layers, target_.context.sizes().layers) - 1) : "");
      what = "--recompute full" + (layers_text(wanted).empty() ? "" : " --recompute-layers " + layers_text(wanted));
    } else if (granularity == "selective") {
      const std::string ops = selective_ops();
      if (!ops.empty()) {
        wanted = parse_recompute(ops, "");
        what = "--recompute " + ops;
      }
    }
    const bool given = target_.context.given("recompute");
    if (given) what = "--recompute " + what_text(config_.recompute) + " is given and goes before the file";
    if (!given) config_.recompute = wanted;
    target_.stated.insert("recompute");
    for (const char* name : {"recompute-activations", "recompute-granularity", "recompute-method", "recompute-num-layers",
                             "recompute-modules", "activations-checkpoint-method", "checkpoint-activations"})
      values_.note(name, what);
  }

  /// The activations of the first layers wait on the host.
  void read_activation_offload() {
    const std::int64_t layers =
        flag("cpu-offloading") ? values_.whole("cpu-offloading-num-layers", 0, 0, target_.context.sizes().layers) : 0;
    std::string what = layers == 0 ? "off" : "--offload-activations 0-" + as_text(layers - 1);
    if (layers > 0 && target_.context.given("offload-activations"))
      what = "--offload-activations " + text_of(config_.offload) + " is given and goes before the file";
    else if (layers > 0)
      config_.offload = parse_offload("0-" + as_text(layers - 1));
    target_.stated.insert("offload-activations");
    for (const char* name : {"cpu-offloading", "cpu-offloading-num-layers"}) values_.note(name, what);
  }

  /// Modules as ops.
  std::string selective_ops() const {
    const auto* given = values_.find("recompute-modules");
    if (given == nullptr) return "";
    std::string ops;
    for (const Json& module : given->value.is_array() ? given->value : Json::array({given->value})) {
      if (module == "core_attn") continue;
      const char* op = module == "layernorm" ? "rms_norm" : module == "mlp_act" || module == "moe_act" ? "swiglu" : nullptr;
      if (op == nullptr)
        values_.refuse("recompute-modules", "has " + shown(module) + "; here it may be core_attn, layernorm and moe_act");
      if (ops.find(op) == std::string::npos) ops += (ops.empty() ? "" : ",") + std::string(op);
    }
    return ops;
  }

  void read_pipeline() {
    const std::int64_t ranks = size("pipeline-model-parallel-size");
    const char* const sizes[] = {"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"};
    if (ranks == 1) {
      for (const char* name : sizes) values_.note(name, "no effect: there is no pipeline");
      return;
    }
    std::int64_t chunks = values_.whole(sizes[1], 1, 1, 1000);
    if (values_.has(sizes[0])) {
      const std::int64_t layers = target_.context.sizes().layers, of_stage = values_.whole(sizes[0], 1, 1, 100'000);
      if (layers % (ranks * of_stage) != 0)
        values_.refuse(sizes[0], "is " + as_text(of_stage) + ", which does not divide the " + as_text(layers) + " layers over " +
                                     as_text(ranks) + " ranks");
      chunks = layers / (ranks * of_stage);
    }
    for (const char* name : sizes) values_.note(name, as_text(chunks) + " stages per rank");
    target_.derive_plugin("the pipeline", "pipeline", "schedule", chunks > 1 ? "interleaved" : "1f1b");
    if (chunks > 1) target_.derive_plugin("the pipeline", "pipeline", "chunks", as_text(chunks));
  }

  StoredValues values_;
};

}  // namespace

void apply(Json arguments, Target& target) {
  Reader(target).run(std::move(arguments));
}

}  // namespace consist::megatron
