"""Models by name: --model hf://ORG/NAME, from the cache of huggingface_hub, which a stand-in of that package fills."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest

CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
STAND_IN = """
import json, os, pathlib
def snapshot_download(name, revision, allow_patterns):
    if name == "org/broken": raise OSError("no route to the hub")
    folder = pathlib.Path(os.environ["HF_HUB_CACHE"], "models--" + name.replace("/", "--"))
    snapshot = folder / "snapshots" / "%s"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / revision).write_text("%s")
    (snapshot / "config.json").write_text(json.dumps(%r))
    (snapshot / "asked.json").write_text(json.dumps(allow_patterns))
""" % (COMMIT, COMMIT, CONFIG)


@pytest.fixture
def environment(tmp_path: Path) -> Dict[str, str]:
    package = tmp_path / "site" / "huggingface_hub"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return dict(kept, HF_HUB_CACHE=str(tmp_path / "cache"), CONSIST_PYTHON=sys.executable, PYTHONPATH=str(tmp_path / "site"),
                OMP_NUM_THREADS="1")


def run(program: str, environment: Dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=environment)


def test_what_is_missing_is_downloaded_once(program: str, environment: Dict[str, str], tmp_path: Path) -> None:
    words = ["explain", "--model", "hf://org/tiny", "--summary"]
    first = run(program, environment, *words)
    assert first.returncode == 0 and "parameters" in first.stdout, first.stderr
    snapshot = tmp_path / "cache" / "models--org--tiny" / "snapshots" / COMMIT
    assert not any("safetensors" in pattern for pattern in json.loads((snapshot / "asked.json").read_text()))
    # The stand-in would fail where the folder is there.
    assert run(program, environment, *words).returncode == 0
    pinned = run(program, dict(environment, HF_HUB_OFFLINE="1"), "explain", "--model", f"hf://org/tiny@{COMMIT}", "--summary")
    assert pinned.returncode == 0, pinned.stderr


def test_offline_only_the_cache_counts(program: str, environment: Dict[str, str]) -> None:
    result = run(program, dict(environment, HF_HUB_OFFLINE="1"), "explain", "--model", "hf://org/tiny", "--summary")
    assert result.returncode == 2 and "hf download org/tiny" in result.stderr and environment["HF_HUB_CACHE"] in result.stderr


def test_without_the_package_it_says_what_to_download(program: str, environment: Dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "site" / "huggingface_hub" / "__init__.py").write_text("raise ImportError('none')")
    result = run(program, environment, "explain", "--model", "hf://org/tiny@v2", "--summary")
    assert result.returncode == 2 and "hf download org/tiny --revision v2" in result.stderr


def test_a_failed_download_says_why(program: str, environment: Dict[str, str]) -> None:
    result = run(program, environment, "explain", "--model", "hf://org/broken", "--summary")
    assert result.returncode == 2 and "no route to the hub" in result.stderr and "hf download org/broken" in result.stderr


def test_training_asks_for_weights(program: str, environment: Dict[str, str], tmp_path: Path) -> None:
    words = ["train", "--model", "hf://org/tiny", "--dataset", "synthetic", "--steps", "1", "--batch", "1", "--sequence", "16", "--device",
             "cpu"]
    run(program, environment, "explain", *words[1:])
    (tmp_path / "site" / "huggingface_hub" / "__init__.py").write_text(
        "import sys\ndef snapshot_download(name, revision, allow_patterns):\n    print('asked for', allow_patterns)\n")
    result = run(program, environment, *words)
    assert result.returncode == 2 and "*.safetensors" in result.stderr and "has no weights on this machine" in result.stderr
    result = run(program, environment, *words, "--from-scratch")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["hf://tiny", "hf://../etc/tiny", "hf://org/ti ny", "hf://org/tiny@"])
def test_other_forms_are_refused(program: str, environment: Dict[str, str], name: str) -> None:
    result = run(program, environment, "explain", "--model", name)
    assert result.returncode == 2 and "hf://ORG/NAME" in result.stderr
