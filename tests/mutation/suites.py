"""Which tests should notice an error in a folder, the most related first, and what of the copy is built again for it."""

# The nets for programs: short ones of every kind first.
PROGRAM = [
    ("interpreter", "PlantedErrors.*:Order.*:*Compositions.Triples/llama_fp32:*Layouts.Zero*/llama_bf16:*Layouts.Ddp/llama_fp32:Rounding.*"),
    ("passes", "*"), ("program", "*"), ("zero", "*"), ("pipeline", "*"), ("tp-sp", "*"),
    ("conformance_strategy", "*ddp*:*zero2*"), ("precision", "*"), ("conformance_parts", "*"),
    ("interpreter", "-*RandomConfigurations*:*bf16*:*fp8*:*biases*"),
    ("interpreter", "*Compositions*fp8*:*Scal*:*RandomConfigurations*"),
]
# Short tests of what a run does; those with faults, kills and resumed layouts take minutes and come last.
RUNS = [
    ("runtime", "Trainer*:Evaluation*:TrainingData*:*StepOf*:Mfu*:ModelFlops*:Bound*:SavedState*:InitialValues*:Divisions*:*StagedUpload*:*Agree*:"
                "Archive*:RankSpeeds*:StartTimes*:HostMemory*:JobMemory*:MemoryLimit*:*Traffic*:Advice*:SteadyState*:Progress*:FitLine*:CommunicatorProof*:"
                "DeviceOptions*:Profile*:Observers*:ProcessorUse*:UsableCores*:LastResort*:StandardStreams*"),
    ("archive", "-*Kill*"), ("commands", "TrainCommand*:Explain*"), ("runtime", "Bf16States*:*ResumeOf*:*DiskFull*:RankProgress*:Precisions/LayoutResume.ARunMay*/fp32"),
]

