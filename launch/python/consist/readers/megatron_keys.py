"""The treatment of each argument of Megatron-LM.

Arguments are those of megatron/training/arguments.py and the classes of configuration that it is made of, at d98e8a6
and, for older names, core_r0.5.
"""
from __future__ import annotations

from .rules import (EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, STATES_PROFILE, no_effect, off, only, own, table,
                    under)

FINDS_RANKS = "consist launch, Slurm or torchrun start ranks (docs/jobs.md)"
_FUSED = "kernels are fused where there is one; norms, losses and products have one implementation per device"
_BESIDE = "collectives run beside computation as far as nothing waits for them"
_ONE_CORE = "there is one implementation of models"
_CHECKS = "programs are verified before they run, and a loss that is no number ends the run"

RULES = table(
    under("torchrun", own("nproc-per-node nnodes")),
    # The model's sizes
    own("num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels group-query-attention "
        "num-query-groups num-key-value-heads max-position-embeddings seq-length position-embedding-type "
        "use-rotary-position-embeddings rotary-base use-rope-scaling rope-scaling-factor normalization norm-epsilon "
        "layernorm-epsilon swiglu untie-embeddings-and-output-weights disable-bias-linear add-qkv-bias qk-layernorm "
        "vocab-size padded-vocab-size make-vocab-size-divisible-by tokenizer-type init-method-std attention-dropout "
        "hidden-dropout num-experts moe-router-topk moe-ffn-hidden-size moe-aux-loss-coeff "
        "moe-router-load-balancing-type moe-router-force-load-balancing moe-router-pre-softmax spec"),
    no_effect("position-embedding-type says what there is", "no-position-embedding"),
    only("1", "rotary-percent rotary-seq-len-interpolation-factor moe-layer-freq"),
    off("rotary-interleaved moe-z-loss-coeff moe-extended-tp squared-relu "
        "openai-gelu multi-latent-attention mtp-num-layers qk-clip is-hybrid-model hybrid-override-pattern "
        "hybrid-layer-pattern"),
    no_effect("a weight 1 + w is the same norm, and norms do not decay here", "apply-layernorm-1p"),
    only('"softmax"', "moe-router-score-function"),
    no_effect("routers compute in fp32", "moe-router-dtype"),
    no_effect(_FUSED, "moe-router-fusion moe-permute-fusion"),
    off("moe-shared-expert-intermediate-size", "models have no shared experts here"),
    off("moe-expert-capacity-factor", "no token is dropped here"),
    no_effect("no token is dropped here", "moe-pad-expert-input-to-capacity moe-token-drop-policy"),
    no_effect("products of experts are grouped", "moe-grouped-gemm moe-use-legacy-grouped-gemm"),
    no_effect("--ep options say how tokens are sent", "moe-token-dispatcher-type moe-enable-deepep"),
    no_effect(KEEPS_LOG, "moe-per-layer-logging"),
    off("window-size", "windows are those of a model folder (Qwen's)"),
    # Training
    own("micro-batch-size global-batch-size train-iters train-samples seed optimizer lr min-lr lr-decay-style "
        "lr-decay-iters lr-decay-samples lr-warmup-iters lr-warmup-samples lr-warmup-fraction lr-warmup-init "
        "lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples weight-decay adam-beta1 adam-beta2 adam-eps "
        "clip-grad"),
    off("rampup-batch-size step-batch-size-schedule", "the batch is the same in all steps"),
    no_effect("--resume follows the options that are given", "override-opt-param-scheduler "
              "use-checkpoint-opt-param-scheduler"),
    off("decoupled-lr decoupled-min-lr", "all parameters have one learning rate"),
    off("start-weight-decay end-weight-decay", "weight decay is the same in all steps"),
    only('"constant"', "weight-decay-incr-style"),
    no_effect("the loss is the mean over tokens", "calculate-per-token-loss"),
    # Precision
    own("bf16 fp16 fp8-format fp8-recipe fp8-hybrid fp8-e4m3 fp8-amax-history-len fp8-amax-compute-algo "
        "fp8-param-gather grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32"),
    only("0", "fp8-margin"),
    only("1", "fp8-interval"),
    no_effect("gradients of weights are in fp8, too", "fp8-wgrad"),
    off("no-fp8-wgrad fp32-residual-connection use-precision-aware-optimizer"),
    no_effect(_ONE_CORE, "transformer-impl"),
    no_effect("it is", "attention-softmax-in-fp32"),
    no_effect("attention's softmax is in fp32", "apply-query-key-layer-scaling no-query-key-layer-scaling"),
    no_effect("bf16 has the range of fp32", "loss-scale initial-loss-scale min-loss-scale"),
    # Parallelism
    own("tensor-model-parallel-size pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage "
        "num-virtual-stages-per-pipeline-rank context-parallel-size cp-comm-type expert-model-parallel-size "
        "expert-tensor-parallel-size sequence-parallel use-distributed-optimizer overlap-grad-reduce "
        "overlap-param-gather use-torch-fsdp2 use-megatron-fsdp use-custom-fsdp data-parallel-sharding-strategy "
        "optimizer-cpu-offload optimizer-offload-fraction"),
    off("hierarchical-context-parallel-sizes pipeline-model-parallel-split-rank"),
    only("1", "num-distributed-optimizer-instances"),
    no_effect("stages are cut by the costs of their ops (--pipeline.cut)", "pipeline-model-parallel-layout "
              "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
              "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split"),
    no_effect("groups are as large as the pipeline", "microbatch-group-size-per-vp-stage"),
    no_effect("gradients of weights run behind messages (--pipeline.send-first)", "defer-embedding-wgrad-compute"),
    no_effect("buckets are Consist's (--ddp.bucket-size, --zero2.reduce-bucket-size)", "ddp-bucket-size "
              "ddp-num-buckets"),
    no_effect("the loss is scaled before backward, gradients are sums", "ddp-average-in-collective"),
    # Activations
    own("recompute-activations recompute-granularity recompute-method recompute-num-layers recompute-modules "
        "activations-checkpoint-method checkpoint-activations cpu-offloading cpu-offloading-num-layers"),
    off("distribute-saved-activations"),
    # Keys of other kinds
    own("mock-data"),
    off("yaml-cfg config-yaml", "give that file to --from"),
    no_effect("--model FOLDER loads weights", "finetune"),
    no_effect(SAYS_CHECKPOINTS, "exit-on-missing-checkpoint"),
    off("use-checkpoint-args", "give the model's sizes"),
    no_effect("it chooses among PyTorch's kernels", "deterministic-mode"),
    no_effect(_FUSED, "attention-backend use-flash-attn no-gradient-accumulation-fusion gradient-accumulation-fusion "
              "no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion "
              "no-rope-fusion no-persist-layer-norm memory-efficient-layer-norm cross-entropy-loss-fusion "
              "cross-entropy-fusion-impl gradient-reduce-div-fusion masked-softmax-fusion bias-gelu-fusion "
              "bias-dropout-fusion"),
    no_effect(_ONE_CORE, "use-mcore-models use-legacy-models"),
    no_effect("each rank makes its own parts", "use-cpu-initialization init-model-with-meta-device "
              "perform-initialization no-initialization"),
    off("init-method-xavier-uniform fine-grained-activation-offloading skip-train recompute"),
    no_effect("layers draw no random numbers", "use-te-rng-tracker te-rng-tracker"),
    no_effect(_BESIDE, "no-async-tensor-model-parallel-allreduce no-delay-grad-reduce delay-grad-reduce "
              "overlap-p2p-communication no-overlap-p2p-communication overlap-p2p-comm "
              "overlap-param-gather-with-optimizer-step align-grad-reduce align-param-gather no-align-grad-reduce "
              "moe-shared-expert-overlap overlap-moe-expert-parallel-comm"),
    no_effect("no garbage is collected", "manual-gc manual-gc-interval no-manual-gc-eval"),
    no_effect("memory is planned before the run", "empty-unused-memory-level"),
    no_effect(_CHECKS, "no-check-for-nan-in-loss-and-grad check-for-nan-in-loss-and-grad check-for-spiky-loss "
              "check-weight-hash-across-dp-replicas-interval rerun-mode"),
    no_effect("steps are CUDA graphs on GPUs", "enable-cuda-graph external-cuda-graph cuda-graph-scope "
              "cuda-graph-impl"),
    no_effect("--strategy says it", "DDP-impl"),
    no_effect("a message holds a rank's own part of the stream", "no-scatter-gather-tensors-in-pipeline"),
    no_effect("it opens other arguments", "enable-experimental"),
)

