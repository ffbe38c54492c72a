"""Reads Axolotl's YAML (src/axolotl/utils/schemas at 067b021, July 2026): training of a decoder or its adapter."""
from __future__ import annotations

from typing import Any, Dict

from .adapters import NO_INT8, PACKED, AdapterDefaults
from .preferences import NO_RL, ONE_LOSS
from .rules import (COMPILES_ALWAYS, EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, no_effect, off, only, own,
                    table, under)
from .target import Target
from .trainer import Defaults, TrainerReader, fsdp_rules

_KERNELS = "kernels are chosen by the device"
_NAMES = {"base_model": "model_name_or_path", "micro_batch_size": "per_device_train_batch_size", "sequence_len":
          "sequence",
          "num_epochs": "num_train_epochs", "optimizer": "optim", "lr_scheduler": "lr_scheduler_type",
          "cosine_min_lr_ratio": "min_lr_ratio", "sequence_parallel_degree": "context_parallel_size",
          "peft_use_dora": "use_dora", "peft_use_rslora": "use_rslora", "peft_layers_to_transform":
          "layers_to_transform", "peft_layers_pattern": "layers_pattern", "peft_layer_replication": "layer_replication",
          "peft_trainable_token_indices": "trainable_token_indices", "peft_init_lora_weights": "init_lora_weights",
          "peft": "loftq", "rl_beta": "beta", "dpo_label_smoothing": "label_smoothing", "dpo_loss_type": "loss_type",
          "bnb_4bit_use_double_quant": "use_bnb_nested_quant"}