# By the beginning of the path; the longest one that fits.
SUITES = {
    "core/": [("program", "*")] + RUNS,
    "core/archive": [("archive", "*"), ("commands", "Compare*"), ("runtime", "Archive*")],
    "core/checkpoint": [("checkpoint", "*"), ("runtime", "*SavedState*:*DiskFull*"), ("runtime", "*Resume*:*State*")],
    "core/collectives": [("transport", "*"), ("conformance_transport", "*")],
    "core/config": [("commands", "*")] + RUNS,
    "core/cost": [("cost", "*"), ("plan", "*"), ("passes", "*"), ("commands", "Explain*:BenchExpect*:Calibrate*:Compare*"), ("pipeline", "*"), ("zero", "*")],
    "core/base": [("files", "*"), ("checkpoint", "*"), ("weights", "*"), ("models", "*"), ("runtime", "*DiskFull*")],
    "core/base/did_you_mean": [("commands", "BadOptions*"), ("plugin", "*Command*")],
    "core/job": [("job", "*"), ("runtime", "*Agreement*:*Progress*"), ("launcher", "*"), ("runtime", "*Fault*")],
    "core/network": [("job", "*"), ("transport", "*"), ("launcher", "*")],
    "core/expressions": [("program", "*"), ("ops", "*")] + PROGRAM,
    "core/ops": [("ops", "*")] + PROGRAM + [("cpu", "*"), ("cost", "*"), ("plan", "*"), ("runtime", "*Traffic*"), ("commands", "Explain*")],
    "core/passes": PROGRAM[:1] + [("cpu", "Gradient*")] + PROGRAM[1:] + [("plan", "*"), ("commands", "Explain*")] + RUNS[:1],
    "core/compile": PROGRAM[:1] + [("cpu", "Gradient*")] + PROGRAM[1:] + [("plan", "*"), ("commands", "Explain*")] + RUNS[:1],
    "core/lower": PROGRAM[:1] + [("cpu", "Gradient*")] + PROGRAM[1:] + [("plan", "*"), ("commands", "Explain*")] + RUNS[:1],
    "core/passes/adamw": [("parity", "*OptimizerParity*"), ("interpreter", "*Optimizers*"), ("passes", "*")],
    "core/plan": [("plan", "*"), ("program", "*"), ("passes", "*"), ("cost", "*"), ("commands", "Explain*:BenchExpect*")] + RUNS + PROGRAM[:1] + [("conformance_strategy", "*ddp*:*zero2*")],
    "core/plan/links": [("plan", "*"), ("commands", "PredictTransports*:ComparePredict*"), ("runtime", "*Agree*")],
    "core/plan/machine_choice": [("cost", "*"), ("plan", "*"), ("commands", "Explain*:BenchExpect*:Predict*")],
    "core/plugin": [("plugin", "*"), ("commands", "*Plugins*:*Options*"), ("external", "*")],
    "core/program": [("program", "*"), ("cost", "*")] + PROGRAM + [("ops", "*"), ("plugin", "*"), ("commands", "Explain*")],
    "core/connect": RUNS + [("parity", "*HfParity.WholeBatch*:*OptimizerParity*"), ("checkpoint", "-*Kill*"), ("cost", "*"), ("commands", "*Profile*:Trace*:Compare*"), ("runtime", "*")],
    "core/record": RUNS + [("parity", "*HfParity.WholeBatch*:*OptimizerParity*"), ("checkpoint", "-*Kill*"), ("cost", "*"), ("commands", "*Profile*:Trace*:Compare*"), ("runtime", "*")],
    "core/state": RUNS + [("parity", "*HfParity.WholeBatch*:*OptimizerParity*"), ("checkpoint", "-*Kill*"), ("cost", "*"), ("commands", "*Profile*:Trace*:Compare*"), ("runtime", "*")],
    "core/training": RUNS + [("parity", "*HfParity.WholeBatch*:*OptimizerParity*"), ("checkpoint", "-*Kill*"), ("cost", "*"), ("commands", "*Profile*:Trace*:Compare*"), ("runtime", "*")],
    "core/training/batches": [("runtime", "Trainer*:Evaluation*:TrainingData*")] + RUNS,
    "core/record/bound": [("runtime", "Bound*:Mfu*")] + RUNS,
    "core/state/initial_values": [("runtime", "InitialValues*")] + RUNS,
    "core/training/warmup": [("schedules", "*"), ("conformance_parts", "*Schedule*")],
    "core/record/metrics": [("runtime", "ModelFlops*:SteadyState*:Mfu*")] + RUNS,
    "core/training/trainer": [("runtime", "Trainer*:Evaluation*:TrainingData*")] + RUNS,
    "core/weights": [("weights", "*"), ("models", "*"), ("parity", "*HfParity.WholeBatch*")],
    "plugins/strategies": PROGRAM,
    "plugins/strategies/common": [("tp-sp", "*"), ("interpreter", "*ContextParallel*:*InTurns*")] + PROGRAM,
    "plugins/strategies/cp": [("interpreter", "*ContextParallel*")] + PROGRAM,
    "plugins/strategies/pipeline": [("pipeline", "*")] + PROGRAM,
    "plugins/strategies/tp-sp": [("tp-sp", "*")] + PROGRAM,
    "plugins/strategies/zero": [("zero", "*")] + PROGRAM,
    "plugins/precisions": [("precision", "*"), ("runtime", "*Bf16*")] + PROGRAM + [("conformance_parts", "*"), ("parity", "*HfParity.WholeBatch*")],
    "plugins/optimizers": [("interpreter", "*Optimizers*:*Layouts*llama_fp32*"), ("parity", "*OptimizerParity*"), ("passes", "*")],
    "plugins/schedules": [("schedules", "*"), ("conformance_parts", "*Schedule*")],
    "plugins/adapters": [("interpreter", "*Adapt*"), ("parity", "*Peft*"), ("conformance_parts", "*Adapter*")],
    "plugins/devices": [("kernels", "*"), ("cpu", "*"), ("runtime", "*Bf16*:*Progress*"), ("parity", "*HfParity.WholeBatch*:*OptimizerParity*:*MaskParity*")],
    "plugins/devices/cpu/executable": [("cpu", "*"), ("runtime", "*Bf16*:*Progress*:*StepOf*"), ("parity", "*HfParity.WholeBatch*")],
    "datasets": [("datasets", "*"), ("tokenizer", "*")],
    "models": [("models", "*"), ("parity", "*HfParity.WholeBatch*")],
    "launch": [("commands", "*"), ("launcher", "*")],
    "launch/search/advise": [("advise", "*")],
    "launch/search/reproduce": [("python", "test_reproduce.py")],
    "launch/measure": [("commands", "Calibrate*:OpTimes*:Throttling*:HostLink*")],
    "launch/search/tune": [("advise", "*Tune*"), ("commands", "Tune*")],
    "launch/predict": [("advise", "*"), ("commands", "Predict*:ComparePredict*:Tune*")],
    "launch/verdict": [("verdict", "*"), ("commands", "Hostile*")],
    "launch/import": [("commands", "*Deepspeed*:*TrainerFile*"), ("commands", "*")],
    "launch/python": [("python", ".")],
    "launch/python/consist/readers": [("python", "readers")],
    "launch/start/launcher": [("launcher", "*"), ("commands", "TrainCommand*:Signals*")],
    "launch/start/stop_signals": [("launcher", "*"), ("commands", "TrainCommand*:Signals*")],
}


