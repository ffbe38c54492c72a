"""Reads Hugging Face's TrainingArguments as JSON or YAML, with the arguments of TRL's scripts beside them.

Names are those of transformers 4.40 to 5 (training_args.py) and of TRL's SFTConfig, ScriptArguments and ModelConfig.
"""
from __future__ import annotations

from typing import Any, Dict

from .adapters import NO_INT8, PACKED, AdapterDefaults
from .preferences import OF_DPO, ONE_LOSS
from .rules import (COMPILES_ALWAYS, EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, no_effect, off, only, own,
                    table)
from .target import Target
from .trainer import Defaults, TrainerReader, fsdp_rules

_STARTS = "consist launch, Slurm or torchrun start ranks on several machines (docs/jobs.md)"
_KERNELS = "kernels are chosen by the device"
_OF_MARKS = ("output_dir", "per_device_train_batch_size", "num_train_epochs", "logging_steps", "lr_scheduler_type")
_NAMES = {"max_seq_length": "sequence", "max_length": "sequence",
          "per_gpu_train_batch_size": "per_device_train_batch_size", "bnb_4bit_use_double_quant":
          "use_bnb_nested_quant"}

RULES = table(
    own("per_device_train_batch_size per_gpu_train_batch_size gradient_accumulation_steps num_train_epochs max_steps "
        "max_seq_length max_length learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm optim "
        "lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps seed bf16 fp16 gradient_checkpointing "
        "deepspeed fsdp model_name_or_path"),
    fsdp_rules(),
    no_effect("--archive, --export and --checkpoint say where results go",
              "output_dir overwrite_output_dir run_name project push_to_hub hub_model_id hub_strategy hub_token "
              "hub_private_repo hub_always_push hub_revision hub_model_revision"),
    no_effect(EVALUATES, "do_eval do_predict eval_strategy evaluation_strategy eval_steps eval_delay eval_on_start "
              "eval_accumulation_steps per_device_eval_batch_size per_gpu_eval_batch_size prediction_loss_only "
              "include_for_metrics include_inputs_for_metrics batch_eval_metrics eval_do_concat_batches "
              "eval_use_gather_object metric_for_best_model greater_is_better load_best_model_at_end bf16_full_eval "
              "fp16_full_eval eval_packing"),
    no_effect(KEEPS_LOG, "logging_steps logging_dir logging_strategy logging_first_step logging_nan_inf_filter "
              "log_level log_level_replica log_on_each_node report_to disable_tqdm include_num_input_tokens_seen "
              "include_tokens_per_second trackio_space_id skip_memory_metrics debug"),
    no_effect(SAYS_CHECKPOINTS, "save_steps save_strategy save_total_limit save_only_model save_safetensors "
              "save_on_each_node resume_from_checkpoint ignore_data_skip enable_jit_checkpoint "
              "restore_callback_states_from_checkpoint"),
    no_effect(SAYS_DATA, "do_train data_seed dataloader_num_workers dataloader_pin_memory "
              "dataloader_persistent_workers dataloader_prefetch_factor dataloader_drop_last remove_unused_columns "
              "label_names length_column_name train_sampling_strategy dataset_name dataset_config dataset_mixture "
              "dataset_mixer dataset_splits dataset_text_field dataset_num_proc dataset_kwargs dataset_train_split "
              "dataset_test_split dataset_streaming packing packing_strategy preprocessing_num_workers chat_template "
              "chat_template_path eos_token pad_token pad_to_multiple_of text_column assistant_only_loss "
              "completion_only_loss"),
    no_effect(COMPILES_ALWAYS, "torch_compile torch_compile_backend torch_compile_mode torchdynamo"),
    no_effect(_KERNELS, "tf32 use_liger_kernel liger_kernel_config attn_implementation use_flash_attention_2 "
              "jit_mode_eval use_ipex full_determinism use_cpu no_cuda use_mps_device torch_empty_cache_steps "
             ),
    no_effect(_STARTS, "local_rank ddp_backend ddp_timeout tpu_num_cores"),
    no_effect("gradients are sent as they are made, in buckets", "ddp_bucket_cap_mb ddp_find_unused_parameters "
              "ddp_broadcast_buffers average_tokens_across_devices"),
    no_effect("layers are made again by --recompute", "gradient_checkpointing_kwargs"),
    no_effect("--precision says dtypes", "torch_dtype dtype half_precision_backend fp16_backend fp16_opt_level "
                                         "model_init_kwargs"),
    no_effect("--model FOLDER loads weights", "model_revision tokenizer_name tokenizer_name_or_path trust_remote_code "
                                              "use_fast"),
    no_effect("the device says its own settings", "accelerator_config"),
    only("0|0.0", "neftune_noise_alpha"),
    only("0|0.0", "label_smoothing_factor"),
    own("use_peft lora_r lora_alpha lora_dropout lora_target_modules lora_target_parameters lora_modules_to_save "
        "use_dora use_rslora load_in_4bit bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_use_double_quant"),
    off("load_in_8bit", NO_INT8),
    no_effect(PACKED, "bnb_4bit_quant_storage"),
    no_effect("a decoder is trained", "lora_task_type"),
    only("false", "auto_find_batch_size use_legacy_prediction_loop "
         "group_by_length"),
    only('""|{}', "optim_args optim_target_modules galore_args"),
    only("-1", "past_index"),
    own(" ".join(OF_DPO)),
    off("reference_model ref_model rpo_alpha use_weighting sync_ref_model reference_free ld_alpha loss_weights",
        ONE_LOSS),
    no_effect("each pair has a sequence of its own", "padding_free padding_value label_pad_token_id"),
    no_effect("there is no dropout", "disable_dropout"),
)


def is_config(root: Dict[str, Any]) -> bool:
    """True for TrainingArguments, which share names with DeepSpeed's keys."""
    return "zero_optimization" not in root and any(key in root for key in _OF_MARKS)


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the arguments state; absent keys have the defaults of TrainingArguments."""
    # Of TRL's ModelConfig; without target_modules PEFT adapts these of Llama, Mistral and Qwen.
    adapter = AdapterDefaults("use_peft", rank=16, alpha=32, dropout=0.05, targets="q_proj,v_proj")
    defaults = Defaults(batch=8, epochs=3.0, schedule="linear", sequence=None, learning_rate=5e-5, adapter=adapter)
    TrainerReader(target, RULES, defaults, _NAMES).run(root)
