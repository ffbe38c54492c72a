#include "launch/import/accelerate_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "core/base/lower.h"
#include "launch/import/accelerate_keys.h"
#include "launch/import/common/fsdp.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/common/stored_values.h"
#include "launch/import/deepspeed_config.h"

namespace consist::accelerate {
namespace {

using readers::as_text;
using readers::Json;
using readers::Target;

constexpr std::int64_t most_ranks = 65'536;
constexpr std::int64_t most_bytes = std::int64_t{1} << 20;

class Reader final : public readers::KeyReader {
 public:
  explicit Reader(Target& target) : KeyReader(target, rules), values_(target) {}

  void run(Json root) {
    readers::drop_nulls(root, "", target_);
    read_all(root, {[&] { read_type(); }});
    run_steps({[&] { read_processes(); },
               [&] {
                 if (type_ == "DEEPSPEED") return read_deepspeed();
                 read_precision();
                 read_strategies();
               }});
    note_other_blocks();
  }

 private:
  void read_type() {
    type_ = upper("distributed_type", "NO");
    const std::set<std::string> known{"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"};
    if (!known.contains(type_))
      values_.refuse(
          "distributed_type",
          "is " + shown(Json(type_)) +
              ", for devices or trainers that are not there; it may be NO, MULTI_GPU, MULTI_CPU, FSDP, DEEPSPEED or MEGATRON_LM");
    values_.note("distributed_type", "--strategy");
  }

  void read_own(const std::string& key, const Json& value) override {
    std::string name = key.substr(key.rfind('.') + 1);
    if (key == "fsdp_config.offload_params" || name == "fsdp_cpu_offload") name = "fsdp_offload_params";
    if (name == "sharding_strategy") name = "fsdp_sharding_strategy";
    if (name == "amax_history_length") name = "amax_history_len";
    if (name == "amax_compute_algorithm") name = "amax_compute_algo";
    values_.add(name, key, value);
  }

  /// The value of a key, else `fallback`, in upper case; "NO" for the truth value false.
  std::string upper(const char* name, const std::string& fallback) const {
    const auto* given = values_.find(name);
    if (given != nullptr && given->value == false) return "NO";
    std::string text = given == nullptr                   ? fallback
                       : given->value.is_number_integer() ? given->value.dump()
                                                          : values_.text(name, fallback);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return text;
  }

  void read_processes() {
    machines_ = values_.whole("num_machines", 1, 1, most_ranks);
    values_.note("num_machines", std::string(starts_ranks));
    if (type_ == "NO") {
      values_.note("num_processes", "no effect: distributed_type is NO, so there is one");
      if (!target_.context.given("ranks")) config_.ranks = 1;
    } else if (values_.has("num_processes")) {
      values_.state("num_processes", "ranks", config_.ranks, static_cast<int>(values_.whole("num_processes", 1, 1, most_ranks)));
    }
    if (values_.has("use_cpu") && values_.truth("use_cpu", false))
      values_.state("use_cpu", "device", config_.device, std::string("cpu"));
    else
      values_.note("use_cpu", "--device " + config_.device);
  }

  void read_precision() {
    const std::string name = lower(upper("mixed_precision", "NO"));
    if (name == "fp16")
      values_.refuse(
          "mixed_precision",
          "is \"fp16\": training in fp16, with a scaled loss, is not done here; bf16 is (--from-set mixed_precision=bf16)");
    if (name != "no" && name != "bf16" && name != "fp8")
      values_.refuse("mixed_precision", "is " + shown(Json(name)) + "; it may be no, bf16 or fp8");
    values_.state("mixed_precision", "precision", config_.precision, name == "no" ? std::string("fp32") : name);
    if (config_.precision == "fp8" && name == "fp8") read_fp8();
  }

  void read_fp8() {
    const std::string backend = upper("backend", "TE");
    if (backend != "TE" && backend != "AO") values_.refuse("backend", "is " + shown(Json(backend)) + "; here it may be TE or AO");
    values_.state_plugin("backend", "fp8", "scaling", backend == "TE" ? "delayed" : "tensor");
    const char* const of_te[] = {"fp8_format", "amax_history_len", "amax_compute_algo"};
    if (backend != "TE") {
      for (const char* name : of_te) values_.note(name, "no effect: the backend is " + backend);
      return;
    }
    const std::string format = upper("fp8_format", "HYBRID");
    if (format != "HYBRID" && format != "E4M3")
      values_.refuse("fp8_format", "is " + shown(Json(format)) + "; here it may be HYBRID or E4M3");
    values_.state_plugin("fp8_format", "fp8", "gradient-format", format == "HYBRID" ? "e5m2" : "e4m3");
    const bool latest = upper("amax_compute_algo", "MOST_RECENT") == "MOST_RECENT";
    values_.note("amax_compute_algo", "--fp8.amax-history-len, whose largest decides");
    values_.state_plugin("amax_history_len", "fp8", "amax-history-len",
                         latest ? "1" : as_text(values_.whole("amax_history_len", 1024, 1, 1'000'000)));
  }

