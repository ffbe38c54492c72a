#!/usr/bin/env python3
"""Every command that the documents and examples show is run, or, where it needs GPUs, a cluster or a long time, planned for its machine.
Usage: tests/commands/documented_commands.py CONSIST [ROOT [FILE...]]

Commands stand in fenced blocks of Markdown and, with options, in backquotes; in the comments and steps of the launch scripts; in the
arguments of the JobSet. They are read from the files, so that a new one is tested as it is written. How each is tested:

  train, compare   planned: `consist predict` and `consist compare --predict` of the same options, for --machine, for the machine `cpu`
                   where the models are tiny, else for the machine that predictions take. A plan that does not fit or is refused is a
                   failure, unless the output that the document shows says so
  tune             searched for a second, with --measure 0
  advise           as `predict`, whose options are the same
  evaluate, generate, show, report, watch
                   run, with the archives and the checkpoint of two steps in place of those that they name
  explain, predict, plugins, bench expect, completion, man
                   run as they stand
  others           their options are those of `consist man COMMAND`; so it is for docs/results, whose commands have been run

A command with `...` is tested without it. Prints what is wrong, one line each, and exits with 1."""
import concurrent.futures
import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

FENCED = re.compile(r"^\s*(?:\$ )?((?:[A-Z_]+=\S+ |srun [^|]*?|mpirun [^|]*?)*)consist (?P<words>[a-z][\w-]*(?:\s.*)?)$")
BACKQUOTED = re.compile(r"`consist ([a-z][^`]*)`")
PLACEHOLDER = re.compile(r"(?<![\w-])(?:[A-Z]{1,}|NAME|FILE)(?:\.\w+)?(?![\w=])|<|…")
SECONDS = 120

# Commands of parts that are not in the tree: tests/external builds these and runs what docs/plugins.md and docs/kernels.md say of them.
OF_EXTERNAL = ("ddp-plain", "plain-decoder-tiny", "squared-relu")
# Without a place in predictions.
OF_RUNS = {"--repeats": 1, "--until-sure": 1, "--output": 1, "--overwrite": 0, "--add": 1, "--measure": 1, "--search-seconds": 1, "--configurations": 1, "--rows": 1,
           "--on": 1, "--cluster": 1, "--dry-run": 0, "--max-restarts": 1, "--snapshot-every": 1}

TORCHTITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
global_batch_size = 64
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "none"
[optimizer]
lr = 3e-4
"""
MEGATRON = """torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \\
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 8192 \\
  --micro-batch-size 1 --global-batch-size 32 --train-iters 100 --lr 3e-4 --bf16 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --rotary-base 500000 --disable-bias-linear --untie-embeddings-and-output-weights \\
  --use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel --vocab-size 128256 --make-vocab-size-divisible-by 1 \\
  --attention-dropout 0 --hidden-dropout 0
