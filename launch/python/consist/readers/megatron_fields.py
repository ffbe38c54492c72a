"""Fields of Megatron-Core's configurations, which other trainers' files have in place of Megatron-LM's arguments."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from .megatron import Reader
from .megatron_keys import FAMILIES
from .megatron_keys import RULES as ARGUMENTS
from .messages import shown
from .rules import SAYS_DATA, Rule, Rules, no_effect, off, only, own, table
from .target import MOST_RANKS, Target

# Fields whose names are not those of the arguments.
_NAMES = {
    "num_moe_experts": "num-experts", "fp8": "fp8-format", "fp8_param": "fp8-param-gather", "rope_scaling":
    "use-rope-scaling", "scale_factor": "rope-scaling-factor", "sequence_length": "seq-length", "tokenizer_model":
    "tokenizer-model", "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "seq_len_interpolation_factor": "rotary-seq-len-interpolation-factor", "layernorm_zero_centered_gamma":
    "apply-layernorm-1p", "num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers"}
# Fields that say the contrary of an argument.
_INVERTED = {"share_embeddings_and_output_weights": "untie-embeddings-and-output-weights", "add_bias_linear":
             "disable-bias-linear", "grad_reduce_in_fp32": "grad-reduce-in-bf16"}
_OF_FSDP = ("use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp")
# The words of tokenizers of the hub, added ones included, by beginnings of their names.
_WORDS = {"llama-2-": 32000, "llama-3": 128256, "meta-llama-3": 128256, "qwen2.5-": 151665, "qwen3-": 151669,
          "mixtral-8x": 32000}

_CLASS = Rule("no effect", "its class is built in here")
_KERNELS = "kernels are chosen by the device"
_BESIDE = "collectives run beside computation as far as nothing waits for them"
_OF_FP16 = "bf16 has the range of fp32"
_NO_MLA = "multi_latent_attention is off"
_DTYPES = "the precision says dtypes"

RULES: Rules = table(
    own("activation_func gated_linear_unit first_last_layers_bf16 num_layers_at_start_in_bf16 "
        "num_layers_at_end_in_bf16"),
    only("1", "low_freq_factor"), only("4", "high_freq_factor"), only("8192", "old_context_len"),
    only('"vanilla"', "softmax_type"), only("0", "glu_linear_offset"),
    off("fp4 fp4_param fp4_param_gather", "weights and activations of 4 bits are not done here; --precision fp8 is"),
    off("fp8_dot_product_attention fp8_multi_head_attention", "attention is in bf16"),
    off("quant_recipe heterogeneous_block_specs hetereogenous_dist_checkpoint mtp_enabled no_rope_freq mrope_section "
        "qk_l2_norm moe_router_num_groups moe_router_group_topk moe_router_topk_scaling_factor moe_input_jitter_eps "
        "moe_router_topk_limited_devices moe_apply_probs_on_input moe_token_dropping activation_func_clamp_value "
        "attn_logit_softcapping router_logit_softcapping final_logit_softcapping softmax_scale "
        "window_attn_skip_freq num_microbatches_with_partial_activation_checkpoints data_parallel_random_init "
        "apply_residual_connection_post_layernorm decrease_batch_size_if_needed restore_modelopt_state "
        "config_logger_dir lfm_layer_types quick_geglu"),
    off("freeze_language_model freeze_vision_model freeze_vision_projection", "--train-only and --freeze say it"),
    off("teacher kd_config", "no model is distilled"),
    no_effect(_KERNELS, "apply_rope_fusion fused_single_qkv_rope bias_activation_fusion bias_swiglu_fusion "
              "activation_func_fp8_input_store gradient_accumulation_fusion attention_dropout_fusion use_kitchen "
              "persist_layer_norm symmetric_ar_type use_te_activation_func use_fused_weighted_squared_relu "
              "use_transformer_engine_full_layer_spec use_transformer_engine_op_fuser "
              "disable_parameter_transpose_cache disable_bf16_reduced_precision_matmul "
              "use_mamba_mem_eff_path flash_decode test_mode dense_grouped_gemm transformer_layer_spec "
              "moe_deepep_num_sms moe_router_padding_for_fp8 no_fp8_weight_transpose_cache "
              "keep_fp8_transpose_cache fp8_quantizer_factory"),
    no_effect("each rank makes its own parts", "init_method output_layer_init_method embedding_init_method "
              "embedding_init_method_std"),
    no_effect(_DTYPES, "params_dtype pipeline_dtype autocast_dtype autocast_enabled enable_autocast fp32 logit_dtype "
              "fp16_lm_cross_entropy reuse_grad_buf_for_mxfp8_param_ag fp4_recipe"),
    no_effect("use_precision_aware_optimizer is off", "main_grads_dtype main_params_dtype exp_avg_dtype "
              "exp_avg_sq_dtype store_param_remainders"),
    no_effect(_OF_FP16, "loss_scale_window hysteresis"),
    no_effect(_BESIDE, "async_tensor_model_parallel_allreduce overlap_p2p_comm_warmup_flush batch_p2p_comm "
              "batch_p2p_sync delay_wgrad_compute wgrad_deferral_limit bucket_size pad_buckets_for_high_nccl_busbw "
              "disable_symmetric_registration suggested_communication_unit_size average_in_collective "
              "overlap_cpu_optimizer_d2h_h2d deallocate_pipeline_outputs variable_seq_lengths "
              "pipeline_model_parallel_comm_backend tp_only_amax_red sharp_enabled_group outer_dp_sharding_strategy "
              "preserve_fp32_weights"),
    no_effect("values of the running trainer", "grad_scale_func grad_sync_func no_sync_func param_sync_func "
              "finalize_model_grads_func timers barrier_with_L1_time generation_config parallel_output "
              "clone_scatter_output_in_embedding scatter_embedding_sequence_parallel"),
    no_effect("offloaded memory is pinned, and updated on the CPU", "pin_cpu_grads pin_cpu_params "
              "use_torch_optimizer_for_cpu_offload cpu_offloading_activations cpu_offloading_weights "
              "cpu_offloading_double_buffering"),
    no_effect("the optimizer is Adam", "sgd_momentum decoupled_weight_decay"),
    no_effect(_NO_MLA, "q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim mscale mscale_all_dim "
              "rotary_scaling_factor"),
    no_effect("moe_router_enable_expert_bias is off", "moe_router_bias_update_rate"),
    no_effect("layers are made again by recompute_granularity", "moe_layer_recompute"),
    no_effect("the launcher and --transport say it", "enable_megatron_core_experimental external_gpu_device_mapping "
              "lazy_init use_gloo_process_groups enable_gloo_process_groups"),
    no_effect("no garbage is collected", "manual_gc_eval"),
    no_effect("there are no Mamba layers", "mamba_state_dim mamba_head_dim mamba_num_groups mamba_num_heads"),
    no_effect("no token is predicted but the next", "mtp_loss_scaling_factor"),
    no_effect("steps are CUDA graphs on GPUs", "cuda_graph_retain_backward_graph cuda_graph_use_single_mempool "
              "cuda_graph_warmup_steps"),
    no_effect("a loss that is no number ends the run", "check_for_nan_in_grad check_for_large_grads "
              "check_for_nan_in_loss"),
    no_effect("nothing is generated", "mlp_chunks_for_prefill"),
    no_effect("--steps says when it ends", "train_sync_interval iterations_to_skip"),
    no_effect("weights are those of --model", "hf_model_id hf_model_revision should_pad_vocab"),
    no_effect("it follows from other keys", "lr_decay_steps lr_warmup_steps wsd_decay_steps wd_incr_steps"),
)


class FieldReader(Reader):
    """Reads keys that end with a field: "ddp.overlap_grad_reduce", or without sections "overlap_grad_reduce".

    The first of several keys with one meaning counts, in the order of their names.
    """

    def __init__(self, target: Target, rules: Mapping[str, Rule], families: Mapping[str, Rule]) -> None:
        super().__init__(target)
        self.rules = rules
        self.families = families

    def rule_of(self, key: str) -> Optional[Rule]:
        """The rule of the whole key, of the field, of the argument, or of the argument's family."""
        field = key.rpartition(".")[2]
        if field == "_target_":
            return _CLASS
        argument = _INVERTED.get(field) or _NAMES.get(field) or field.replace("_", "-")
        for rules, name in ((self.rules, key), (RULES, field), (ARGUMENTS, argument)):
            if name in rules:
                return rules[name]
        if field in _NAMES or field in _INVERTED:
            return own(field)[field]
        for families, name in ((self.families, field), (FAMILIES, argument)):
            for beginning, rule in families.items():
                if name.startswith(beginning):
                    return rule
        return None

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value under the argument's name."""
        field = key.rpartition(".")[2]
        name, said = _NAMES.get(field, field.replace("_", "-")), value
        if field in _INVERTED:
            name, value = _INVERTED[field], not self.target.truth(key, value)
        for cause, flag in (("num_query_groups", "group-query-attention"), ("scale_factor", "use-rope-scaling")):
            if field == cause and not self.values.has(flag):
                self.values.add(flag, key, True, value)
        known = self.values.find(name)
        if value is False and name in _OF_FSDP or value == 0 and field.endswith("_samples"):
            self.target.note(key, value, "off")
        elif known and known.key != key:
            self.target.note(key, said, f"no effect: {known.key} says it")
        else:
            self.values.add(name, key, value, said)

    def read_all(self, root: Mapping[str, Any], *steps: Any) -> None:
        """Visits all keys, those outside of sections first, then runs the steps and what Megatron-LM's lack."""
        sections = {key: value for key, value in root.items() if isinstance(value, dict)}
        self.visit({key: value for key, value in root.items() if key not in sections})
        super().read_all(sections, self._read_activation, self._read_words, *steps, self._read_ends)

    def _read_activation(self) -> None:
        """SwiGLU is a gate with SiLU."""
        values = self.values
        if not values.has("swiglu") and (values.has("activation-func") or values.has("gated-linear-unit")):
            function = str(values["activation-func"]).rpartition(".")[2] if values.has("activation-func") else "gelu"
            gated = values.truth("gated-linear-unit")
            swiglu = gated and function == "silu"
            values.note("SwiGLU" if swiglu else "no SwiGLU", "activation-func", "gated-linear-unit")
            values.add("swiglu", values.key_of("activation-func"), swiglu, function)

    def _read_words(self) -> None:
        values = self.values
        given = values.find("tokenizer-model")
        if given is None:
            return
        name = str(given.value).rpartition("/")[2].lower()
        words = next((words for beginning, words in _WORDS.items() if name.startswith(beginning)), 0)
        if words and not values.has("vocab-size") and not values.has("padded-vocab-size"):
            values.add("vocab-size", given.key, words, given.value)
        else:
            values.note("no effect here: " + SAYS_DATA, "tokenizer-model")

    def _read_ends(self) -> None:
        """The first and last layers stay in bf16."""
        values, target = self.values, self.target
        names = ("first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16")
        if target.value("precision") != "fp8" or not values.truth(names[0]):
            values.note("no effect: all layers have one precision", *names)
            return
        layers = target.sizes(names[0]).layers
        first, last = (values.whole(name, 1, 0, MOST_RANKS) for name in names[1:])
        kept = [layer for layer in range(layers) if layer < first or layer >= layers - last]
        for name in names:
            values.note("--fp8.except", name)
        target.derive_plugin(names[0], "fp8", "except", ",".join(f"*.layers.{layer}.*" for layer in kept))


def plain(value: Any) -> Any:
    """The value without objects that stand for something of Python: {"_target_": "torch.bfloat16"} is a text."""
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "_target_" in value and any(key in value for key in ("_call_", "_partial_", "_args_")):
        return str(value["_target_"])
    return {key: plain(entry) for key, entry in value.items()}


def expect_object(target: Target, key: str, value: Any) -> Dict[str, Any]:
    """The value, which must be an object. Raises UsageError."""
    if not isinstance(value, dict):
        target.refuse(key, f"is {shown(value)}; it must be an object")
    return value
