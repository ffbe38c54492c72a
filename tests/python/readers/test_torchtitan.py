"""torchtitan's TOML, of both layouts."""
from __future__ import annotations

import json
import math
from typing import Dict, Optional

import pytest
from readers.rates import rate
from readers.reading import Reading

NONE = '[activation_checkpoint]\nmode = "none"\n'


def toml(parallelism: str = "", more: str = "", training: str = "") -> str:
    """A file of the newer layout."""
    return ('[model]\nname = "llama3"\nflavor = "debugmodel"\n[training]\nlocal_batch_size = 4\nseq_len = 128\nsteps = 20\n'
            f"{training}\n[parallelism]\n{parallelism}\n{more}")


def flavor(model: str, name: str, converters: str = "") -> str:
    """A file whose model is that flavor."""
    return f'[model]\nname = "{model}"\nflavor = "{name}"\n{converters}[training]\n[parallelism]\n{NONE}'


def test_all_that_is_refused_is_said_at_once(reading: Reading) -> None:
    reading.refused(toml("tensor_parallel_degree = 'x'", "[unheard_of]\na = 1\n[unknown]\nb = 2\n"),
                    "2 things are not done here", "unheard_of", '"unknown"')
    reading.refused(toml("tensor_parallel_degree = 'x'", '[optimizer]\nname = "Lamb"\n'), "tensor_parallel_degree", "Lamb")


def test_lists_may_be_texts_with_commas(reading: Reading) -> None:
    text = ('[model]\nname = "llama3"\nflavor = "8B"\nconverters = "float8"\n[training]\nsteps = 1\nseq_len = 128\n[parallelism]\n'
            'data_parallel_shard_degree = 1\n[float8]\nfilter_fqns = "output,wq"\n')
    options = reading.read(text).options
    assert options["precision"] == "fp8"
    assert options["fp8.except"] == "*q_proj.weight"


WHOLE = """# remarks are passed over
[job]
description = "a test"
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1e-4
eps = 1e-7
beta2 = 0.9
weight_decay = 0.05
[lr_scheduler]
warmup_steps = 2
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 4096
max_norm = 0.5
steps = 50
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
context_parallel_degree = 1
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "full"
[compile]
enable = true
[quantize.linear.float8]
recipe_name = "rowwise"
filter_fqns = ["output", "attention.wk"]
[checkpoint]
enable = true
folder = "x"
export_dtype = "bfloat16"
"""


def test_a_file_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(WHOLE)
    assert target.options == {
        "model": "llama-3.1-8b", "sequence": "4096", "steps": "50", "clip": "0.5", "export-dtype": "bfloat16",
        "strategy": "tp-sp=2+zero3-offload=4+ddp=2", "ranks": "16", "batch": "2", "global-batch": "64", "recompute": "full",
        "precision": "fp8", "fp8.scaling": "row", "fp8.except": "*k_proj.weight", "fp8.states": "f32", "fp8.gradients": "f32",
        "zero3-offload.communication-data-type": "fp32", "zero3-offload.max-reuse-distance": "0",
        "zero3-offload.offload-param.device": "none", "zero3-offload.offload-optimizer.device": "none",
        "optimizer": "adamw", "learning-rate": "0.0001", "weight-decay": "0.05", "adamw.beta1": "0.9", "adamw.beta2": "0.9",
        "adamw.epsilon": "1e-07", "schedule": "wsd", "wsd.warmup": "1", "wsd.decay": "0.96", "wsd.decay-shape": "linear",
        "wsd.final-rate": "0"}
    notes = "\n".join(target.notes())
    for key in ("job {", "model.flavor", "converters", "optimizer.lr", "training.dataset", "parallelism.tensor_parallel_degree",
                "context_parallel_degree", "enable_async_tensor_parallel true: no effect", "activation_checkpoint.mode",
                "compile {", "recipe_name", "filter_fqns", "checkpoint.enable true: no effect", "checkpoint.folder"):
        assert key in notes, "passed over in silence"


def test_a_file_is_summarized_in_a_few_lines(reading: Reading) -> None:
    text = toml("", '[job]\ndescription = "mine"\n[metrics]\nlog_freq = 1\n[compile]\nenable = true\n')
    first, ignored, behind, *rest = reading.read(text, each_key=False, steps=3).notes()
    assert "of torchtitan: 4 keys are taken over, 11 options have its defaults; --from-notes says" in first
    assert ignored == "torchtitan keys without effect here: compile, job, metrics"
    assert behind == "torchtitan keys behind what the command line gives: training.steps"
    assert len(rest) == 1 and "here norms and biases do not decay" in rest[0]