# Layouts in which `consist prove` looks for errors (mutation.py --prove): each strategy, its ways, and what they are combined with.
PROVEN = """
--model llama-tiny --strategy ddp --ranks 4 --accumulation 2 --ddp.bucket-size 100Ki
--model llama-tiny --strategy zero2 --ranks 3 --accumulation 2 --precision bf16
--model qwen3-tiny --strategy zero3-offload --ranks 2 --accumulation 2 --precision bf16 --zero3-offload.offload-optimizer.device cpu
--model llama-3.2-1b --strategy tp-sp=2+pipeline=2+ddp --ranks 8 --accumulation 4 --sequence 4096 --batch 1 --precision bf16 --tp-sp.logits-bytes 4Mi
--model llama-3.2-1b --strategy pipeline=4 --ranks 4 --accumulation 4 --batch 1 --sequence 2048
--model llama-3-8b --strategy cp=2+zero2 --ranks 4 --sequence 8192 --batch 1 --cp.attention gather
--model llama-3-8b --strategy cp=4 --ranks 4 --sequence 8192 --batch 1 --cp.attention ring --offload-activations all
--model llama-3-8b --strategy cp=2+ddp --ranks 4 --sequence 8192 --batch 1 --cp.attention ulysses --recompute full
--model qwen3-30b-a3b --strategy ep=2+tp-sp=2+zero2 --ranks 8 --sequence 4096 --batch 1 --precision bf16 --accumulation 2
--model mixtral-8x7b --strategy ep=4 --ranks 4 --sequence 4096 --batch 4 --ep.dispatch all-to-all --accumulation 2 --ep.parts 2
--model llama-tiny --strategy zero2 --ranks 2 --zero2.offload-optimizer.device cpu --zero2.offload-optimizer.update cpu
--model qwen3-tiny --strategy cp=6+zero3-offload --ranks 12 --batch 1 --sequence 768 --cp.attention ulysses --precision bf16
--model llama-tiny --strategy pipeline=4 --ranks 4 --accumulation 4 --batch 1 --pipeline.cut operators
--model llama-tiny --strategy ddp --ranks 2 --synthetic.fields loss_mask --dataset synthetic --precision fp8
"""


def proven_layouts():
    return PROVEN.strip().splitlines()


def longest(path, table):
    fitting = [beginning for beginning in table if path.startswith(beginning)]
    if not fitting:
        raise ValueError(f"suites.py says nothing of {path}")
    return table[max(fitting, key=len)]


def of(path):
    """(test program, filter) pairs."""
    seen, tests = set(), []
    for test in longest(path, SUITES):
        if test not in seen:
            seen.add(test)
            tests.append(test)
    return tests


# Test programs load the library and the plugins; those that contain sources of the tree themselves are built again.
KERNELS = [f"lib/consist/cpu/kernels-x86-64-v{level}.so" for level in (2, 3, 4)]
TARGETS = {
    "core/": ["lib/libconsist.so"],
    "plugins/strategies/ep": ["lib/consist/plugins/strategy-ep.so"],
    "plugins/devices/cpu": ["lib/consist/plugins/device-cpu.so"],
    "plugins/devices/cpu/kernels": KERNELS,
    "plugins/devices/common": KERNELS,
    "plugins/strategies/zero": ["lib/consist/plugins/strategy-zero2.so", "lib/consist/plugins/strategy-zero3-offload.so"],
    "plugins/schedules": [f"lib/consist/plugins/schedule-{name}.so" for name in ("constant", "linear", "cosine", "wsd")],
    "plugins/adapters": ["lib/consist/plugins/adapter-lora.so"],
    "plugins/precisions": ["lib/consist/plugins/precision-bf16.so", "lib/consist/plugins/precision-fp8.so"],
    "launch": ["bin/consist", "bin/test_commands", "bin/test_launcher"],
    "launch/search/advise": ["bin/consist", "bin/test_advise"],
    "launch/search/reproduce": ["bin/consist"],
    "launch/predict": ["bin/consist", "bin/test_advise", "bin/test_commands"],
    "launch/python": ["bin/consist"],
    "launch/verdict": ["bin/consist", "bin/test_verdict", "bin/test_commands"],
    "launch/search/tune": ["bin/consist", "bin/test_advise", "bin/test_commands"],
}
TARGETS["plugins/strategies/common"] = ["lib/consist/plugins/strategy-cp.so", "lib/consist/plugins/strategy-ep.so", "lib/consist/plugins/strategy-tp-sp.so"]
for kind, name in [("strategies", "cp"), ("strategies", "ddp"), ("strategies", "pipeline"), ("strategies", "tp-sp"), ("optimizers", "adamw"), ("optimizers", "lion"), ("optimizers", "muon"), ("optimizers", "sgd")]:
    TARGETS[f"plugins/{kind}/{name}"] = [f"lib/consist/plugins/{'strategy' if kind == 'strategies' else 'optimizer'}-{name}.so"]


def targets_of(path):
    return longest(path, TARGETS)
