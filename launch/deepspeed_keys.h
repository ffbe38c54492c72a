// What is done with each key of a DeepSpeed JSON. Keys are those of DeepSpeed's documentation and of its configuration
// classes for stages 0 to 3.
#pragma once

#include <string_view>

namespace consist {

enum class DeepspeedKey {
  own,            ///< read by name, by code of its own
  count,          ///< a number that becomes the strategy's option `argument`
  flag,           ///< a truth value that becomes the strategy's option `argument`
  no_effect,      ///< for the reason `argument`
  only,           ///< honoured if its value is (as JSON) one of `argument`, separated by '|'; another is refused
  group,          ///< an object whose keys are listed themselves
  off,            ///< an object or flag that must not be enabled
  ignored_group,  ///< an object without effect, for the reason `argument`
};

struct DeepspeedRule {
  std::string_view path;  ///< "zero_optimization.stage"
  DeepspeedKey key;
  std::string_view argument = {};
  int least_stage = 0;  ///< of zero_optimization; the key has no effect below, and none above most_stage
  int most_stage = 3;
};

inline constexpr std::string_view keeps_log = "the archive (--archive) and the progress line hold it";
inline constexpr std::string_view no_nvme = "nothing is offloaded to NVMe";
inline constexpr std::string_view whole_exports =
    "each rank writes its own part of a checkpoint, nothing is gathered; --export writes whole weights, in f32";
inline constexpr std::string_view no_fp16 = "fp16 is off";

inline constexpr DeepspeedRule deepspeed_rules[] = {
    // Batch
    {"train_batch_size", DeepspeedKey::own},
    {"train_micro_batch_size_per_gpu", DeepspeedKey::own},
    {"gradient_accumulation_steps", DeepspeedKey::own},
    {"dataloader_drop_last", DeepspeedKey::no_effect, "every step reads whole batches of an endless stream"},
    // Optimizer and learning rate
    {"gradient_clipping", DeepspeedKey::own},
    {"optimizer", DeepspeedKey::group},
    {"optimizer.type", DeepspeedKey::own},
    {"optimizer.legacy_fusion", DeepspeedKey::no_effect, "it concerns fp16"},
    {"optimizer.params", DeepspeedKey::group},
    {"optimizer.params.lr", DeepspeedKey::own},
    {"optimizer.params.betas", DeepspeedKey::own},
    {"optimizer.params.eps", DeepspeedKey::own},
    {"optimizer.params.weight_decay", DeepspeedKey::own},
    {"optimizer.params.torch_adam", DeepspeedKey::no_effect, "AdamW has one implementation per device"},
    {"optimizer.params.fused", DeepspeedKey::no_effect, "AdamW is fused"},
    {"optimizer.params.foreach", DeepspeedKey::no_effect, "AdamW is fused"},
    {"optimizer.params.adam_w_mode", DeepspeedKey::only, "true"},
    {"optimizer.params.bias_correction", DeepspeedKey::only, "true"},
    {"optimizer.params.amsgrad", DeepspeedKey::only, "false"},
    {"optimizer.params.set_grad_none", DeepspeedKey::no_effect, "gradients live within a step"},
    {"optimizer.params.fp32_optimizer_states", DeepspeedKey::no_effect, "the precision states the dtype of moments"},
    {"scheduler", DeepspeedKey::group},
    {"scheduler.type", DeepspeedKey::own},
    {"scheduler.params", DeepspeedKey::group},
    {"scheduler.params.warmup_min_lr", DeepspeedKey::only, "0|0.0|\"auto\""},
    {"scheduler.params.warmup_max_lr", DeepspeedKey::own},
    {"scheduler.params.warmup_num_steps", DeepspeedKey::own},
    {"scheduler.params.warmup_type", DeepspeedKey::own},
    {"scheduler.params.warmup_min_ratio", DeepspeedKey::only, "0|0.0"},
    {"scheduler.params.cos_min_ratio", DeepspeedKey::own},
    {"scheduler.params.total_num_steps", DeepspeedKey::own},
    {"scheduler.params.last_batch_iteration", DeepspeedKey::only, "-1"},
    // Precision
    {"bf16", DeepspeedKey::group},
    {"bf16.enabled", DeepspeedKey::own},
    {"bf16.immediate_grad_update", DeepspeedKey::no_effect, "gradients are added up as they are made"},
    {"bf16.check_grad_overflow", DeepspeedKey::no_effect, "bf16 has the range of fp32"},
    {"bfloat16", DeepspeedKey::group},
    {"bfloat16.enabled", DeepspeedKey::own},
    {"fp16", DeepspeedKey::group},
    {"fp16.enabled", DeepspeedKey::only, "false|\"auto\""},
    {"fp16.auto_cast", DeepspeedKey::no_effect, no_fp16},
    {"fp16.loss_scale", DeepspeedKey::no_effect, no_fp16},
    {"fp16.initial_scale_power", DeepspeedKey::no_effect, no_fp16},
    {"fp16.loss_scale_window", DeepspeedKey::no_effect, no_fp16},
    {"fp16.hysteresis", DeepspeedKey::no_effect, no_fp16},
    {"fp16.consecutive_hysteresis", DeepspeedKey::no_effect, no_fp16},
    {"fp16.min_loss_scale", DeepspeedKey::no_effect, no_fp16},
    {"fp16.fp16_master_weights_and_grads", DeepspeedKey::only, "false"},
    {"amp", DeepspeedKey::off},
    {"torch_autocast", DeepspeedKey::off},
    {"data_types", DeepspeedKey::group},
    {"data_types.grad_accum_dtype", DeepspeedKey::only, "null|\"fp32\"|\"auto\""},
    {"communication_data_type", DeepspeedKey::own},
    {"seq_parallel_communication_data_type", DeepspeedKey::no_effect, "it concerns sequence parallelism"},
    {"fp32_allreduce", DeepspeedKey::no_effect, "gradients are summed in the precision's gradient dtype"},
    {"prescale_gradients", DeepspeedKey::no_effect, "the loss is scaled before backward, gradients are sums"},
    {"gradient_predivide_factor", DeepspeedKey::no_effect, "the loss is scaled before backward, gradients are sums"},
    {"sparse_gradients", DeepspeedKey::only, "false"},
    // ZeRO
    {"zero_optimization", DeepspeedKey::group},
    {"zero_optimization.stage", DeepspeedKey::own},
    {"zero_optimization.overlap_comm", DeepspeedKey::flag, "overlap_comm", 1},
    {"zero_optimization.contiguous_gradients", DeepspeedKey::flag, "contiguous_gradients", 1},
    {"zero_optimization.reduce_bucket_size", DeepspeedKey::count, "reduce_bucket_size", 1},
    {"zero_optimization.allgather_bucket_size", DeepspeedKey::count, "allgather_bucket_size", 1, 2},
    {"zero_optimization.allgather_partitions", DeepspeedKey::only, "true", 1, 2},
    {"zero_optimization.reduce_scatter", DeepspeedKey::only, "true", 1},
    {"zero_optimization.use_multi_rank_bucket_allreduce", DeepspeedKey::no_effect, "gradients are reduced by reduce_scatter"},
    {"zero_optimization.round_robin_gradients", DeepspeedKey::no_effect, "every rank has a part of every gradient"},
    {"zero_optimization.ignore_unused_parameters", DeepspeedKey::no_effect, "the model has no parameter that is not used"},
    {"zero_optimization.elastic_checkpoint", DeepspeedKey::no_effect, "checkpoints are read under any layout"},
    {"zero_optimization.load_from_fp32_weights", DeepspeedKey::no_effect, "masters are loaded and saved in fp32"},
    {"zero_optimization.pipeline_loading_checkpoint", DeepspeedKey::no_effect, "checkpoints are read in pieces"},
    {"zero_optimization.legacy_stage1", DeepspeedKey::only, "false"},
    {"zero_optimization.override_module_apply", DeepspeedKey::no_effect, "there are no modules"},
    {"zero_optimization.memory_efficient_linear", DeepspeedKey::no_effect, "linears keep no copies of weights"},
    {"zero_optimization.log_trace_cache_warnings", DeepspeedKey::no_effect, "the order of use is known before the run"},
    {"zero_optimization.sub_group_size", DeepspeedKey::count, "sub_group_size", 1},
    {"zero_optimization.stage3_max_live_parameters", DeepspeedKey::count, "max_live_parameters", 3},
    {"zero_optimization.max_live_parameters", DeepspeedKey::count, "max_live_parameters", 3},
    {"zero_optimization.stage3_max_reuse_distance", DeepspeedKey::count, "max_reuse_distance", 3},
    {"zero_optimization.max_reuse_distance", DeepspeedKey::count, "max_reuse_distance", 3},
    {"zero_optimization.stage3_prefetch_bucket_size", DeepspeedKey::count, "prefetch_bucket_size", 3},
    {"zero_optimization.prefetch_bucket_size", DeepspeedKey::count, "prefetch_bucket_size", 3},
    {"zero_optimization.stage3_param_persistence_threshold", DeepspeedKey::count, "param_persistence_threshold", 3},
    {"zero_optimization.param_persistence_threshold", DeepspeedKey::count, "param_persistence_threshold", 3},
    {"zero_optimization.stage3_model_persistence_threshold", DeepspeedKey::no_effect,
     "param_persistence_threshold alone decides"},
    {"zero_optimization.model_persistence_threshold", DeepspeedKey::no_effect, "param_persistence_threshold alone decides"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", DeepspeedKey::no_effect, whole_exports},
    {"zero_optimization.gather_16bit_weights_on_model_save", DeepspeedKey::no_effect, whole_exports},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", DeepspeedKey::no_effect, whole_exports},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", DeepspeedKey::only, "false", 3},
    {"zero_optimization.use_all_reduce_for_fetch_params", DeepspeedKey::only, "false", 3},
    {"zero_optimization.stage3_module_granularity_threshold", DeepspeedKey::no_effect,
     "parameters are gathered by use, not by module"},
    {"zero_optimization.module_granularity_threshold", DeepspeedKey::no_effect, "parameters are gathered by use, not by module"},
    {"zero_optimization.offload_optimizer", DeepspeedKey::group},
    {"zero_optimization.offload_optimizer.device", DeepspeedKey::own},
    {"zero_optimization.offload_optimizer.ratio", DeepspeedKey::count, "offload_optimizer.ratio", 1},
    {"zero_optimization.offload_optimizer.pin_memory", DeepspeedKey::no_effect, "offloaded memory is always pinned"},
    {"zero_optimization.offload_optimizer.nvme_path", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_optimizer.buffer_count", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_optimizer.buffer_size", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_optimizer.pipeline_read", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_optimizer.pipeline_write", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_optimizer.fast_init", DeepspeedKey::no_effect, "states are made where they lie"},
    {"zero_optimization.offload_param", DeepspeedKey::group},
    {"zero_optimization.offload_param.device", DeepspeedKey::own},
    {"zero_optimization.offload_param.pin_memory", DeepspeedKey::no_effect, "offloaded memory is always pinned"},
    {"zero_optimization.offload_param.nvme_path", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_param.buffer_count", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_param.buffer_size", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.offload_param.max_in_cpu", DeepspeedKey::no_effect, no_nvme},
    {"zero_optimization.cpu_offload", DeepspeedKey::only, "false|null"},
    {"zero_optimization.cpu_offload_params", DeepspeedKey::only, "false|null"},
    {"zero_optimization.cpu_offload_param", DeepspeedKey::only, "false|null"},
    {"zero_optimization.cpu_offload_use_pin_memory", DeepspeedKey::no_effect, "offloaded memory is always pinned"},
    {"zero_optimization.zero_hpz_partition_size", DeepspeedKey::only, "1"},
    {"zero_optimization.zero_quantized_weights", DeepspeedKey::only, "false"},
    {"zero_optimization.zero_quantized_nontrainable_weights", DeepspeedKey::only, "false"},
    {"zero_optimization.zero_quantized_gradients", DeepspeedKey::only, "false"},
    {"zero_optimization.zeropp_loco_param", DeepspeedKey::only, "null"},
    {"zero_optimization.mics_shard_size", DeepspeedKey::only, "-1"},
    {"zero_optimization.mics_hierarchical_params_gather", DeepspeedKey::only, "false"},
    {"zero_allow_untested_optimizer", DeepspeedKey::no_effect, "AdamW is the optimizer"},
    {"zero_force_ds_cpu_optimizer", DeepspeedKey::no_effect,
     "the option offload_optimizer.update says where offloaded states are updated"},
    // Activations
    {"activation_checkpointing", DeepspeedKey::group},
    {"activation_checkpointing.partition_activations", DeepspeedKey::only, "false"},
    {"activation_checkpointing.cpu_checkpointing", DeepspeedKey::only, "false"},
    {"activation_checkpointing.contiguous_memory_optimization", DeepspeedKey::no_effect, "memory is planned"},
    {"activation_checkpointing.number_checkpoints", DeepspeedKey::no_effect, "--recompute chooses what is made again"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", DeepspeedKey::no_effect, "queues wait for data only"},
    {"activation_checkpointing.profile", DeepspeedKey::no_effect, "--profile times every instruction"},
    // Reports
    {"steps_per_print", DeepspeedKey::no_effect, keeps_log},
    {"wall_clock_breakdown", DeepspeedKey::no_effect, "--profile times every instruction"},
    {"dump_state", DeepspeedKey::no_effect, keeps_log},
    {"memory_breakdown", DeepspeedKey::no_effect, "consist explain --summary states it"},
    {"flops_profiler", DeepspeedKey::ignored_group, "consist explain --summary and the archive state FLOPs"},
    {"tensorboard", DeepspeedKey::ignored_group, keeps_log},
    {"wandb", DeepspeedKey::ignored_group, keeps_log},
    {"csv_monitor", DeepspeedKey::ignored_group, keeps_log},
    {"comet", DeepspeedKey::ignored_group, keeps_log},
    {"monitor_config", DeepspeedKey::ignored_group, keeps_log},
    {"comms_logger", DeepspeedKey::ignored_group, "consist explain --summary and the archive state what is sent"},
    {"nebula", DeepspeedKey::off},
    {"checkpoint", DeepspeedKey::ignored_group, "--checkpoint says where checkpoints go; any layout reads them"},
    {"load_universal_checkpoint", DeepspeedKey::no_effect, "checkpoints are read under any layout"},
    {"use_node_local_storage", DeepspeedKey::only, "false"},
    {"aio", DeepspeedKey::ignored_group, no_nvme},
    // What is not here
    {"disable_allgather", DeepspeedKey::only, "false"},
    {"sparse_attention", DeepspeedKey::off},
    {"compression_training", DeepspeedKey::off},
    {"curriculum_learning", DeepspeedKey::off},
    {"data_efficiency", DeepspeedKey::off},
    {"elasticity", DeepspeedKey::off},
    {"autotuning", DeepspeedKey::off},
    {"hybrid_engine", DeepspeedKey::off},
    {"progressive_layer_drop", DeepspeedKey::off},
    {"eigenvalue", DeepspeedKey::off},
    {"quantize_training", DeepspeedKey::off},
    {"weight_quantization", DeepspeedKey::off},
    {"tensor_parallel", DeepspeedKey::off},
    {"pipeline", DeepspeedKey::off},
    {"compile", DeepspeedKey::ignored_group, "every step is compiled to a program"},
    {"graph_harvesting", DeepspeedKey::no_effect, "steps are CUDA graphs on GPUs"},
};

}  // namespace consist
