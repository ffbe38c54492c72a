// The treatment of each key of an Accelerate YAML: those that `accelerate config` of versions 0.11 to 1.14 writes.
#pragma once

#include "launch/import/common/key_rules.h"

namespace consist::accelerate {

using readers::KeyKind;
using readers::KeyRule;

inline constexpr std::string_view starts_ranks =
    "consist launch, Slurm or torchrun start ranks on several machines (docs/jobs.md)";
inline constexpr std::string_view no_tpu = "it concerns TPUs";
inline constexpr std::string_view by_use = "parameters are gathered by use, in buckets (--zero3-offload.prefetch-bucket-size)";
inline constexpr std::string_view own_parts = "each rank reads and writes its own part of weights and checkpoints";
inline constexpr std::string_view of_cpu_launch = "it concerns processes on CPUs of several machines";
inline constexpr std::string_view no_nvme = "nothing is offloaded to NVMe";

inline constexpr KeyRule rules[] = {
    {"compute_environment", KeyKind::only, R"("LOCAL_MACHINE")"},
    {"debug", KeyKind::no_effect, "collectives are checked in any case"},
    {"distributed_type", KeyKind::own},
    {"mixed_precision", KeyKind::own},
    {"num_processes", KeyKind::own},
    {"num_machines", KeyKind::own},
    {"use_cpu", KeyKind::own},
    {"downcast_bf16", KeyKind::only, R"("no"|false)"},
    {"enable_cpu_affinity", KeyKind::no_effect, "the CPU device places its threads"},
    {"machine_rank", KeyKind::no_effect, starts_ranks},
    {"main_process_ip", KeyKind::no_effect, starts_ranks},
    {"main_process_port", KeyKind::no_effect, starts_ranks},
    {"rdzv_backend", KeyKind::no_effect, starts_ranks},
    {"same_network", KeyKind::no_effect, starts_ranks},
    {"deepspeed_hostfile", KeyKind::no_effect, starts_ranks},
    {"main_training_function", KeyKind::no_effect, "there is no program of yours"},
    {"fork_launched", KeyKind::no_effect, "there is no program of yours"},
    {"gpu_ids", KeyKind::no_effect, "the environment says which GPUs there are (CUDA_VISIBLE_DEVICES)"},
    {"command_file", KeyKind::no_effect, no_tpu},
    {"commands", KeyKind::no_effect, no_tpu},
    {"tpu_env", KeyKind::no_effect, no_tpu},
    {"tpu_name", KeyKind::no_effect, no_tpu},
    {"tpu_zone", KeyKind::no_effect, no_tpu},
    {"tpu_vm", KeyKind::no_effect, no_tpu},
    {"tpu_use_cluster", KeyKind::only, "false"},
    {"tpu_use_sudo", KeyKind::no_effect, no_tpu},
    {"tpu_cluster", KeyKind::only, "false"},
    {"dynamo_config", KeyKind::ignored_group, readers::compiles_always},
    {"dynamo_backend", KeyKind::no_effect, readers::compiles_always},
    {"ipex_config", KeyKind::ignored_group, "the CPU device has one implementation"},
    {"mpirun_config", KeyKind::ignored_group, of_cpu_launch},
    {"mpirun_hostfile", KeyKind::no_effect, of_cpu_launch},
    {"mpirun_ccl", KeyKind::no_effect, of_cpu_launch},
    // FSDP
    {"fsdp_config", KeyKind::group},
    {"fsdp_config.fsdp_version", KeyKind::only, R"(1|2|"1"|"2")"},
    {"fsdp_config.fsdp_sharding_strategy", KeyKind::own},
    {"fsdp_config.fsdp_reshard_after_forward", KeyKind::own},
    {"fsdp_config.fsdp_offload_params", KeyKind::own},
    {"fsdp_config.fsdp_cpu_offload", KeyKind::own},
    {"fsdp_config.fsdp_activation_checkpointing", KeyKind::own},
    {"fsdp_config.fsdp_auto_wrap_policy", KeyKind::no_effect, by_use},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", KeyKind::no_effect, by_use},
    {"fsdp_config.fsdp_min_num_params", KeyKind::no_effect, by_use},
    {"fsdp_config.fsdp_backward_prefetch", KeyKind::no_effect,
     "gathers run a bucket ahead (--zero3-offload.prefetch-bucket-size)"},
    {"fsdp_config.fsdp_backward_prefetch_policy", KeyKind::no_effect,
     "gathers run a bucket ahead (--zero3-offload.prefetch-bucket-size)"},
    {"fsdp_config.fsdp_forward_prefetch", KeyKind::no_effect,
     "gathers run a bucket ahead (--zero3-offload.prefetch-bucket-size)"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", KeyKind::no_effect, own_parts},
    {"fsdp_config.fsdp_sync_module_states", KeyKind::no_effect, own_parts},
    {"fsdp_config.fsdp_state_dict_type", KeyKind::no_effect, own_parts},
    {"fsdp_config.fsdp_use_orig_params", KeyKind::no_effect, "parameters keep their names"},
    {"fsdp_config.offload_params", KeyKind::own},
    {"fsdp_config.sharding_strategy", KeyKind::own},
    {"fsdp_config.min_num_params", KeyKind::no_effect, by_use},
    // Parallelism
    {"parallelism_config", KeyKind::group},
    {"parallelism_config.parallelism_config_dp_replicate_size", KeyKind::own},
    {"parallelism_config.parallelism_config_dp_shard_size", KeyKind::own},
    {"parallelism_config.parallelism_config_tp_size", KeyKind::own},
    {"parallelism_config.parallelism_config_cp_size", KeyKind::own},
    {"parallelism_config.parallelism_config_cp_comm_strategy", KeyKind::own},
    {"parallelism_config.parallelism_config_cp_backend", KeyKind::no_effect, "--cp.attention says how"},
    {"parallelism_config.parallelism_config_sp_size", KeyKind::own},
    {"parallelism_config.parallelism_config_sp_backend", KeyKind::no_effect, "--cp.attention says how"},
    {"parallelism_config.parallelism_config_sp_seq_length", KeyKind::no_effect, "--sequence says how long sequences are"},
    {"parallelism_config.parallelism_config_sp_seq_length_is_variable", KeyKind::no_effect, "sequences have one length"},
    {"parallelism_config.parallelism_config_sp_attn_implementation", KeyKind::no_effect,
     "attention has one implementation per device"},
    // DeepSpeed
    {"deepspeed_config", KeyKind::group},
    {"deepspeed_config.deepspeed_config_file", KeyKind::own},
    {"deepspeed_config.zero_stage", KeyKind::own},
    {"deepspeed_config.gradient_accumulation_steps", KeyKind::own},
    {"deepspeed_config.gradient_clipping", KeyKind::own},
    {"deepspeed_config.offload_optimizer_device", KeyKind::own},
    {"deepspeed_config.offload_param_device", KeyKind::own},
    {"deepspeed_config.offload_optimizer_nvme_path", KeyKind::no_effect, no_nvme},
    {"deepspeed_config.offload_param_nvme_path", KeyKind::no_effect, no_nvme},
    {"deepspeed_config.zero3_init_flag", KeyKind::no_effect, own_parts},
    {"deepspeed_config.zero3_save_16bit_model", KeyKind::no_effect, "--export writes whole weights, in --export-dtype"},
    {"deepspeed_config.deepspeed_multinode_launcher", KeyKind::no_effect, starts_ranks},
    {"deepspeed_config.deepspeed_hostfile", KeyKind::no_effect, starts_ranks},
    {"deepspeed_config.deepspeed_exclusion_filter", KeyKind::no_effect, starts_ranks},
    {"deepspeed_config.deepspeed_inclusion_filter", KeyKind::no_effect, starts_ranks},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", KeyKind::no_effect, "parameters are gathered by use, not by module"},
    // Megatron-LM
    {"megatron_lm_config", KeyKind::group},
    {"megatron_lm_config.megatron_lm_tp_degree", KeyKind::own},
    {"megatron_lm_config.megatron_lm_pp_degree", KeyKind::own},
    {"megatron_lm_config.megatron_lm_num_micro_batches", KeyKind::own},
    {"megatron_lm_config.megatron_lm_gradient_clipping", KeyKind::own},
    {"megatron_lm_config.megatron_lm_recompute_activations", KeyKind::own},
    {"megatron_lm_config.megatron_lm_sequence_parallelism", KeyKind::own},
    {"megatron_lm_config.megatron_lm_use_distributed_optimizer", KeyKind::own},
    // fp8
    {"fp8_config", KeyKind::group},
    {"fp8_config.backend", KeyKind::own},
    {"fp8_config.fp8_format", KeyKind::own},
    {"fp8_config.amax_history_len", KeyKind::own},
    {"fp8_config.amax_history_length", KeyKind::own},
    {"fp8_config.amax_compute_algo", KeyKind::own},
    {"fp8_config.amax_compute_algorithm", KeyKind::own},
    {"fp8_config.interval", KeyKind::only, "1"},
    {"fp8_config.margin", KeyKind::only, "0"},
    {"fp8_config.override_linear_precision", KeyKind::only,
     R"j([false,false,false]|"(false, false, false)"|"(False, False, False)")j"},
    {"fp8_config.use_autocast_during_eval", KeyKind::no_effect, "evaluations run in the precision of training"},
    {"fp8_config.use_during_eval", KeyKind::no_effect, "evaluations run in the precision of training"},
};

}  // namespace consist::accelerate