  void read_strategies() {
    std::vector<StrategyChoice> all;
    const auto size = [&](const char* name) { return values_.whole(name, 1, 1, most_ranks); };
    const std::int64_t context = size("parallelism_config_cp_size"), ulysses = size("parallelism_config_sp_size");
    if (context > 1 && ulysses > 1)
      values_.refuse("parallelism_config_sp_size",
                     "is given beside parallelism_config_cp_size; a sequence is divided in one way here");
    const std::int64_t tensor = type_ == "MEGATRON_LM" ? size("megatron_lm_tp_degree") : size("parallelism_config_tp_size");
    if (tensor > 1) all.push_back({"tp-sp", static_cast<int>(tensor)});
    if (context * ulysses > 1) {
      all.push_back({"cp", static_cast<int>(context * ulysses)});
      const std::string way = values_.choice("parallelism_config_cp_comm_strategy", "allgather", {"allgather"});
      target_.derive_plugin("parallelism_config", "cp", "attention", ulysses > 1 ? "ulysses" : "gather");
      values_.note("parallelism_config_cp_comm_strategy", "--cp.attention gather (" + way + ")");
    } else {
      values_.note("parallelism_config_cp_comm_strategy", "no effect: the sequence is not divided");
    }
    add_data_parallel(all, context * ulysses * tensor);
    if (type_ == "MEGATRON_LM" && size("megatron_lm_pp_degree") > 1)
      all.push_back({"pipeline", static_cast<int>(size("megatron_lm_pp_degree"))});
    target_.state_strategies("distributed_type " + type_, all);
    for (const char* name : {"parallelism_config_cp_size", "parallelism_config_sp_size", "parallelism_config_tp_size",
                             "parallelism_config_dp_shard_size", "parallelism_config_dp_replicate_size", "megatron_lm_tp_degree",
                             "megatron_lm_pp_degree"})
      values_.note(name, "--strategy " + text_of(config_.strategies));
    if (type_ == "FSDP") read_recompute("fsdp_activation_checkpointing", "full");
    if (type_ == "MEGATRON_LM") read_megatron();
  }

  /// `within`: ranks that train on the same sequences.
  void add_data_parallel(std::vector<StrategyChoice>& all, std::int64_t within) {
    if (type_ == "MEGATRON_LM") {
      const bool divides = values_.truth("megatron_lm_use_distributed_optimizer", false);
      all.push_back({divides ? "zero2" : "ddp", 0});
      if (divides) target_.derive_plugin("megatron_lm_use_distributed_optimizer", "zero2", "stage", "1");
      values_.note("megatron_lm_use_distributed_optimizer", "--strategy " + text_of(all));
      return;
    }
    const bool has_degrees =
        values_.has("parallelism_config_dp_shard_size") || values_.has("parallelism_config_dp_replicate_size");
    const auto shards = static_cast<int>(values_.whole("parallelism_config_dp_shard_size", 1, 1, most_ranks));
    const auto replicas = static_cast<int>(values_.whole("parallelism_config_dp_replicate_size", 1, 1, most_ranks));
    if (type_ != "FSDP") {
      if (has_degrees && shards > 1)
        values_.refuse("parallelism_config_dp_shard_size", "is " + as_text(shards) + ", which needs distributed_type FSDP");
      all.push_back({"ddp", has_degrees ? replicas : 0});
      return;
    }
    const std::string kind = sharding();
    if (kind == "NO_SHARD") {
      all.push_back({"ddp", 0});
      return;
    }
    if (has_degrees) {
      all.push_back({"zero3-offload", shards});
      if (replicas > 1) all.push_back({"ddp", replicas});
    } else if (kind.starts_with("HYBRID") && machines_ > 1) {
      if (config_.ranks % (machines_ * within) != 0)
        values_.refuse("num_machines",
                       "is " + as_text(machines_) + ", over which the " + as_text(config_.ranks) + " ranks cannot be divided");
      all.push_back({"zero3-offload", static_cast<int>(config_.ranks / (machines_ * within))});
      all.push_back({"ddp", static_cast<int>(machines_)});
    } else {
      all.push_back({"zero3-offload", 0});
    }
    const bool offload = values_.truth("fsdp_offload_params", false);
    values_.note("fsdp_offload_params", offload ? "--zero3-offload offload options" : "off");
    const bool whole = kind == "SHARD_GRAD_OP" || kind.ends_with("ZERO2");
    readers::derive_fsdp(
        {.offload = offload, .whole_until_backward = whole, .reduce_dtype = config_.precision == "fp32" ? "fp32" : "bf16"},
        target_);
  }

