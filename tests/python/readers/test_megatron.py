"""Megatron-LM's arguments: in a script, a file, YAML."""
from __future__ import annotations

import json
import math
import re
from typing import Dict, Optional

import pytest
from readers.rates import rate
from readers.reading import Reading

from consist.readers.megatron_keys import FAMILIES, RULES

MODEL = ("--num-layers 4 --hidden-size 128 --num-attention-heads 8 --ffn-hidden-size 256 --seq-length 64 "
         "--max-position-embeddings 128 --normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear "
         "--untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0.0 --vocab-size 1000 ")


def script(more: str = "") -> str:
    """A command that trains the model with more arguments."""
    return f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL}{more}\n"


def options_of(reading: Reading, more: str = "") -> Dict[str, str]:
    """What such a command states."""
    return reading.read(script(more)).options


WHOLE = r"""#!/bin/bash
# A set-up.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
DATA=${1:-"MOCK"}
GPUS=8
NODES=${NODES:-2}
WORLD=$(($GPUS*$NODES))
TP=2
DTYPE="fp8"
mkdir -p "$(dirname "$OUT")"
LAUNCH=(
    --nproc_per_node $GPUS
    --nnodes $NODES
    --master_addr ${ADDR:-localhost}
)
MODEL=(
    --num-layers 4       # remarks are passed over
    --hidden-size 128
    --num-attention-heads 8
    --group-query-attention
    --num-query-groups 2
    --kv-channels 32
    --ffn-hidden-size 256
    --seq-length 64 --max-position-embeddings 128
    --normalization RMSNorm --swiglu --position-embedding-type rope --rotary-base 500000
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --vocab-size 1000 --make-vocab-size-divisible-by 8
)
TRAIN=(
    --micro-batch-size 1 --global-batch-size 32 --train-iters 100
    --lr 0.001 --min-lr 1.0e-4 --lr-decay-style cosine --lr-warmup-iters 10
    --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 0.5 --bf16
)
FP8=()
if [[ "$DTYPE" == "fp8" ]]; then
    FP8+=("--fp8-format hybrid" "--fp8-amax-history-len 16" "--fp8-amax-compute-algo max")
elif [ $TP -gt 4 ]; then
    FP8+=(--no-such-argument)
fi
TRAIN+=(--use-distributed-optimizer --overlap-grad-reduce)
if [[ "$TOKENIZER" == "MOCK" ]] || [[ "$DATA" == "MOCK" ]]; then
    INPUT="--mock-data --tokenizer-type NullTokenizer"
else
    INPUT="--data-path $DATA"
fi
if [ ! -f pretrain_gpt.py ]; then
    exit 1
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${MODEL[@]} ${TRAIN[@]} ${FP8[@]} --tensor-model-parallel-size $TP \
    --sequence-parallel $INPUT --save "$OUT/checkpoints" | tee "$OUT/log"
"""


def test_a_script_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(WHOLE)
    options = dict(target.options)
    model = json.loads(options.pop("model"))
    sizes = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8,
             "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256, "max_position_embeddings": 128,
             "rope_theta": 500000, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
             "vocab_size": 1008}  # a word more (NullTokenizer), as a multiple of 8 times 2 ranks
    assert {key: model[key] for key in sizes} == sizes
    assert options == {
        "ranks": "16", "strategy": "tp-sp=2+zero2", "zero2.stage": "1", "zero2.overlap-comm": "true",
        "tp-sp.sequence-parallel": "true", "precision": "fp8", "fp8.scaling": "delayed", "fp8.amax-history-len": "16",
        "fp8.gradient-format": "e5m2", "fp8.gradients": "f32", "batch": "1", "global-batch": "32", "steps": "100",
        "sequence": "64", "optimizer": "adamw", "learning-rate": "0.001", "weight-decay": "0.1", "clip": "0.5",
        "adamw.beta1": "0.9", "adamw.beta2": "0.95", "adamw.epsilon": "1e-08", "schedule": "cosine", "cosine.warmup": "10",
        "cosine.warmup-from": "0", "cosine.final-rate": "0.1", "recompute": "none", "seed": "1234"}
    lines = target.notes()
    notes = "\n".join(lines)
    for key in ("torchrun.master-addr", "mock-data", "save", "tokenizer-type", "fp8-amax-compute-algo", "normalization",
                "weight-decay", "its value is not known without running the script", "--seed 1234 (seed)"):
        assert key in notes, "passed over in silence"
    assert "a condition cannot be known" in lines[0], "before what is said of keys"