EIGHT = "data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n"
CONTEXT = "data_parallel_shard_degree = 4\ncontext_parallel_degree = 4\n"


@pytest.mark.parametrize("degrees, strategy", [
    ("data_parallel_shard_degree = -1", "zero3-offload"),
    ("data_parallel_shard_degree = -1\ntensor_parallel_degree = 8", "tp-sp=8+zero3-offload"),
    ("data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 4", "ddp=4"),
    ("data_parallel_shard_degree = 1\ncontext_parallel_degree = 8", "cp=8+zero3-offload=1"),  # divided over ranks of cp
    ("data_parallel_shard_degree = 2\npipeline_parallel_degree = 2", "zero3-offload=2+pipeline=2"),
    ("data_parallel_shard_degree = 8\nexpert_parallel_degree = 4", "ep=4+zero3-offload=2"),  # ranks that share parameters
    (EIGHT + "expert_parallel_degree = 4", "tp-sp=2+ep=2+zero3-offload=2"),  # ranks of tp-sp among those of experts
    (EIGHT + "expert_parallel_degree = 2", "tp-sp=2+zero3-offload=4"),
    (EIGHT + "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 2", "tp-sp=2+ep=4+zero3-offload=1"),
    (CONTEXT + "expert_parallel_degree = 8", "cp=4+ep=2+zero3-offload=2"),  # ranks of cp among those of experts
    (CONTEXT + "expert_parallel_degree = 4", "cp=4+zero3-offload=4"),
])
def test_degrees_are_strategies(reading: Reading, degrees: str, strategy: str) -> None:
    target = reading.read(toml(degrees, NONE))
    assert target.options["strategy"] == strategy
    if degrees == CONTEXT + "expert_parallel_degree = 8":
        assert target.options["cp.experts"] == "divided"
        assert target.options["ranks"] == "16"


@pytest.mark.parametrize("forced, load", [("true", "balanced"), ("false", None)])
def test_a_balance_that_is_forced_is_a_load(reading: Reading, forced: str, load: Optional[str]) -> None:
    target = reading.read(WHOLE + f"[debug]\nmoe_force_load_balance = {forced}\n")
    assert target.options.get("expert-load") == load


@pytest.mark.parametrize("degrees, message", [
    (EIGHT + "expert_parallel_degree = 3", "which parallelism.tensor_parallel_degree 2 does not divide"),
    (EIGHT + "expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 3", "it may be 1 or as parallelism.tensor_parallel_degree, 2"),
    ("data_parallel_shard_degree = 2\nexpert_parallel_degree = 4", "does not divide parallelism.data_parallel_shard_degree 2"),
    (CONTEXT + "expert_parallel_degree = 2", "which parallelism.context_parallel_degree 4 does not divide"),
    ("data_parallel_shard_degree = 0", "data_parallel_shard_degree is 0"),
    ("tensor_parallel_degree = 0", "whole number from 1"),
    ("tensor_parallel_degree = true", "tensor_parallel_degree is true; it must be a number"),
    ("data_parallel_shard_degree = 1\nenable = 1", '"parallelism.enable" is not known'),
    ("data_parallel_shard_degree = 1024\ntensor_parallel_degree = 128", "has 131072 ranks"),
    ("pipeline_parallel_degree = 2", "beside a pipeline"),
    ('pipeline_parallel_degree = 2\npipeline_parallel_schedule = "ZBVZeroBubble"', "ZBVZeroBubble"),
    ("pipeline_parallel_degree = 2\npipeline_parallel_microbatch_size = 3", "does not divide the batch 4"),
    ("pipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = 3", "makes 3 stages over 2 ranks"),
    ('context_parallel_rotate_method = "ring"', 'context_parallel_rotate_method is "ring"'),
    ("tensor_paralel_degree = 2", '"parallelism.tensor_paralel_degree" is not known'),
])
def test_degrees_that_are_refused(reading: Reading, degrees: str, message: str) -> None:
    reading.refused(toml(degrees), message)