RULES = table(
    own("base_model sequence_len micro_batch_size gradient_accumulation_steps num_epochs max_steps optimizer "
        "lr_scheduler lr_scheduler_kwargs learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm "
        "cosine_min_lr_ratio warmup_steps warmup_ratio seed bf16 fp16 fp8 gradient_checkpointing "
        "activation_offloading reinit_weights deepspeed fsdp dp_shard_size dp_replicate_size tensor_parallel_size "
        "context_parallel_size sequence_parallel_degree"),
    fsdp_rules(),
    only('1|2|"1"|"2"', "fsdp_version"),
    only("false", "bfloat16 float16"),
    only("1", "expert_parallel_size"),
    own("adapter lora_model_dir lora_r lora_alpha lora_dropout lora_target_linear lora_target_modules "
        "lora_target_parameters lora_modules_to_save lora_rank_pattern lora_alpha_pattern peft_use_dora "
        "peft_use_rslora peft_layers_to_transform peft_layers_pattern peft_layer_replication "
        "peft_trainable_token_indices peft_init_lora_weights loraplus_lr_ratio peft load_in_4bit"),
    under("bnb_config_kwargs",
          own("bnb_4bit_quant_type bnb_4bit_use_double_quant"),
          no_effect(PACKED, "bnb_4bit_quant_storage"),
          no_effect("there are no products of integers", "llm_int8_threshold llm_int8_has_fp16_weight"),
          only('"bfloat16"', "bnb_4bit_compute_dtype")),
    off("load_in_8bit", NO_INT8),
    off("relora", "an adapter is not merged while it is trained"),
    off("gptq", "--frozen-weights says the formats that there are"),
    only("true", "peft_autocast_adapter_dtype"),
    no_effect(_KERNELS, "lora_mlp_kernel lora_qkv_kernel lora_o_kernel "
              "lora_embedding_kernel"),
    no_effect("each rank loads what it holds", "lora_on_cpu qlora_sharded_model_loading"),
    no_effect("it concerns relora", "relora_prune_ratio relora_prune_method relora_cpu_offload"),
    no_effect("embeddings and the LM head get no adapters", "loraplus_lr_embedding peft_ensure_weight_tying"),
    no_effect("weights of linears lie as PyTorch's do", "lora_fan_in_fan_out"),
    own("rl rl_beta dpo_label_smoothing dpo_loss_type precompute_ref_log_probs"),
    off("dpo_use_weighting dpo_loss_weights rpo_alpha", ONE_LOSS),
    no_effect("each pair has a sequence of its own", "dpo_padding_free"),
    no_effect(_KERNELS, "dpo_use_liger_kernel"),
    off("reward_model process_reward_model trl vllm ebft", NO_RL),
    off("qat quantization quantize_moe_experts", "weights are not trained for a smaller dtype"),
    off("unfrozen_parameters", "give --train-only with names of the weights here, and leave this out"),
    off("lr_groups embedding_lr embedding_lr_scale", "all parameters have one learning rate"),
    off("optim_args optim_target_modules lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor "
        "jagged_restart_steps neftune_noise_alpha use_pose curriculum_sampling auto_find_batch_size "
        "torchdistx_path is_multimodal processor_type use_eaft scaling_softmax selective_checkpointing "
        "layer_offloading freeze_mm_modules use_onebitllms model_quantization_config "
        "fp8_enable_fsdp_float8_all_gather"),
    off("trainer_cls shrink_embeddings resize_token_embeddings_to_32x"),
    no_effect("the folder of --model says it", "model_type base_model_config model_config overrides_of_model_config "
              "is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model "
              "trust_remote_code experimental_skip_move_to_device low_cpu_mem_usage mean_resizing_embeddings "
              "embeddings_skip_upcast"),
    no_effect("--dataset tokens has the tokenizer", "tokenizer_config tokenizer_type tokenizer_use_fast "
              "tokenizer_legacy tokenizer_use_mistral_common special_tokens tokens added_tokens_overrides "
              "chat_template chat_template_jinja chat_template_kwargs default_system_message eot_tokens "
              "fix_untrained_tokens"),
    no_effect(SAYS_DATA, "datasets test_datasets pretraining_dataset dataset_prepared_path dataset_processes "
              "dataset_num_proc dataset_shard_num dataset_shard_idx dataset_exact_deduplication dataset_keep_in_memory "
              "shuffle_merged_datasets shuffle_before_merging_datasets skip_prepare_dataset push_dataset_to_hub "
              "hf_use_auth_token dataloader_pin_memory dataloader_num_workers dataloader_prefetch_factor "
              "dataloader_drop_last remove_unused_columns train_on_inputs sample_packing sample_packing_group_size "
              "sample_packing_bin_size sample_packing_sequentially sample_packing_eff_est eval_sample_packing "
              "pad_to_sequence_len pad_to_multiple_of excess_length_strategy min_sample_len multipack_real_batches "
              "pretrain_multipack_buffer_size pretrain_multipack_attn pretraining_sample_concatenation streaming "
              "streaming_multipack_buffer_size group_by_length batch_flattening total_num_tokens preprocess_iterable"),
    no_effect(EVALUATES, "val_set_size eval_batch_size eval_steps evals_per_epoch eval_strategy eval_table_size "
              "eval_max_new_tokens eval_causal_lm_metrics do_causal_lm_eval eval_sequence_len do_bench_eval "
              "bench_dataset early_stopping_patience load_best_model_at_end metric_for_best_model greater_is_better "
              "generate_samples"),
    no_effect(KEEPS_LOG, "logging_steps use_tensorboard wandb_project wandb_entity wandb_watch wandb_name wandb_run_id "
              "wandb_log_model wandb_mode mlflow_tracking_uri mlflow_experiment_name mlflow_run_name use_wandb "
              "use_mlflow use_comet debug include_tokens_per_second include_tkps profiler_steps profiler_steps_start "
              "strict"),
    no_effect(SAYS_CHECKPOINTS, "output_dir save_steps saves_per_epoch save_strategy save_total_limit save_first_step "
              "save_only_model save_safetensors resume_from_checkpoint auto_resume_from_checkpoints hub_model_id "
              "hub_strategy hub_revision"),
    no_effect(_KERNELS, "tf32 flash_attention flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp "
              "flash_attn_fuse_qkv xformers_attention sdp_attention flex_attention sage_attention eager_attention "
              "s2_attention attn_implementation liger_rope liger_rms_norm liger_glu_activation liger_swiglu "
              "liger_layer_norm liger_cross_entropy liger_fused_linear_cross_entropy chunked_cross_entropy "
              "cut_cross_entropy tiled_mlp chunked_cross_entropy_num_chunks experts_implementation use_kernels "
              "flex_attn_compile_kwargs fused_attn_kernel unsloth_cross_entropy_loss"),
    no_effect(COMPILES_ALWAYS, "torch_compile torch_compile_backend torch_compile_mode deepcompile"),
    no_effect("plugins of Axolotl are not run: kernels and losses are those of the device", "plugins"),
    no_effect("layers are made again by --recompute", "gradient_checkpointing_kwargs"),
    no_effect("ranks and their devices are said by --ranks and --device", "device device_map local_rank world_size "
              "ddp ddp_timeout ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters max_memory "
              "gpu_memory_limit accelerator_config heads_k_stride ring_attn_func"),
    no_effect("no garbage is collected", "gc_steps gc_collect_steps torch_empty_cache_steps"),
    no_effect("the loss of a run is watched by people", "loss_watchdog_threshold loss_watchdog_patience"),
)


def is_config(root: Dict[str, Any]) -> bool:
    """True for Axolotl's keys."""
    return "base_model" in root and any(key in root for key in ("micro_batch_size", "sequence_len", "datasets",
        "adapter"))


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the file states; absent keys have Axolotl's defaults."""
    defaults = Defaults(batch=1, epochs=1.0, schedule="cosine", sequence=512, learning_rate=None,
                        adapter=AdapterDefaults("adapter", nested=True))
    TrainerReader(target, RULES, defaults, _NAMES).run(root)
