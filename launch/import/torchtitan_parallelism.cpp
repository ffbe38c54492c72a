#include "launch/import/torchtitan_parallelism.h"

#include "consist/text.h"
#include "core/base/lower.h"
#include "launch/import/common/fsdp.h"

namespace consist::torchtitan {
namespace {

using readers::as_text;
using readers::StoredValues;
using readers::Target;

constexpr std::int64_t most_ranks = 65'536;

class Parallelism {
 public:
  Parallelism(const StoredValues& values, bool old, Target& target) : values_(values), old_(old), target_(target) {}

  void read() {
    tensor_ = degree("tensor_parallel_degree");
    pipeline_ = degree("pipeline_parallel_degree");
    context_ = degree("context_parallel_degree");
    experts_ = degree("expert_parallel_degree");
    replicas_ = degree("data_parallel_replicate_degree");
    shards_ = values_.whole("data_parallel_shard_degree", -1, -1, most_ranks);
    if (shards_ == 0)
      values_.refuse("data_parallel_shard_degree", "is 0; it must be a number of ranks, or -1 for those that are left");
    if (experts_ > 1 && tensor_ > 1) read_experts_beside_tensor();
    if (experts_ > 1 && context_ > 1) fold_experts_over_context();
    state_strategies();
    state_ranks();
    read_sharding();
    read_pipeline();
    read_context();
    read_batch();
  }

 private:
  std::int64_t degree(const char* name) const { return values_.whole(name, 1, 1, most_ranks); }

  /// Torchtitan's ranks of experts are those of context parallelism and some of those that divide parameters.
  void fold_experts_over_context() {
    if (experts_ % context_ != 0)
      values_.refuse("expert_parallel_degree", "is " + as_text(experts_) + ", which context_parallel_degree " +
                                                   as_text(context_) +
                                                   " does not divide: ranks of cp share experts all or not at all");
    experts_ /= context_;
    target_.derive_plugin("expert_parallel_degree", "cp", "experts", "divided");
  }

  /// Ranks of tp-sp share experts with those of ep. Torchtitan counts them among its ranks of experts unless it divides the
  /// matrices of each expert over them, which takes the same memory.
  void read_experts_beside_tensor() {
    const std::int64_t of_matrices = degree("expert_tensor_parallel_degree");
    if (of_matrices == tensor_) return;
    if (of_matrices != 1)
      values_.refuse("expert_tensor_parallel_degree",
                     "is " + as_text(of_matrices) + "; it may be 1 or as tensor_parallel_degree, " + as_text(tensor_));
    if (experts_ % tensor_ != 0)
      values_.refuse("expert_parallel_degree", "is " + as_text(experts_) + ", which tensor_parallel_degree " + as_text(tensor_) +
                                                   " does not divide: ranks of tp-sp share experts all or not at all");
    experts_ /= tensor_;
  }

  /// True if parameters are sharded over ranks: over those of context parallelism in any case.
  bool divides() const { return shards_ != 1 || context_ > 1; }

  void state_strategies() {
    std::vector<StrategyChoice> all;
    const auto add = [&](const char* name, std::int64_t size) { all.push_back({name, static_cast<int>(size)}); };
    if (tensor_ > 1) add("tp-sp", tensor_);
    if (context_ > 1) add("cp", context_);
    if (experts_ > 1) add("ep", experts_);
    if (divides()) {
      // Ranks of expert parallelism are some of those that divide the other parameters.
      if (shards_ > 0 && shards_ % experts_ != 0)
        values_.refuse("expert_parallel_degree",
                       "is " + as_text(experts_) + ", which does not divide data_parallel_shard_degree " + as_text(shards_));
      add("zero3-offload", shards_ > 0 ? shards_ / experts_ : 0);
      if (replicas_ > 1) add("ddp", replicas_);
    } else if (replicas_ > 1 || all.empty()) {
      if (experts_ > replicas_ || replicas_ % experts_ != 0)
        values_.refuse("expert_parallel_degree",
                       "is " + as_text(experts_) + ", but there are " + as_text(replicas_) + " data-parallel ranks");
      add("ddp", pipeline_ == 1 || replicas_ > 1 ? replicas_ / experts_ : 1);
    }
    if (pipeline_ > 1) add("pipeline", pipeline_);
    target_.state_strategies("parallelism", all);
    for (const char* name :
         {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree",
          "expert_tensor_parallel_degree", "data_parallel_replicate_degree", "data_parallel_shard_degree"})
      values_.note(name, "--strategy " + text_of(target_.config.strategies));
  }

  /// The degrees say how many ranks there are, unless one of them takes those that are left.
  void state_ranks() {
    if (shards_ < 0 || target_.context.given("ranks")) return;
    const std::int64_t ranks = tensor_ * pipeline_ * context_ * replicas_ * shards_;
    if (ranks > most_ranks)
      target_.refuse("parallelism", "has " + as_text(ranks) + " ranks; the most are " + as_text(most_ranks));
    target_.config.ranks = static_cast<int>(ranks);
    target_.stated.insert("ranks");
    target_.detail("parallelism: --ranks " + as_text(ranks) + ", the product of its degrees");
  }

  void read_sharding() {
    const bool offload = values_.truth("enable_cpu_offload", false);
    const std::string policy = values_.choice("fsdp_reshard_after_forward", "default", {"default", "always", "never"});
    if (!divides()) {
      if (offload) values_.refuse("enable_cpu_offload", "is true, which needs data_parallel_shard_degree");
      for (const char* name : {"enable_cpu_offload", "fsdp_reshard_after_forward"})
        values_.note(name, "no effect: nothing is sharded");
      return;
    }
    const bool whole = policy == "never" || (policy == "default" && pipeline_ > 1);
    values_.note("enable_cpu_offload", offload ? "--zero3-offload offload options" : "off");
    values_.note("fsdp_reshard_after_forward", "--zero3-offload.max-reuse-distance");
    readers::derive_fsdp({.offload = offload, .whole_until_backward = whole, .reduce_dtype = "fp32"}, target_);
  }