def test_micro_batches_of_a_pipeline_are_parts_of_the_local_batch(reading: Reading) -> None:
    two = 'pipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"\n'
    options = reading.read(toml(two + "pipeline_parallel_microbatch_size = 2", NONE)).options
    assert (options["batch"], options["accumulation"]) == ("2", "2")
    assert (options["pipeline.schedule"], options["pipeline.chunks"]) == ("interleaved", "2")
    assert options["zero3-offload.max-reuse-distance"] != "0", "beside a pipeline parameters stay whole"
    options = reading.read(toml(two + "pipeline_parallel_layers_per_stage = 2", NONE)).options
    assert options["pipeline.chunks"] == "2", "6 layers and 2 for the ends make 4 stages"


def torchtitan_rate(step: int, warmup: int, total: int, decay: int, kind: str, least: float) -> float:
    """build_lr_schedulers of torchtitan/components/lr_scheduler.py at 238fa99."""
    if step < warmup:
        return (step + 1) / warmup
    stable = total + 1 - warmup - decay
    if step < warmup + stable:
        return 1
    part = (step + 1 - (warmup + stable)) / decay
    left = {"linear": 1 - part, "sqrt": 1 - math.sqrt(part), "cosine": 0.5 * (1 + math.cos(math.pi * part))}[kind]
    return least + (1 - least) * left


@pytest.mark.parametrize("keys, warmup, total, decay, kind, least", [
    ("warmup_steps = 5", 5, 20, 15, "linear", 0),
    ('warmup_steps = 3\ndecay_ratio = 0.4\ndecay_type = "cosine"\nmin_lr_factor = 0.1', 3, 20, 8, "cosine", 0.1),
    ('warmup_steps = 0\ndecay_ratio = 0.3\ndecay_type = "sqrt"', 0, 20, 6, "sqrt", 0),
    ("warmup_steps = 100", 20, 20, 0, "linear", 0),
    ("warmup_steps = 10\ndecay_ratio = 0.8", 10, 20, 10, "linear", 0),
    ("warmup_steps = 2\ntotal_steps = 40", 2, 40, 38, "linear", 0),
])
def test_rates_are_those_of_torchtitan(reading: Reading, keys: str, warmup: int, total: int, decay: int, kind: str,
                                       least: float) -> None:
    target = reading.read(toml("", f"[lr_scheduler]\n{keys}\n[optimizer]\nlr = 2e-3\n"))
    for step in range(20):
        expected = 2e-3 * torchtitan_rate(step, warmup, total, decay, kind, least)
        assert rate(target, step) == pytest.approx(expected, abs=1e-12), step


OLD = """[model]
name = "llama2"
flavor = "7B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
batch_size = 8
seq_len = 2048
warmup_steps = 5
steps = 20
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
compile = false
[experimental]
pipeline_parallel_degree = 4
[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'
[float8]
enable_float8_linear = false
[checkpoint]
enable_checkpoint = false
"""


def test_the_layout_before(reading: Reading) -> None:
    target = reading.read(OLD)
    expected = {"model": "llama-2-7b", "strategy": "tp-sp=2+zero3-offload+pipeline=4", "batch": "2", "accumulation": "4",
                "precision": "bf16", "recompute": "rms_norm,swiglu,rope"}
    assert {option: target.options[option] for option in expected} == expected
    for step in range(20):  # linear_warmup_linear_decay of torchtitan/optimizer.py at 6a6f755
        expected_rate = 3e-4 * ((step + 1) / 6 if step < 5 else 1 - (step - 5) / 15)
        assert rate(target, step) == pytest.approx(expected_rate, abs=1e-12)


def test_which_layout_it_is_follows_from_its_keys(reading: Reading) -> None:
    head = f'[model]\nname = "llama3"\nflavor = "8B"\n{NONE}[training]\nsteps = 9\n'
    assert reading.read(head).options["model"] == "llama-3.1-8b"
    assert reading.read(head + "warmup_steps = 3\n").options["model"] == "llama-3-8b"
    between = reading.read(head + "warmup_steps = 3\n[parallelism]\n").options
    assert (between["model"], between["schedule"]) == ("llama-3.1-8b", "linear")


