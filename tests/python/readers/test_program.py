"""The program's side: --from FILE, and consist import."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest
from readers.test_accelerate import DEEPSPEED
from readers.test_adapters import LORA, automodel, axolotl, trl
from readers.test_automodel import RECIPE
from readers.test_bridge import CONTAINER, OVER_A_RECIPE
from readers.test_megatron import WHOLE as MEGATRON
from readers.test_primus import EXPERIMENT, check_out
from readers.test_torchtitan import WHOLE, toml
from readers.test_torchtitan_dump import dump
from readers.test_trainer import ARGUMENTS, AXOLOTL

Result = "subprocess.CompletedProcess[str]"
FILES: Dict[str, str] = {"titan": WHOLE, "titan2": toml("pipeline_parallel_degree = 2", "[activation_checkpoint]\nmode = 'full'\n"),
                         "dump": json.dumps(dump()), "arguments": json.dumps({**ARGUMENTS, "model_name_or_path": "Qwen/Qwen3-8B"}), "axolotl": AXOLOTL,
                         "script": MEGATRON, "automodel": RECIPE, "bridge": CONTAINER, "experiment": EXPERIMENT,
                         "qlora": axolotl("qlora", LORA + "load_in_4bit: true\n"), "lora": automodel(target_modules=["*.self_attn.*"]),
                         "dpo": AXOLOTL + "rl: dpo\n",
                         "peft": trl(model_name_or_path="Qwen/Qwen3-8B", load_in_4bit=True)}


def run(program: str, folder: Path, *words: str, **environment: str) -> Result:
    """Runs the program in the folder."""
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_imported_file_is_the_configuration_of_from(program: str, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    check_out(tmp_path)
    imported = run(program, tmp_path, "import", name, "--output", "run.toml", "--ranks", "16")
    assert imported.returncode == 0, imported.stderr
    own = run(program, tmp_path, "train", "--config", "run.toml", "--print-config")
    direct = run(program, tmp_path, "train", "--from", name, "--ranks", "16", "--print-config")
    assert (own.returncode, direct.returncode) == (0, 0), own.stderr + direct.stderr
    assert own.stdout == direct.stdout


def test_what_a_file_leaves_open_is_given(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(OVER_A_RECIPE)
    assert "give --model" in run(program, tmp_path, "import", "a.yaml").stderr
    block = ["recompute_granularity=full", "recompute_method=block", "recompute_num_layers=2"]  # needs the model's layers
    imported = run(program, tmp_path, "import", "a.yaml", "--output", "run.toml", "--model", "llama-3.2-1b", "--ranks", "4",
                   *(word for value in block for word in ("--set", f"model.{value}")))
    assert imported.returncode == 0, imported.stderr
    own = run(program, tmp_path, "train", "--config", "run.toml", "--print-config")
    direct = run(program, tmp_path, "train", "--from", "a.yaml", "--model", "llama-3.2-1b", "--ranks", "4", "--print-config",
                 *(word for value in block for word in ("--from-set", f"model.{value}")))
    assert own.stdout == direct.stdout and 'recompute-layers = "0-1"' in own.stdout, own.stderr + direct.stderr


def test_each_key_is_a_comment(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WHOLE)
    text = run(program, tmp_path, "import", "a.toml").stdout
    for line in ("# Honoured:", '#   model.flavor "8B": --model llama-3.1-8b', "# Without effect here:",
                 '#   training.dataset "c4": no effect here: --dataset and its options say what is trained on',
                 "# Keys that are absent have torchtitan's defaults:", "#   --adamw.beta1 0.9 (beta1)", 'model = "llama-3.1-8b"', "[wsd]"):
        assert line in text.splitlines()
    document = json.loads(run(program, tmp_path, "import", "a.toml", "--set", "training.steps=7", "--json").stdout)
    assert (document["version"], document["format"], document["options"]["steps"]) == (1, "torchtitan", "7")
    assert {"key": "training.seq_len", "value": 4096, "what": "--sequence 4096", "fate": "honoured"} in document["keys"]


def test_refusals_are_said_together(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(toml("tensor_parallel_degree = 'x'", "[optimizer]\nname = 'Lamb'\n"))
    for words in (["import", "a.toml"], ["train", "--from", "a.toml"]):
        result = run(program, tmp_path, *words)
        assert result.returncode == 2
        assert result.stderr.startswith("consist: --from a.toml: 2 things are not done here:\n")
        assert result.stderr.count("consist:") == 1
    assert run(program, tmp_path, "import", "none").returncode == 1
    assert run(program, tmp_path, "train", "--from", "none").returncode == 1


def test_files_are_not_replaced_unasked(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WHOLE)
    (tmp_path / "run.toml").write_text("mine")
    refused = run(program, tmp_path, "import", "a.toml", "--output", "run.toml")
    assert refused.returncode == 2 and "--overwrite replaces it" in refused.stderr
    assert (tmp_path / "run.toml").read_text() == "mine"
    assert run(program, tmp_path, "import", "a.toml", "--output", "run.toml", "--overwrite").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.toml", "run.toml"], "nothing else is left there"
    assert (tmp_path / "run.toml").stat().st_mode & 0o777 == 0o644


def test_a_folder_named_consist_hides_nothing(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WHOLE)
    for name in ("consist", "yaml", "json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the working folder was taken')")
    assert run(program, tmp_path, "train", "--from", "a.toml", "--print-config").returncode == 0
    assert run(program, tmp_path, "import", "a.toml").returncode == 0


@pytest.mark.parametrize("script, status, message", [
    (None, 2, "install Python (3.9 or later) with PyYAML"),
    ("exit 3", 1, "ended with status 3"),
    ("echo nonsense", 1, "answers what is no reply"),
    ("echo '{\"version\": 2, \"format\": \"x\", \"options\": {}, \"stated\": [], \"notes\": []}'", 1, "of another version"),
    ("echo '{\"version\": 1, \"format\": \"x\", \"options\": {\"x\": \"1\"}, \"stated\": [], \"notes\": []}'", 1, "sets --x, which there is not"),
    ("echo Traceback '(most recent call last)': >&2; exit 1", 1, "ended with status 1"),
])
def test_a_python_that_does_not_answer_is_named(program: str, tmp_path: Path, script: str, status: int, message: str) -> None:
    (tmp_path / "a.toml").write_text(WHOLE)
    python = tmp_path / "python"
    if script:
        python.write_text("#!/bin/sh\n" + script + "\n")
        python.chmod(0o755)
    result = run(program, tmp_path, "train", "--from", "a.toml", "--print-config", CONSIST_PYTHON=str(python))
    assert result.returncode == status
    assert message in result.stderr and str(python) in result.stderr or "sets --x" in result.stderr or "version" in result.stderr


def test_deepspeed_is_read_by_the_program(program: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 3, "bf16": {"enabled": "auto"}}')
    (tmp_path / "a.yaml").write_text(DEEPSPEED + "  deepspeed_config_file: ds.json\n")
    common: List[str] = ["--print-config", "--model", "llama-tiny"]
    named = run(program, tmp_path, "train", "--from", "a.yaml", *common)
    for line in ('strategy = "zero2"', "batch = 3", 'precision = "bf16"', "ranks = 2", 'stage = "2"'):
        assert line in named.stdout.splitlines(), named.stderr
    direct = run(program, tmp_path, "train", "--from", "ds.json", "--from-set", "train_micro_batch_size_per_gpu=5", *common)
    assert "batch = 5" in direct.stdout.splitlines(), direct.stderr


def test_values_of_a_file_are_compared(program: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(toml("data_parallel_shard_degree = 2", "[activation_checkpoint]\nmode = 'full'\n"))
    result = run(program, tmp_path, "compare", "--from", "a.toml", "--predict", "--machine", "h100", "--strategy", "from,zero2",
                 "--from-set", "training.seq_len=16,32")
    assert result.returncode == 0, result.stderr
    for row in ("   from      16 ", "zero2     32 ", "strategy zero2 over from: "):
        assert row in result.stdout