"""
ACCELERATE = """distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
"""


DPO = """beta: 0.1
max_length: 256
learning_rate: 5.0e-7
per_device_train_batch_size: 2
max_steps: 10
optim: adamw_torch
bf16: true
report_to: none
save_strategy: "no"
"""


class Command:
    def __init__(self, where, words, shown="", ranks=None):
        self.where, self.words, self.shown, self.ranks = where, words, shown, ranks


def joined_lines(lines, at):
    """The line at `at` with those that a backslash adds; and the index of the last of them."""
    text = lines[at].rstrip()
    while text.endswith("\\") and at + 1 < len(lines):
        at += 1
        text = text[:-1] + " " + lines[at].strip().lstrip("# ")
    return text, at


def words_of(text):
    return shlex.split(text, comments=True)


def of_markdown(path, lines):
    fenced, at = False, 0
    while at < len(lines):
        if lines[at].lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            text, last = joined_lines(lines, at)
            match = FENCED.match(text)
            if match and not match["words"].startswith("check: "):
                end = last + 1
                while end < len(lines) and not lines[end].lstrip().startswith(("```", "$ ", "consist ")):
                    end += 1
                on_cluster = match[1].startswith("srun") or " --on " in match["words"]
                ranks = "16" if on_cluster else None  # docs/jobs.md, docs/clusters.md: 8 a node, of two nodes
                yield Command(f"{path}:{at + 1}", words_of(match["words"].split(" | ")[0]), "\n".join(lines[last + 1:end]), ranks)
            at = last
        else:
            for text in BACKQUOTED.findall(lines[at]):
                if " --" in text and not PLACEHOLDER.search(text) and "--model" in text.replace("--models", ""):
                    yield Command(f"{path}:{at + 1}", words_of(text.replace(" > run.toml", "")))
                elif " --" in text:
                    yield Command(f"{path}:{at + 1}", ["options-of"] + words_of(re.sub(r"[<>|].*", "", text)))
        at += 1


def of_slurm(path, lines):
    for at, line in enumerate(lines):
        match = re.match(r"#\s+sbatch --nodes=(\d+) \S+ (.*)", line)
        if match:
            text, _ = joined_lines(lines, at)
            tasks = int(next(re.search(r"--ntasks-per-node=(\d+)", other)[1] for other in lines if "#SBATCH --ntasks" in other))
            words = words_of(re.match(r"#\s+sbatch --nodes=\d+ \S+ (.*)", text)[1])
            added = words_of(lines[-1 if lines[-1] else -2].split('"$@"')[1])
            yield Command(f"{path}:{at + 1}", words + added + ["--machine", "h100"], ranks=str(int(match[1]) * tasks))


def of_jobset(path, lines):
    start = next(at for at, line in enumerate(lines) if line.strip().startswith("args:"))
    words = []
    for line in lines[start + 1:]:
        match = re.match(r"\s+- (\S+)(?:\s+#.*)?$", line)
        if not match:
            break
        words.append(match[1])
    value = {name: int(re.search(r"name: %s, value: \"(\d+)\"" % name, "\n".join(lines))[1]) for name in ("NODES", "GPUS")}
    yield Command(f"{path}:{start + 1}", words + ["--machine=h100"], ranks=str(value["NODES"] * value["GPUS"]))


def of_script(path, lines):
    for at, line in enumerate(lines):
        if line.startswith('"$build/bin/consist" ') or line.startswith("  consist "):
            text, _ = joined_lines(lines, at)
            yield Command(f"{path}:{at + 1}", words_of(text)[1:])


def commands_of(root, files):
    for path in files:
        lines = open(os.path.join(root, path), encoding="utf-8").read().split("\n")
        reader = of_markdown if path.endswith(".md") else of_slurm if path.endswith(".sbatch") else of_jobset if path.endswith(".yaml") else of_script
        yield from reader(path, lines)


def all_files(root):
    found = ["README.md", "launch/quickstart.sh", "launch/slurm/efa.sbatch", "launch/kubernetes/efa-jobset.yaml"]
    for pattern in ("docs/*.md", "docs/results/*.md", "plugins/**/README.md", "models/**/README.md", "datasets/**/README.md"):
        found += sorted(os.path.relpath(path, root) for path in glob.glob(os.path.join(root, pattern), recursive=True))
    return found


def option(words, name):
    for at, word in enumerate(words):
        if word == name and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1:]
    return None


def without(words, names):
    kept, at = [], 0
    while at < len(words):
        name = words[at].split("=")[0]
        if name in names:
            at += names[name] if "=" not in words[at] else 0
        else:
            kept.append(words[at])
        at += 1
    return kept


class Tester:
    def __init__(self, consist, root, folder):
        self.consist, self.root, self.folder = consist, root, folder

    def run(self, words):
        return self.run_once(tuple(words))

    @functools.cache  # documents repeat commands
    def run_once(self, words):
        try:
            result = subprocess.run([self.consist, *words], cwd=self.folder, capture_output=True, text=True, timeout=SECONDS,
                                    stdin=subprocess.DEVNULL, env=dict(os.environ, HF_HUB_CACHE=os.path.join(self.folder, "hub")))
            return result.returncode, result.stdout + result.stderr
        except subprocess.TimeoutExpired:
            return 124, f"it takes more than {SECONDS} s"

    def prepare(self):
        """The files that commands name."""
        os.symlink(os.path.join(self.root, "docs"), os.path.join(self.folder, "docs"))
        os.makedirs(os.path.join(self.folder, "path/to"))
        for name in ("path/to/hugging-face-folder", "path/to/teacher"):
            os.symlink(os.path.join(self.folder, "exported"), os.path.join(self.folder, name))
        model = os.path.join(self.folder, "hub/models--Qwen--Qwen3-0.6B/snapshots")  # as if it had been downloaded
        os.makedirs(model)
        os.symlink(os.path.join(self.folder, "exported"), os.path.join(model, "main"))
        shutil.copy(os.path.join(self.root, "core/cost/machines/h200.json"), os.path.join(self.folder, "here.json"))
        for names, text in ((("train_config.toml", "llama3_8b.toml"), TORCHTITAN), (("train_llama3_8b.sh",), MEGATRON), (("fsdp.yaml",), ACCELERATE), (("dpo.yaml",), DPO),
                            (("corpus.txt", "held-out.txt"), "The moon is a train. " * 300),
                            (("run.toml",), 'model = "llama-tiny"\nstrategy = "ddp"\n')):
            for name in names:
                with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
        status, output = self.run(("train --model qwen3-tiny --dataset text --sequence 32 --batch 1 --steps 2 --device cpu --cpu.threads 1 "
                                   "--archive run.h5 --checkpoint ckpt --export exported").split())
        if status != 0:
            sys.exit("the run that other commands look at failed:\n" + output)
        for name in ("other.h5", "first.h5", "second.h5", "a100.h5", "h200.h5", "h200.repeat2.h5", "runs/quickstart/comparison.h5"):
            os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
            shutil.copy(os.path.join(self.folder, "run.h5"), os.path.join(self.folder, name))
        os.symlink(os.path.join(self.folder, "ckpt"), os.path.join(self.folder, "runs/a"))

    def planned(self, words, ranks):
        words = without(words, OF_RUNS)
        models = option(words, "--model") or ""
        if option(words, "--machine") is None and models and all(model.endswith("-tiny") for model in models.split(",")):
            words += ["--machine", "cpu"]
        return words + (["--ranks", ranks] if ranks and option(words, "--ranks") is None else [])

    def options_exist(self, words):
        if "--" in words:  # consist launch OPTIONS -- COMMAND
            return self.options_exist(words[:words.index("--")]) or self.options_exist(words[words.index("--") + 1:])
        names = [word.split("=")[0] for word in words if word.startswith("--") and "." not in word and word != "--help"]
        command = " ".join(words[:2]) if words[0] == "bench" else words[0]
        status, page = self.run(["man"] + command.split())
        if status != 0:
            return f"there is no command {command}"
        if "OPTIONS of train" in page:
            page += self.run(["man", "train"])[1]
        page = re.sub(r"\\f[BIR]", "", page).replace("\\", "")
        missing = [name for name in names if not re.search(re.escape(name) + r"(?![\w-])", page)]
        return f"consist {command} has no {', '.join(missing)}" if missing else ""

    def problem(self, command):
        words = [word for word in command.words if word not in ("...", "…")]
        if any(name in word for word in words for name in OF_EXTERNAL):
            return ""
        kind = words[0]
        if kind == "options-of" or command.where.startswith(("docs/results.md", "docs/results/")):
            return self.options_exist([word for word in words if word != "options-of"])
        if kind in ("calibrate", "doctor", "launch", "check", "tokenize", "verdict", "residual", "reproduce", "new") or words[:2] == ["bench", "collectives"]:
            return self.options_exist(words)
        if kind in ("train", "advise", "predict"):
            if kind == "train" and option(words, "--model") is None and option(words, "--config") is None and option(words, "--from") is None:
                return self.options_exist(words)
            run = ["predict"] + self.planned(words[1:], command.ranks)
        elif kind == "compare" and option(words, "--add") is None:
            run = ["compare"] + self.planned([word for word in words[1:] if word != "--predict"], command.ranks) + ["--predict"]
        elif kind == "tune":
            run = ["tune"] + self.planned(words[1:], command.ranks) + "--measure 0 --configurations 1 --rows 1 --search-seconds 1".split()
        elif kind == "compare":
            return self.options_exist(words)
        else:
            run = words
        status, output = self.run(run)
        if kind == "tune" and status == 1 and "The search ended by --search-seconds" in output:  # little fits, which is found later
            status, output = self.run(run[:-1] + ["60"])
        excused = [word for word in ("refused", "does not fit", "DOES NOT FIT") if word in command.shown]
        if status != 0 and not excused:
            return f"`consist {shlex.join(run)}` ended with {status}: " + output.strip()[-600:].replace("\n", " | ")
        if kind == "compare":
            for line in output.split("\n"):
                for word in ("refused: ", "does not fit: "):
                    if word in line and word.strip(": ") not in excused:
                        return f"`consist {shlex.join(run)}` has a row that is no run: {line.strip()}"
        return ""


def main():
    consist = os.path.abspath(sys.argv[1])
    root = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "../.."))
    commands = list(commands_of(root, sys.argv[3:] or all_files(root)))
    if len(commands) < (1 if sys.argv[3:] else 60):
        sys.exit(f"only {len(commands)} commands were found: they are no longer read from the files")
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(consist, root, folder)
        tester.prepare()
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            problems = [(command, problem) for command, problem in zip(commands, pool.map(tester.problem, commands)) if problem]
    for command, problem in problems:
        print(f"{command.where}: {problem}")
    print(f"{len(commands)} commands, {len(problems)} of them do not do what they say")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
