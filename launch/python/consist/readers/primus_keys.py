"""The treatment of keys that Primus has beside those of Megatron-LM and torchtitan (fd1eeab, August 2026)."""
from __future__ import annotations

from .adapters import GIVE_LORA
from .rules import KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, STATES_PROFILE, no_effect, off, only, own, table, under
from .torchtitan_keys import RULES as OF_TORCHTITAN

_KERNELS = "kernels are chosen by the device"

MEGATRON_RULES = table(
    own("tokenizer_model"),
    only('"gpt"', "model_type"), only('"rope"', "rope_type"),
    no_effect("a pre_trainer trains", "trainable"),
    no_effect("frequencies are stretched by use_rope_scaling alone", "original_max_position_embeddings"),
    no_effect("position_embedding_type says it", "add_position_embedding"),
    no_effect("attention is causal without a mask in memory", "create_attention_mask_in_dataloader"),
    off("enable_turbo_attention_float8 use_turbo_fp8_attention", "attention is in bf16"),
    off("patch_zero_bubble patch_primus_pipeline", "--pipeline.schedule says it"),
    off("patch_moe_overlap pp_warmup dump_pp_data recompute_layer_ids decoder_pipeline_manual_split_list enable_odc "
        "weight_deosc encoder_seq_length decoder_seq_length"),
    off("lora_adapter peft", GIVE_LORA),
    no_effect(_KERNELS, "enable_primus_turbo disable_primus_topk_router use_deprecated_20241209_moe_layer "
              "moe_use_fused_router_with_aux_score"),
    no_effect(KEEPS_LOG, "stderr_sink_level file_sink_level sink_level disable_wandb disable_tensorboard "
              "disable_mlflow"),
    no_effect(STATES_PROFILE, "disable_profiler_activity_cpu"),
    no_effect(SAYS_CHECKPOINTS, "auto_continue_train disable_last_saving"),
    no_effect("tokens of a batch have its micro-batches' order", "dataloader_mp_context"),
)
# Keys that begin alike.
FAMILIES = table(
    no_effect(_KERNELS, "use_turbo_ turbo_ enable_turbo_"),
    no_effect(KEEPS_LOG, "mlflow_ use_rocm_mem_info generate_tracelens"),
    no_effect(STATES_PROFILE, "torch_profiler_"),
    no_effect("perform_rl_step is off", "grpo_ langrl_ rl_"),
)
TORCHTITAN_RULES = table(
    {key: rule for key, rule in OF_TORCHTITAN.items() if key != "experimental.custom_args_module"},
    under("primus_turbo",
          only("false", "enable_attention_float8 use_moe_fp8_attention"),
          no_effect(_KERNELS, "enable_primus_turbo use_turbo_attention use_classic_attention use_turbo_async_tp "
                    "use_turbo_mx_linear use_turbo_float8_linear use_turbo_grouped_mm use_moe_fp8 "
                    "enable_embedding_autocast")),
    only('"primus.backends.torchtitan.primus_turbo_extensions.config_extension"|""', "experimental.custom_args_module"),
    no_effect(SAYS_DATA, "training.mock_data"),
    no_effect(KEEPS_LOG, "stderr_sink_level file_sink_level sink_level"),
    no_effect("a pre_trainer trains", "trainable"),
    no_effect("fault_tolerance.enable is off", "fault_tolerance.group_size fault_tolerance.min_replica_size "
              "fault_tolerance.process_group fault_tolerance.process_group_timeout_ms fault_tolerance.replica_id "
              "fault_tolerance.semi_sync_method"),
)
