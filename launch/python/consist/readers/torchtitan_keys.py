"""The treatment of each key of a torchtitan TOML.

Keys are those of torchtitan/config/job_config.py at 238fa99 (the last with TOML files), and of
torchtitan/config_manager.py at 6a6f755 (the layout before [parallelism]).
"""
from __future__ import annotations

from .rules import (COMPILES_ALWAYS, EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, no_effect, only, own, table,
                    under)

_EVEN_STAGES = "stages are cut by the costs of their ops (--pipeline.cut)"
_SAYS_SUMMARY = "consist explain --summary states it"
_NO_GARBAGE = "no garbage is collected"
_OF_KERNELS = "it chooses among PyTorch's kernels"
_ONE_ADAMW = "AdamW has one implementation per device"
_ASYNC_TP = "--tp-sp options say what runs beside computation"
_ONE_GATHER = "the scales of all weights are sent in one gather"
_NOT_NAMED = "model.converters does not name it"
_BUDGET = "it concerns the mode memory_budget"

RULES = table(
    no_effect("--archive, --export and --checkpoint say where results go", "job"),
    no_effect("--profile and --trace say what is timed", "profiling"),
    no_effect(KEEPS_LOG, "metrics"),
    no_effect("--timeout is the longest wait for another rank", "comm"),
    no_effect(_SAYS_SUMMARY, "memory_estimation"),
    no_effect(EVALUATES, "validation"),
    no_effect(COMPILES_ALWAYS, "compile"),
    under("model",
          own("name flavor converters"),
          only('"rmsnorm"|"fused_rmsnorm"', "norm_type"),
          no_effect("--model FOLDER loads weights, --dataset tokens has the tokenizer", "hf_assets_path"),
          no_effect(SAYS_DATA, "tokenizer_path"),
          no_effect("consist explain shows the program", "print_after_conversion")),
    under("optimizer",
          own("name lr beta1 beta2 eps weight_decay"),
          no_effect(_ONE_ADAMW, "implementation fused"),
          only("false", "early_step_in_backward")),
    under("lr_scheduler", own("warmup_steps total_steps decay_ratio decay_type min_lr_factor lr_min")),
    under("training",
          own("local_batch_size batch_size global_batch_size seq_len max_norm steps warmup_steps enable_cpu_offload "
              "dtype mixed_precision_param mixed_precision_reduce seed data_parallel_replicate_degree "
              "data_parallel_shard_degree tensor_parallel_degree"),
          no_effect(SAYS_DATA, "dataset dataset_path"),
          no_effect("a thread of each rank reads ahead", "dataloader"),
          no_effect(_NO_GARBAGE, "gc_freq gc_debug"),
          no_effect(_OF_KERNELS, "deterministic"),
          no_effect(COMPILES_ALWAYS, "compile"),
          only("true", "enable_loss_parallel")),
    under("debug",
          own("seed moe_force_load_balance"),
          no_effect(_OF_KERNELS, "deterministic deterministic_warn_only")),
    under("parallelism",
          own("data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward "
              "tensor_parallel_degree pipeline_parallel_degree pipeline_parallel_schedule "
              "pipeline_parallel_microbatch_size pipeline_parallel_layers_per_stage "
              "pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers "
              "context_parallel_degree context_parallel_rotate_method expert_parallel_degree "
              "expert_tensor_parallel_degree"),
          only("false", "disable_loss_parallel"),
          no_effect(_ASYNC_TP, "enable_async_tensor_parallel"),
          only('""', "pipeline_parallel_schedule_csv"),
          no_effect(_EVEN_STAGES, "pipeline_parallel_split_points module_fqns_per_model_part"),
          no_effect("it concerns the schedule DualPipeV", "pipeline_parallel_expert_parallel_overlap"),
          only('"headtail"', "context_parallel_load_balancer"),
          no_effect("--ep options say how tokens are sent", "expert_parallel_comm_backend")),
    under("experimental",
          own("context_parallel_degree context_parallel_rotate_method pipeline_parallel_degree "
              "pipeline_parallel_schedule pipeline_parallel_microbatches"),
          only('""', "pipeline_parallel_schedule_csv custom_import custom_args_module custom_model_path"),
          no_effect(_EVEN_STAGES, "pipeline_parallel_split_points"),
          no_effect(_ASYNC_TP, "enable_async_tensor_parallel"),
          no_effect(COMPILES_ALWAYS, "enable_compiled_autograd")),
    under("fault_tolerance", only("false", "enable")),
    under("activation_checkpoint",
          own("mode selective_ac_option"),
          no_effect("which products are made again is said by --recompute",
                    "per_op_sac_force_recompute_mm_shapes_by_fqns"),
          no_effect("what backward reads alone is made again", "early_stop"),
          no_effect(_BUDGET, "memory_budget visualize_memory_budget_pareto"),
          no_effect("layers draw no random numbers", "preserve_rng_state"),
          no_effect("the same kernels run on the same values", "determinism_check"),
          no_effect(_SAYS_SUMMARY, "debug")),
    under("float8",
          own("enable_float8_linear enable_fsdp_float8_all_gather recipe_name filter_fqns scaling_type_input "
              "scaling_type_weight scaling_type_grad_output"),
          no_effect(_ONE_GATHER, "precompute_float8_dynamic_scale_for_fsdp"),
          no_effect("--fp8.gathers says what is kept from forward to backward", "force_recompute_fp8_weight_in_bwd"),
          no_effect("the CPU computes what the GPU computes", "emulate")),
    under("quantize",
          no_effect(_NOT_NAMED, "grouped_mm"),
          under("linear",
                no_effect(_NOT_NAMED, "mx"),
                under("float8",
                      own("enable_fsdp_float8_all_gather recipe_name filter_fqns"),
                      no_effect(_ONE_GATHER, "precompute_float8_dynamic_scale_for_fsdp"),
                      no_effect("the CPU computes what the GPU computes", "emulate")))),
    under("checkpoint",
          own("export_dtype"),
          no_effect(SAYS_CHECKPOINTS,
                    "enable enable_checkpoint enable_ft_dataloader_checkpoints folder async_mode load_only"),
          no_effect("--checkpoint-every says when", "interval enable_first_step_checkpoint"),
          no_effect("--checkpoint-every says when, in steps", "interval_type"),
          only('""', "initial_load_path"),
          only("false", "initial_load_in_hf initial_load_in_hf_quantized create_seed_checkpoint"),
          no_effect("--model FOLDER loads weights alone", "initial_load_model_only"),
          no_effect("--export writes weights alone", "last_save_model_only model_weights_only"),
          no_effect("--export writes weights in Hugging Face's format", "last_save_in_hf"),
          no_effect("--checkpoint-keep says how many", "keep_latest_k"),
          no_effect("--resume continues from the newest", "load_step"),
          no_effect("--resume continues from the newest, whole", "exclude_from_loading")),
)