  /// Value of FSDP 1's sharding_strategy, by name or number, or of FSDP 2's reshard_after_forward. Files of version 1 may have
  /// the name under the newer key.
  std::string sharding() const {
    const auto* resharding = values_.find("fsdp_reshard_after_forward");
    const char* from = "fsdp_sharding_strategy";
    std::string kind = "FULL_SHARD";
    if (resharding != nullptr && resharding->value.is_boolean()) {
      kind = resharding->value == true ? "FULL_SHARD" : "SHARD_GRAD_OP";
      values_.note("fsdp_reshard_after_forward", kind);
    } else if (resharding != nullptr) {
      from = "fsdp_reshard_after_forward";
      kind = upper(from, kind);
    }
    if (values_.has("fsdp_sharding_strategy")) {
      if (resharding != nullptr && !resharding->value.is_boolean())
        values_.note("fsdp_reshard_after_forward", "fsdp_sharding_strategy counts");
      from = "fsdp_sharding_strategy";
      kind = upper(from, kind);
    }
    constexpr const char* kinds[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
    if (kind.size() == 1 && kind[0] >= '1' && kind[0] <= '5') kind = kinds[kind[0] - '1'];
    if (kind == "TRUE") kind = "FULL_SHARD";
    if (kind == "FALSE") kind = "SHARD_GRAD_OP";
    if (std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
      values_.refuse(from, "is " + shown(Json(kind)) +
                               "; it may be FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
    values_.note(from, kind == "NO_SHARD" ? "--strategy ddp" : "--strategy zero3-offload");
    return kind;
  }

  void read_recompute(const char* name, const char* what) {
    if (!values_.truth(name, false)) return values_.note(name, "off");
    if (target_.context.given("recompute"))
      return values_.note(name, "--recompute " + what_text(config_.recompute) + " is given and goes before the file");
    config_.recompute = parse_recompute(what, "");
    target_.stated.insert("recompute");
    values_.note(name, "--recompute " + std::string(what));
  }

  void read_megatron() {
    // Selective recomputation there is of attention's scores.
    values_.note("megatron_lm_recompute_activations", "no effect: attention keeps no scores that could be made again");
    target_.derive_plugin("megatron_lm_sequence_parallelism", "tp-sp", "sequence-parallel",
                          values_.truth("megatron_lm_sequence_parallelism", false) ? "true" : "false");
    values_.note("megatron_lm_sequence_parallelism", "--tp-sp.sequence-parallel");
    if (values_.has("megatron_lm_num_micro_batches"))
      values_.state("megatron_lm_num_micro_batches", "accumulation", config_.accumulation,
                    static_cast<int>(values_.whole("megatron_lm_num_micro_batches", 1, 1, 65'536)));
    values_.state("megatron_lm_gradient_clipping", "clip", config_.optimizer.max_norm,
                  values_.number("megatron_lm_gradient_clipping", 1.0));
  }

  /// A file of DeepSpeed's, or what the plugin makes of its own keys.
  void read_deepspeed() {
    Json made = Json::object();
    const bool bf16 = upper("mixed_precision", "NO") == "BF16";
    if (values_.has("deepspeed_config_file")) {
      const std::string name = values_.text("deepspeed_config_file", "");
      const std::filesystem::path path = std::filesystem::path(target_.source.path).parent_path() / name;
      const std::string said = target_.source.option + " " + target_.source.path + ": deepspeed_config_file " + path.string();
      made = parse_json(read_text(path.string(), most_bytes), said, {.repeated = JsonRules::Repeated::refused, .comments = true});
      if (!made.is_object()) throw DataError(said + " is no JSON object");
      values_.note("deepspeed_config_file", "its keys follow");
      // Values that are "auto" there follow this file.
      for (const char* block : {"bf16", "fp16"}) {
        if (made.contains(block) && made[block].is_object() && made[block].value("enabled", Json("auto")) == "auto")
          made[block]["enabled"] = upper("mixed_precision", "NO") == std::string(block == std::string("bf16") ? "BF16" : "FP16");
      }
      for (const char* key :
           {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device", "offload_param_device"})
        if (values_.has(key))
          values_.refuse(key, "stands beside deepspeed_config_file, which Accelerate refuses, too; leave one of them out");
    } else {
      Json& zero = made["zero_optimization"];
      zero["stage"] = values_.whole("zero_stage", 2, 0, 3);
      for (const auto& [key, block] :
           {std::pair{"offload_optimizer_device", "offload_optimizer"}, std::pair{"offload_param_device", "offload_param"}}) {
        if (const std::string device = lower(values_.text(key, "none")); device != "none") zero[block]["device"] = device;
      }
      if (values_.has("gradient_accumulation_steps"))
        made["gradient_accumulation_steps"] = values_.find("gradient_accumulation_steps")->value;
      if (values_.has("gradient_clipping")) made["gradient_clipping"] = values_.find("gradient_clipping")->value;
      made["bf16"]["enabled"] = bf16;
      if (upper("mixed_precision", "NO") == "FP16") made["fp16"]["enabled"] = true;
      for (const char* key :
           {"zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device", "offload_param_device"})
        values_.note(key, "as the keys of DeepSpeed's that follow");
    }
    values_.note("mixed_precision", "as bf16.enabled of DeepSpeed's");
    deepspeed::apply(std::move(made), target_);
    add_ulysses();
  }

  /// DeepSpeed's sequence parallelism (ALST) beside ZeRO.
  void add_ulysses() {
    for (const char* name : {"parallelism_config_tp_size", "parallelism_config_cp_size", "parallelism_config_dp_shard_size"}) {
      if (values_.whole(name, 1, 1, most_ranks) > 1)
        values_.refuse(name, "is given beside distributed_type DEEPSPEED; of these sizes it has sp_size alone");
      values_.note(name, "one rank");
    }
    for (const char* name : {"parallelism_config_dp_replicate_size", "parallelism_config_cp_comm_strategy"})
      values_.note(name, "no effect: DeepSpeed's stage says what is divided");
    const auto size = static_cast<int>(values_.whole("parallelism_config_sp_size", 1, 1, most_ranks));
    if (size > 1) {
      std::vector<StrategyChoice> all = config_.strategies;
      all.insert(all.begin(), {"cp", size});
      target_.state_strategies("parallelism_config_sp_size " + as_text(size), all);
      target_.derive_plugin("parallelism_config_sp_size", "cp", "attention", "ulysses");
    }
    values_.note("parallelism_config_sp_size", "--strategy " + text_of(config_.strategies));
  }

  /// Blocks of another distributed_type stay without effect, as in Accelerate.
  void note_other_blocks() {
    const std::string why = "no effect: distributed_type is " + type_;
    if (type_ != "FSDP") {
      for (const char* name :
           {"fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_offload_params", "fsdp_activation_checkpointing"})
        values_.note(name, why);
    } else if (sharding_is_off()) {
      values_.note("fsdp_offload_params", "no effect: nothing is sharded");
    }
    if (type_ != "DEEPSPEED") {
      for (const char* name : {"deepspeed_config_file", "zero_stage", "gradient_accumulation_steps", "gradient_clipping",
                               "offload_optimizer_device", "offload_param_device"})
        values_.note(name, why);
    }
    if (type_ != "MEGATRON_LM") {
      for (const char* name :
           {"megatron_lm_tp_degree", "megatron_lm_pp_degree", "megatron_lm_num_micro_batches", "megatron_lm_gradient_clipping",
            "megatron_lm_recompute_activations", "megatron_lm_sequence_parallelism", "megatron_lm_use_distributed_optimizer"})
        values_.note(name, why);
    }
    if (config_.precision != "fp8") {
      for (const char* name : {"backend", "fp8_format", "amax_history_len", "amax_compute_algo"})
        values_.note(name, "no effect: --precision " + config_.precision);
    }
  }
  bool sharding_is_off() const {
    return std::none_of(config_.strategies.begin(), config_.strategies.end(),
                        [](const StrategyChoice& s) { return s.name == "zero3-offload"; });
  }

  readers::StoredValues values_;
  std::string type_;
  std::int64_t machines_ = 1;
};

}  // namespace

bool is_config(const Json& root) {
  return root.contains("distributed_type") || root.contains("compute_environment");
}

void apply(Json root, Target& target) {
  Reader(target).run(std::move(root));
}

}  // namespace consist::accelerate