def megatron_rate(step: int, until: int, style: str, init: float = 0, wsd: int = 0, wsd_style: str = "",
                  least: float = 0.001) -> float:
    """OptimizerParamScheduler.get_lr of megatron/core/optimizer_param_scheduler.py at d98e8a6, in steps, of 4 of warm-up."""
    warmup, peak = 4, 0.01
    if step <= warmup:
        return init + (peak - init) * step / warmup
    if style == "constant":
        return peak
    if step > until:
        return least
    ratio = (step - warmup) / (until - warmup)
    left = 1 - ratio if style == "linear" else 0.5 * (math.cos(math.pi * ratio) + 1)
    if style == "WSD":
        begin = until - wsd
        part = (step - begin) / wsd
        left = 1 if step <= begin else {"linear": 1 - part, "cosine": 0.5 * (math.cos(math.pi * part) + 1),
                                        "minus_sqrt": 1 - math.sqrt(max(part, 0))}[wsd_style]
    return least + left * (peak - least)


@pytest.mark.parametrize("more, style, until, init, wsd, wsd_style", [
    ("", "constant", 30, 0, 0, ""), ("", "linear", 30, 0, 0, ""), ("", "cosine", 30, 0, 0, ""),
    ("--lr-decay-iters 20", "cosine", 20, 0, 0, ""), ("--lr-decay-iters 40", "linear", 40, 0, 0, ""),
    ("--lr-warmup-init 1e-4", "linear", 30, 1e-4, 0, ""),
    *((f"--lr-wsd-decay-iters 10 --lr-wsd-decay-style {name}", "WSD", 30, 0, 10, name)
      for name in ("linear", "cosine", "minus_sqrt")),
])
def test_rates_are_those_of_megatron(reading: Reading, more: str, style: str, until: int, init: float, wsd: int,
                                     wsd_style: str) -> None:
    target = reading.read(script(f"--train-iters 30 --lr 0.01 --min-lr 0.001 --lr-warmup-iters 4 {more} "
                                 f"--lr-decay-style {style}"))
    for step in range(30):
        assert rate(target, step) == pytest.approx(megatron_rate(step, until, style, init, wsd, wsd_style), abs=1e-12), step


def test_samples_are_steps_of_the_global_batch(reading: Reading) -> None:
    head = "--global-batch-size 8 --train-samples 240 --lr 0.01 "
    target = reading.read(script(head + "--lr-warmup-samples 32 --lr-decay-samples 160 --lr-decay-style cosine"))
    assert target.options["steps"] == "30"
    for step in range(30):
        assert rate(target, step) == pytest.approx(megatron_rate(step, 20, "cosine", least=0), abs=1e-12), step
    nearest = reading.read(script(head + "--lr-warmup-samples 30 --lr-decay-style constant"))
    assert "megatron lr-warmup-samples 30: 3.75 steps of 8 samples: taken as 4" in nearest.notes()
    assert nearest.options["constant.warmup"] == "4"
    half = reading.read(script(head + "--lr-warmup-fraction 0.15 --lr-decay-style linear"))
    assert half.options["linear.warmup"] == "5", "4.5 steps"
    wsd = "--lr-decay-style WSD --lr-decay-samples 0 --lr-wsd-decay-style linear --lr-wsd-decay-samples 0"
    assert options_of(reading, head + wsd)["wsd.decay"] == "0"