  void read_pipeline() {
    const std::string schedule = values_.text("pipeline_parallel_schedule", "1F1B");
    const char* const sizes[] = {"pipeline_parallel_schedule",
                                 "pipeline_parallel_layers_per_stage",
                                 "pipeline_parallel_microbatch_size",
                                 "pipeline_parallel_microbatches",
                                 "pipeline_parallel_first_stage_less_layers",
                                 "pipeline_parallel_last_stage_less_layers"};
    if (pipeline_ == 1) {
      for (const char* name : sizes) values_.note(name, "no effect: there is no pipeline");
      return;
    }
    const std::string name = lower(schedule);
    const bool interleaved = name == "interleaved1f1b";
    if (name != "1f1b" && name != "gpipe" && !interleaved)
      values_.refuse(
          "pipeline_parallel_schedule",
          "is " + in_quotes(schedule) + "; here it may be 1F1B, GPipe or Interleaved1F1B; --pipeline.schedule has more");
    values_.state_plugin("pipeline_parallel_schedule", "pipeline", "schedule", interleaved ? "interleaved" : name);
    const std::int64_t edges = values_.whole("pipeline_parallel_first_stage_less_layers", 1, 0, 1000) +
                               values_.whole("pipeline_parallel_last_stage_less_layers", 1, 0, 1000);
    for (const char* name : {"pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"})
      values_.note(name, "no effect but on how many stages there are: stages are cut by the costs of their ops (--pipeline.cut)");
    std::int64_t chunks = interleaved ? 2 : 1;
    if (values_.has("pipeline_parallel_layers_per_stage")) {
      const std::int64_t layers = values_.whole("pipeline_parallel_layers_per_stage", 1, 1, 100'000);
      const std::int64_t stages = (target_.context.sizes().layers + edges + layers - 1) / layers;
      chunks = stages / pipeline_;
      if (stages % pipeline_ != 0 || (chunks == 1) == interleaved)
        values_.refuse("pipeline_parallel_layers_per_stage", "makes " + as_text(stages) + " stages over " + as_text(pipeline_) +
                                                                 " ranks, which does not go with the schedule " + schedule);
      values_.note("pipeline_parallel_layers_per_stage", as_text(chunks) + " stages per rank");
    }
    if (interleaved) target_.derive_plugin("pipeline_parallel_schedule", "pipeline", "chunks", as_text(chunks));
  }

  void read_context() {
    const bool ring = target_.context.has_choice && target_.context.has_choice("cp.attention", "ring");
    std::vector<std::string> legal{"allgather"};
    if (ring) legal.push_back("alltoall");
    const std::string method = values_.choice("context_parallel_rotate_method", "allgather", legal);
    if (context_ > 1)
      values_.state_plugin("context_parallel_rotate_method", "cp", "attention", method == "alltoall" ? "ring" : "gather");
    else
      values_.note("context_parallel_rotate_method", "no effect: the sequence is not divided");
  }

  /// A pipeline's micro-batches are parts of the local batch.
  void read_batch() {
    RunConfig& config = target_.config;
    const std::int64_t local = values_.whole("local_batch_size", 8, 1, 1'000'000'000);
    std::int64_t micro = local;
    if (pipeline_ > 1 && old_) {
      const std::int64_t count = values_.whole("pipeline_parallel_microbatches", pipeline_, 1, 65'536);
      if (local % count != 0)
        values_.refuse("pipeline_parallel_microbatches",
                       "is " + as_text(count) + ", which does not divide the batch " + as_text(local));
      micro = local / count;
    } else if (pipeline_ > 1) {
      micro = values_.whole("pipeline_parallel_microbatch_size", 1, 1, local);
    }
    if (local % micro != 0)
      values_.refuse("pipeline_parallel_microbatch_size",
                     "is " + as_text(micro) + ", which does not divide the batch " + as_text(local));
    const std::int64_t global = values_.whole("global_batch_size", -1, -1, 1'000'000'000'000);
    const auto& given = target_.context.given;
    if (pipeline_ > 1) {
      for (const char* name : {"pipeline_parallel_microbatch_size", "pipeline_parallel_microbatches"})
        values_.note(name, "--batch " + as_text(micro));
    }
    values_.state("local_batch_size", "batch", config.batch, micro);
    if (given("global-batch") || given("accumulation")) {
      values_.note("global_batch_size", "--global-batch or --accumulation is given and goes before the file");
    } else if (global > 0) {
      values_.state("global_batch_size", "global-batch", config.global_batch, global);
    } else {
      values_.note("global_batch_size", "local_batch_size times the data-parallel ranks");
      config.accumulation = static_cast<int>(local / micro);
      target_.stated.insert("accumulation");
      target_.detail("local_batch_size " + as_text(local) + ": --accumulation " + as_text(config.accumulation));
    }
  }

  const StoredValues& values_;
  const bool old_;
  Target& target_;
  std::int64_t tensor_ = 1, pipeline_ = 1, context_ = 1, experts_ = 1, replicas_ = 1, shards_ = -1;
};

}  // namespace

void read_parallelism(const StoredValues& values, bool old, Target& target) {
  Parallelism(values, old, target).read();
}

}  // namespace consist::torchtitan