# Arguments that begin alike and have no effect, or are not done, for one reason; no beginning is that of another.
FAMILIES = table(
    no_effect(FINDS_RANKS, "torchrun. local-rank"),
    no_effect(SAYS_DATA, "data- train-data- valid-data- test-data- split tokenizer- vocab- merge-file tiktoken- "
              "num-workers num-dataset- dataloader- reset- eod-mask-loss no-mmap-bin-files mmap-"),
    no_effect("attention is causal without a mask in memory", "no-create-attention-mask"),
    no_effect(EVALUATES, "eval-"),
    no_effect(KEEPS_LOG, "log- tensorboard- wandb- logging- one-logger- enable-one-logger"),
    no_effect(STATES_PROFILE, "timing- no-barrier-with- profile use-pytorch-profiler straggler- disable-straggler-"),
    no_effect("buckets and buffers are Consist's (--zero3-offload.prefetch-bucket-size)", "fsdp-"),
    no_effect("the precision states dtypes", "megatron-fsdp-"),
    no_effect("--transport says how messages are sent", "use-nccl-ub use-ring-exchange-p2p nccl- "
              "high-priority-stream-groups use-sharp"),
    no_effect("consist explain --summary states it", "record-memory- memory-snapshot-"),
    no_effect(SAYS_CHECKPOINTS, "save no-save- no-ckpt- ckpt- async-save use-persistent-ckpt-worker use-dist-ckpt "
              "dist-ckpt- auto-detect-ckpt-format"),
    no_effect("--model FOLDER loads weights, --resume continues a run", "load"),
    no_effect("--model FOLDER loads weights", "pretrained-checkpoint"),
    no_effect("--resume continues a run, whole", "no-load-"),
    no_effect("--steps says when it ends", "exit-"),
    no_effect("--timeout is the longest wait for another rank", "distributed-"),
    no_effect("strategies say which ranks are neighbours", "use-tp-pp-dp-mapping"),
    no_effect("--tp-sp options say what runs beside computation", "tp-comm-"),
    no_effect("nothing is generated", "inference-"),
    off("moe-router-bias-update-rate moe-router-enable-expert-bias"),
    off("grpo- rl- langrl- perform-rl-step", "there is no reinforcement learning"),
    off("deepspeed", "a JSON of DeepSpeed's is a file for --from itself"),
    no_effect("a rank that dies ends the job, and --resume continues it", "enable-ft-package"),
)