@pytest.mark.parametrize("more, message", [
    ("--train-iters 30 --lr 1 --lr-decay-style inverse-square-root", 'lr-decay-style is "inverse-square-root"'),
    ("--train-iters 30 --lr 1 --lr-decay-style WSD --lr-wsd-decay-iters 5",
     'lr-wsd-decay-style (its default) is "exponential"'),
    ("--train-iters 30 --lr 1 --lr-decay-style WSD --lr-wsd-decay-style linear", "which the style WSD needs"),
    ("--train-samples 240 --lr 1", "counts samples"),
    ("--train-samples 240 --train-iters 30 --global-batch-size 8", "beside train-iters"),
    ("--train-samples -1 --global-batch-size 8", "train-samples is -1; it must be a number of samples"),
    ("--train-iters 9 --lr 1 --min-lr 2", "min-lr is 2; it must be from 0 to the peak 1"),
    ("--train-iters 9 --lr 1 --lr-warmup-fraction 1.5", "lr-warmup-fraction is 1.5; it must be from 0 to 1"),
])
def test_schedules_that_are_refused(reading: Reading, more: str, message: str) -> None:
    reading.refused(script(more), message)


MIXTURE = "--tensor-model-parallel-size 2 --num-experts 8 "
ALONE = "--expert-tensor-parallel-size 1 "  # matrices of experts are whole
FOLDED = "--num-experts 8 --context-parallel-size 4 --cp-comm-type all_gather --expert-model-parallel-size 8"


@pytest.mark.parametrize("more, expected", [
    ("", {"strategy": "ddp"}),
    ("--use-distributed-optimizer --pipeline-model-parallel-size 2",
     {"strategy": "zero2+pipeline=2", "pipeline.schedule": "1f1b"}),
    ("--context-parallel-size 2 --cp-comm-type a2a", {"strategy": "cp=2+ddp", "cp.attention": "ulysses"}),
    ("--context-parallel-size 2 --cp-comm-type all_gather", {"cp.attention": "gather"}),
    ("--context-parallel-size 2", {"cp.attention": "ring"}),
    ("--use-torch-fsdp2", {"strategy": "zero3-offload"}),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", {"strategy": "zero3-offload"}),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", {"strategy": "zero2", "zero2.stage": "2"}),
    ("--use-custom-fsdp --data-parallel-sharding-strategy optim", {"strategy": "zero2", "zero2.stage": "1"}),
    ("--use-megatron-fsdp", {"strategy": "ddp"}),
    ("--num-experts 8 --expert-model-parallel-size 4", {"strategy": "ep=4+ddp"}),
    ("--num-experts 8 --moe-router-force-load-balancing --mock-data", {"expert-load": "balanced"}),
    (MIXTURE, {"strategy": "tp-sp=2+ddp", "tp-sp.experts": "divided"}),  # Megatron divides the matrices of each
    (MIXTURE + ALONE, {"tp-sp.experts": "whole"}),
    (MIXTURE + "--expert-model-parallel-size 4", {"strategy": "tp-sp=2+ep=4+ddp"}),
    (MIXTURE + ALONE + "--expert-model-parallel-size 4", {"strategy": "tp-sp=2+ep=2+ddp"}),  # ranks of tp-sp are among them
    (MIXTURE + ALONE + "--expert-model-parallel-size 2", {"strategy": "tp-sp=2+ddp", "tp-sp.experts": "divided"}),
    (FOLDED, {"strategy": "cp=4+ep=2+ddp", "cp.experts": "divided"}),  # ranks of context are among those of experts
    ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
     {"pipeline.schedule": "interleaved", "pipeline.chunks": "2"}),
    ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", {"pipeline.chunks": "2"}),
    ("--use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction 0.5 --bf16 --grad-reduce-in-bf16",
     {"zero2.offload-optimizer.device": "cpu", "zero2.offload-optimizer.ratio": "0.5", "bf16.gradients": "bf16",
      "zero2.overlap-comm": "false"}),  # overlap-grad-reduce is not given
    ("--fp8-format e4m3 --fp8-recipe tensorwise --fp8-param-gather",
     {"fp8.gradient-format": "e4m3", "fp8.scaling": "tensor", "fp8.gathers": "true"}),
    ("--fp8-hybrid --fp8-recipe blockwise", {"precision": "fp8", "fp8.scaling": "block", "fp8.gradient-format": "e5m2"}),
])
def test_degrees_and_dtypes(reading: Reading, more: str, expected: Dict[str, str]) -> None:
    options = options_of(reading, more)
    assert {option: options[option] for option in expected} == expected