def test_models_are_by_flavor(reading: Reading) -> None:
    model: Dict[str, object] = json.loads(reading.read(toml()).options["model"])
    sizes = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 6, "hidden_size": 256, "intermediate_size": 768,
             "vocab_size": 2048}
    assert {key: model[key] for key in sizes} == sizes
    assert json.loads(reading.read(flavor("llama3", "405B")).options["model"])["hidden_size"] == 16384
    assert reading.read(flavor("qwen3", "32B")).options["model"] == "qwen3-32b"
    assert json.loads(reading.read(flavor("qwen3", "debugmodel_moe")).options["model"])["num_experts"] == 64
    converted = flavor("qwen3", "debugmodel_moe", 'converters = ["float8"]\n')
    assert reading.read(converted).options["fp8.except"] == "*.experts.*", "the converter of linears leaves experts in bf16"
    filtered = converted + '[float8]\nfilter_fqns = ["wk"]\n'
    assert reading.read(filtered).options["fp8.except"] == "*.experts.*,*k_proj.weight"
    reading.refused(flavor("deepseek_v3", "16B"), "known are llama3 debugmodel, llama3 8B")
    reading.refused(flavor("llama3", "9B"), "Or give --model")
    assert "model" not in reading.read(flavor("deepseek_v3", "16B"), model="llama-tiny").options


@pytest.mark.parametrize("keys, what, layers", [
    ('mode = "none"', "none", None),
    ('mode = "selective"\nselective_ac_option = "op"', "rms_norm,swiglu,rope", None),
    ('mode = "selective"\nselective_ac_option = "2"', "full", "0-2"),  # half of six layers
    ('mode = "selective"\nselective_ac_option = 1', "full", None),
    ("", "full", "0-2"),  # the default is every second
])
def test_activations_are_made_again_as_asked(reading: Reading, keys: str, what: str, layers: str) -> None:
    options = reading.read(toml("", "[activation_checkpoint]\n" + keys)).options
    assert (options["recompute"], options.get("recompute-layers")) == (what, layers)


def test_dtypes_are_honoured(reading: Reading) -> None:
    assert reading.read(toml()).options["precision"] == "bf16"
    assert reading.read(toml(training='mixed_precision_param = "float32"')).options["precision"] == "fp32"
    options = reading.read(toml(training='dtype = "bfloat16"\nenable_cpu_offload = true')).options
    assert options["bf16.states"] == "bf16"
    assert options["zero3-offload.offload-optimizer.device"] == options["zero3-offload.offload-optimizer.update"] == "cpu"


@pytest.mark.parametrize("more, training, message", [
    ("", 'mixed_precision_reduce = "bfloat16"', 'mixed_precision_reduce is "bfloat16"'),
    ('[activation_checkpoint]\nmode = "memory_budget"', "", 'activation_checkpoint.mode is "memory_budget"'),
    ('[optimizer]\nname = "Adam"', "", 'optimizer.name is "Adam"'),
    ("[optimizer]\nearly_step_in_backward = true", "", "early_step_in_backward is true, which is not done here"),
    ("[fault_tolerance]\nenable = true", "", "fault_tolerance.enable"),
    ("[model2]\nx = 1", "", '"model2" is not known here; --from-set model2=null leaves it out'),
    ("", "steps = 5", "line 8"),
    ("", 'max_norm = "1"', 'training.max_norm is "1"; it must be a number'),
    ("", "max_norm = inf", "training.max_norm is Infinity; it must be a number"),
    ("[lr_scheduler]\ndecay_ratio = 2", "", "decay_ratio is 2; it must be from 0 to 1"),
    ("[lr_scheduler]\nmin_lr_factor = 0.1\nlr_min = 0.1", "", "which means the same; leave one of them out"),
    ("[model.x]\n", "", "\"model.x\" is not known"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, more: str, training: str, message: str) -> None:
    reading.refused(toml("", more, training), message)


def test_values_are_replaced_and_the_command_line_goes_first(reading: Reading) -> None:
    two = toml("tensor_parallel_degree = 2")
    target = reading.read(two, "parallelism.tensor_parallel_degree=4", "training.steps=7", clip=2, batch=1)
    assert target.options["strategy"] == "tp-sp=4+zero3-offload"
    assert target.options["steps"] == "7"
    assert not {"clip", "batch"} & set(target.options)
    notes = "\n".join(target.notes())
    assert "4 (--from-set) in place of 2" in notes
    assert "local_batch_size 4: --batch 1 is given and goes before the file" in notes
    target = reading.read(two, strategy="zero2", global_batch=8)
    assert "strategy" not in target.options
    assert "--strategy zero2 is given and goes before the file" in "\n".join(target.notes())
    assert reading.read(two, "parallelism.tensor_parallel_degree=null").options["strategy"] == "zero3-offload"
    for wrong, message in (("a", "must be KEY=VALUE, such as parallelism"), ("model.name.x=1", "no object that could hold")):
        reading.refused(two, message, replacements=[wrong])
