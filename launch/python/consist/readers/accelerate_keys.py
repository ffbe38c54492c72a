"""The treatment of each key of an Accelerate YAML: those that `accelerate config` of versions 0.11 to 1.14 writes."""
from __future__ import annotations

from .rules import COMPILES_ALWAYS, no_effect, only, own, table, under

STARTS_RANKS = "consist launch, Slurm or torchrun start ranks on several machines (docs/jobs.md)"
_NO_TPU = "it concerns TPUs"
_NO_PROGRAM = "there is no program of yours"
_OF_CPU_LAUNCH = "it concerns processes on CPUs of several machines"
BY_USE = "parameters are gathered by use, in buckets (--zero3-offload.prefetch-bucket-size)"
AHEAD = "gathers run a bucket ahead (--zero3-offload.prefetch-bucket-size)"
OWN_PARTS = "each rank reads and writes its own part of weights and checkpoints"
_SAYS_HOW = "--cp.attention says how"
_NO_NVME = "nothing is offloaded to NVMe"
_LIKE_TRAINING = "evaluations run in the precision of training"

RULES = table(
    only('"LOCAL_MACHINE"', "compute_environment"),
    own("distributed_type mixed_precision num_processes num_machines use_cpu"),
    only('"no"|false', "downcast_bf16"),
    no_effect("collectives are checked in any case", "debug"),
    no_effect("the CPU device places its threads", "enable_cpu_affinity"),
    no_effect(STARTS_RANKS,
              "machine_rank main_process_ip main_process_port rdzv_backend same_network deepspeed_hostfile"),
    no_effect(_NO_PROGRAM, "main_training_function fork_launched"),
    no_effect("the environment says which GPUs there are (CUDA_VISIBLE_DEVICES)", "gpu_ids"),
    no_effect(_NO_TPU, "command_file commands tpu_env tpu_name tpu_zone tpu_vm tpu_use_sudo"),
    only("false", "tpu_use_cluster tpu_cluster"),
    no_effect(COMPILES_ALWAYS, "dynamo_config dynamo_backend"),
    no_effect("the CPU device has one implementation", "ipex_config"),
    no_effect(_OF_CPU_LAUNCH, "mpirun_config mpirun_hostfile mpirun_ccl"),
    under("fsdp_config",
          only('1|2|"1"|"2"', "fsdp_version"),
          own("fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_offload_params fsdp_cpu_offload "
              "fsdp_activation_checkpointing offload_params sharding_strategy"),
          no_effect(BY_USE,
                    "fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params min_num_params"),
          no_effect(AHEAD, "fsdp_backward_prefetch fsdp_backward_prefetch_policy fsdp_forward_prefetch"),
          no_effect(OWN_PARTS, "fsdp_cpu_ram_efficient_loading fsdp_sync_module_states fsdp_state_dict_type"),
          no_effect("parameters keep their names", "fsdp_use_orig_params")),
    under("parallelism_config",
          own("parallelism_config_dp_replicate_size parallelism_config_dp_shard_size parallelism_config_tp_size "
              "parallelism_config_cp_size parallelism_config_cp_comm_strategy parallelism_config_sp_size"),
          no_effect(_SAYS_HOW, "parallelism_config_cp_backend parallelism_config_sp_backend"),
          no_effect("--sequence says how long sequences are", "parallelism_config_sp_seq_length"),
          no_effect("sequences have one length", "parallelism_config_sp_seq_length_is_variable"),
          no_effect("attention has one implementation per device", "parallelism_config_sp_attn_implementation")),
    under("deepspeed_config",
          own("deepspeed_config_file zero_stage gradient_accumulation_steps gradient_clipping offload_optimizer_device "
              "offload_param_device"),
          no_effect(_NO_NVME, "offload_optimizer_nvme_path offload_param_nvme_path"),
          no_effect(OWN_PARTS, "zero3_init_flag"),
          no_effect("--export writes whole weights, in --export-dtype", "zero3_save_16bit_model"),
          no_effect(STARTS_RANKS, "deepspeed_multinode_launcher deepspeed_hostfile deepspeed_exclusion_filter "
                    "deepspeed_inclusion_filter"),
          no_effect("parameters are gathered by use, not by module", "deepspeed_moe_layer_cls_names")),
    under("megatron_lm_config",
          own("megatron_lm_tp_degree megatron_lm_pp_degree megatron_lm_num_micro_batches megatron_lm_gradient_clipping "
              "megatron_lm_recompute_activations megatron_lm_sequence_parallelism "
              "megatron_lm_use_distributed_optimizer")),
    under("fp8_config",
          own("backend fp8_format amax_history_len amax_history_length amax_compute_algo amax_compute_algorithm"),
          only("1", "interval"),
          only("0", "margin"),
          only('[false,false,false]|"(false, false, false)"|"(False, False, False)"', "override_linear_precision"),
          no_effect(_LIKE_TRAINING, "use_autocast_during_eval use_during_eval")),
)