@pytest.mark.parametrize("more, message", [
    (MIXTURE + ALONE + "--expert-model-parallel-size 3", "it must be a multiple of that here"),
    (MIXTURE + "--expert-tensor-parallel-size 4", "it may be 1 or as many"),
    ("--num-experts 8 --expert-tensor-parallel-size 2", "but tensor-model-parallel-size is 1"),
    ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3", "does not divide the 4 layers"),
    ("--tensor-model-parallel-size two", 'tensor-model-parallel-size is "two"; it must be a number'),
    ("--optimizer-cpu-offload", "which needs use-distributed-optimizer"),
    ("--no-such-argument 3", '"no-such-argument" is not known'),
    ("--fp16", "fp16 is given"),
    ("--decoupled-lr 5e-4", "decoupled-lr is asked for"),
    ("--optimizer muon", 'optimizer is "muon"'),
    ("--moe-shared-expert-intermediate-size 64", "models have no shared experts"),
    ("--spec a b", "made of Python modules"),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2", "recompute-num-layers is 2"),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 0", "recompute-num-layers is 0"),
    ("--recompute-granularity full --recompute-method block --pipeline-model-parallel-size 2", "block beside a pipeline"),
    ("--recompute-granularity selective --recompute-modules mla_up_proj", 'has "mla_up_proj"'),
    ("--cpu-offloading --cpu-offloading-num-layers 2000", "cpu-offloading-num-layers is 2000"),
    ("--num-experts 8 --add-qkv-bias", "has experts together with biases on q, k and v, which is not done here"),
    ("--num-key-value-heads 2 --num-query-groups 2", "which means the same"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, more: str, message: str) -> None:
    reading.refused(script(more), message)


@pytest.mark.parametrize("more, expected", [
    ("", {"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 8, "vocab_size": 1024}),
    ("--qk-layernorm", {"architectures": ["Qwen3ForCausalLM"]}),
    ("--add-qkv-bias", {"architectures": ["Qwen2ForCausalLM"]}),
    ("--num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-router-load-balancing-type aux_loss",
     {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "router_aux_loss_coef": 0.01}),
    ("--num-experts 8 --qk-layernorm --moe-ffn-hidden-size 64",
     {"architectures": ["Qwen3MoeForCausalLM"], "moe_intermediate_size": 64, "router_aux_loss_coef": 0}),
    ("--num-key-value-heads 2", {"num_key_value_heads": 2}),  # of Megatron-DeepSpeed
    ("--padded-vocab-size 1001", {"vocab_size": 1001}),
    ("--use-rope-scaling --layernorm-epsilon 1e-6", {"rms_norm_eps": 1e-6}),
])
def test_models_are_by_sizes(reading: Reading, more: str, expected: Dict[str, object]) -> None:
    model = json.loads(options_of(reading, more)["model"])
    assert {key: model[key] for key in expected} == expected
    assert model.get("rope_scaling", {"factor": 0})["factor"] == (8 if "rope" in more else 0)


@pytest.mark.parametrize("argument, message", [
    ("--normalization", "normalization (its default) is LayerNorm; models here are decoders with RMSNorm"),
    ("--normalization", "--from-set normalization=RMSNorm"),
    ("--swiglu", "swiglu (its default) is not given"),
    ("--position-embedding-type", "position-embedding-type=rope"),
    ("--disable-bias-linear", "disable-bias-linear=true"),
    ("--attention-dropout", "attention-dropout (its default) is 0.1"),
    ("--vocab-size", "give --from-set vocab-size=N"),
    ("--hidden-size", "hidden-size (its default) is not given"),
])
def test_models_of_other_kinds_or_without_a_size_are_refused(reading: Reading, argument: str, message: str) -> None:
    reading.refused(re.sub(f"{argument} [^-]*", "", f"x.py {MODEL}\n"), message)


def test_values_are_replaced_and_the_command_line_goes_first(reading: Reading) -> None:
    text = f"x.py {MODEL}\n".replace("--normalization RMSNorm", "")
    options = reading.read(text, "normalization=RMSNorm", "num-layers=2").options
    assert json.loads(options["model"])["num_hidden_layers"] == 2
    assert reading.read(script("--decoupled-lr 5e-4"), "decoupled-lr=null").options, "null leaves a key out"
    assert "megatron skip-train false: off" in reading.read(script("--skip-train false")).notes()
    target = reading.read("torchrun p.py --num-layers 2 --micro-batch-size 1 --global-batch-size 8\n", model="llama-tiny",
                          ranks=4, accumulation=2)
    assert not {"model", "ranks", "global-batch"} & set(target.options)
    assert "megatron num-layers 2: --model is given and goes before the file" in target.notes()
    assert "megatron says no number of ranks: --ranks 4" in target.notes()
    given = reading.read(script("--lr-decay-style cosine --min-lr 0.1 --fp8-format hybrid --recompute-activations"),
                         schedule="wsd", precision="bf16", recompute="full")
    notes = given.notes()
    for line in ("megatron min-lr 0.1: --schedule wsd is given and goes before the file",
                 'megatron fp8-format "hybrid": --precision bf16 is given and goes before the file',
                 "megatron recompute-activations true: --recompute full is given and goes before the file"):
        assert line in notes


@pytest.mark.parametrize("more, what, layers", [
    ("", "none", None),
    ("--recompute-activations --recompute-granularity selective", "none", None),  # attention keeps no scores
    ("--recompute-granularity selective --recompute-modules core_attn layernorm moe_act mlp_act", "rms_norm,swiglu", None),
    ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "full", None),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", "full", "0-1"),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "none", None),
    ("--recompute-granularity full --recompute-method block --recompute-num-layers 9", "full", "0-3"),
    ("--activations-checkpoint-method uniform", "full", None),
    ("--checkpoint-activations", "full", None),
])
def test_activations_are_made_again_as_asked(reading: Reading, more: str, what: str, layers: Optional[str]) -> None:
    options = options_of(reading, more)
    assert (options["recompute"], options.get("recompute-layers")) == (what, layers)


@pytest.mark.parametrize("more, layers", [
    ("--cpu-offloading --cpu-offloading-num-layers 2", "0-1"), ("--cpu-offloading-num-layers 2", None),
    ("--cpu-offloading", None),  # of no layer
])
def test_activations_of_the_first_layers_wait_on_the_host(reading: Reading, more: str, layers: Optional[str]) -> None:
    target = reading.read(script(more))
    assert target.options.get("offload-activations") == layers
    assert "offload-activations" in target.stated


# Other forms

YAML = """MODEL_ARGS:
  --num-layers: 4
  --hidden-size: 128
  --num-attention-heads: 8
  --seq-length: 64
  --normalization: RMSNorm
  --swiglu: true
  --position-embedding-type: rope
  --disable-bias-linear: true
  --attention-dropout: 0.0
  --hidden-dropout: 0.0
  --vocab-size: 1000
  --bf16: true
  --sequence-parallel: false
"""


def test_yaml_of_its_functional_tests(reading: Reading) -> None:
    options = reading.read(YAML).options
    assert options["precision"] == "bf16"
    assert json.loads(options["model"])["intermediate_size"] == 320, "two thirds of four times the width, a multiple of 64"
    reading.refused("MODEL_ARGS: 3\n", "MODEL_ARGS is 3; it must be arguments with values")
    reading.refused("num_layers: 1\na: {b: {c: {d: {e: {f: {g: 1}}}}}}\n", '"f" lies too deep')


def test_yaml_and_json_with_names(reading: Reading) -> None:
    tree = {"language_model": {key[2:].replace("-", "_"): value for key, value in {
        "--num-layers": 2, "--hidden-size": 128, "--num-attention-heads": 8, "--normalization": "RMSNorm", "--swiglu": True,
        "--position-embedding-type": "rope", "--disable-bias-linear": True, "--attention-dropout": 0, "--hidden-dropout": 0,
        "--vocab-size": "1_000"}.items()}, "model_parallel": {"tensor_model_parallel_size": 2, "fp16": None}}
    options = reading.read(json.dumps(tree)).options
    assert options["strategy"] == "tp-sp=2+ddp"
    assert json.loads(options["model"])["vocab_size"] == 1024


def test_arguments_in_a_file_in_variables_and_in_quotes(reading: Reading) -> None:
    assert json.loads(reading.read(f"--num-layers 3\n{MODEL[MODEL.index('--hidden'):]}\n").options["model"])["num_hidden_layers"] == 3
    variables = reading.read(f'#!/bin/bash\nTP=2\nMODEL_ARGS=" \\\n  {MODEL} \\\n  --tensor-model-parallel-size ${{TP}} \\\n"\n')
    assert variables.options["strategy"] == "tp-sp=2+ddp"
    assert "megatron no command starts a program here: read are the arguments that variables and lines hold" in variables.notes()
    quoted = reading.read(f'#!/bin/bash\noptions="{MODEL}"\nrun="cd /x && python -u pretrain_gpt.py ${{options}}"\n'
                          'srun -l sh -c "${run} --bf16"\n')
    assert quoted.options["precision"] == "bf16"
    branches = reading.read("#!/bin/bash\nSIZE=b\ncase $SIZE in\n  a) L=1 ;;\n  b|c) L=2 ;;\n  *) L=3 ;;\nesac\n"
                            f"for i in 1 2; do\n  L=9\ndone\ntorchrun p.py {MODEL} --num-layers $L\n")
    assert json.loads(branches.options["model"])["num_hidden_layers"] == 2
    others = reading.read("#!/bin/bash\npython tool.py --a 1\n" + script("--bf16").replace("_", "-"))
    assert (others.options["precision"], others.options["ranks"]) == ("bf16", "8"), "the first program with such arguments"


# Hostile scripts

END = f"torchrun p.py {MODEL}\n"


@pytest.mark.parametrize("text, message", [
    ("A='open\n", "is not closed"),
    ("A=${B\n", "is not closed"),
    ("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 64, "is larger than 1 MiB"),
    ("A=" + "x" * 100_000 + "\n" + "".join(f"B{n}=$A\n" for n in range(1000)), "unfold to more than 16 MiB"),
    ("if [ 1 == 1 ]; then\n" * 100, "nested deeper than 16 levels"),
    ("X=" + "${A:-" * 1000 + "1" + "}" * 1000 + "\n", "nested deeper than 16 levels"),
])
def test_hostile_scripts_are_refused_at_once(reading: Reading, text: str, message: str) -> None:
    reading.refused("#!/bin/bash\n" + text + END, message)


def test_a_script_without_arguments_is_refused(reading: Reading) -> None:
    reading.refused("#!/bin/bash\necho hello\n", "starts no program with arguments of Megatron-LM")


def test_numbers_that_are_not_known_leave_a_key_out(reading: Reading) -> None:
    deep = "$((" + "(" * 1000 + "2" + ")" * 1000 + "))"
    assert json.loads(reading.read(f"#!/bin/bash\nL={deep}\n{END}").options["model"])["num_hidden_layers"] == 4
    assert options_of(reading, "--seed $((40 + 3 - 1))")["seed"] == "42"
    target = reading.read(script("--seed $((9223372036854775807*2))"))
    assert target.options["seed"] == "1234"
    assert "megatron seed: its value is not known without running the script; as if it were absent" in target.notes()


def test_nothing_is_executed(reading: Reading) -> None:
    made = reading.folder / "made"
    options_of(reading, f"--save $(touch {made}) `touch {made}`")
    assert not made.exists()


def test_no_beginning_of_arguments_hides_another() -> None:
    assert not [(one, other) for one in FAMILIES for other in FAMILIES if one != other and other.startswith(one)]
    assert RULES["torchrun"].kind == "group"
