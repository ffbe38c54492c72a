"""Verdicts: the command's JSON and Markdown on real archives, and the package's object."""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

import consist
from conftest import ROOT

SCHEMA = ROOT / "docs" / "json" / "verdict.schema.json"


def run(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "verdict", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def rows(comparison: Path) -> tuple[Path, Path]:
    """Both rows of the comparison: fp32 and bf16, by compare's names without the ending."""
    fp32, = comparison.glob("*fp32.h5")
    bf16, = comparison.glob("*bf16.h5")
    return fp32.with_suffix(""), bf16.with_suffix("")


def test_json_is_as_its_schema_says(program: str, comparison: Path) -> None:
    fp32, bf16 = rows(comparison)
    for words, statuses in ((("--slower", "90%"), {0, 3}), ((), {0})):
        result = run(program, fp32, bf16, *words, "--json")
        assert result.returncode in statuses, result.stderr
        document = json.loads(result.stdout)
        jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
        assert document["status"] == result.returncode
        assert len(document["a"]["archives"]) >= 2
        assert [(d["kind"], d["name"], d["a"], d["b"]) for d in document["differences"]] == [("option", "precision", "fp32", "bf16")]
        memory = document["judgements"][1]
        assert memory["method"] == "exact" and memory["ratio"] == pytest.approx(memory["b"] / memory["a"])
        reason = document["reason"]
        assert sum(part["change_seconds"] for part in reason["parts"]) == pytest.approx(reason["change_seconds"], abs=1e-9)
    refused = run(program, fp32, comparison / "none.h5", "--json")
    assert refused.returncode == 2
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(refused.stdout))


def test_a_comparison_of_compare_was_made_by_turns(program: str, comparison: Path) -> None:
    fp32, bf16 = rows(comparison)
    first = json.loads(run(program, fp32.with_suffix(".h5"), bf16.with_suffix(".h5"), "--json").stdout)
    assert first["by_turns"] is True, "a run's end and length are in its archive"
    assert "lie beside it" in first["notes"][0]


def test_a_folder_of_two_rows_is_refused(program: str, comparison: Path) -> None:
    result = run(program, comparison, rows(comparison)[0])
    assert result.returncode == 2 and "names runs of several configurations: precision is bf16" in result.stderr


def test_the_package_has_it_as_an_object(comparison: Path) -> None:
    fp32, bf16 = rows(comparison)
    verdict = consist.verdict(fp32, [bf16.with_suffix(".h5"), Path(f"{bf16}.repeat2.h5")], slower=0.9, confidence="99%")
    assert verdict.confidence == 0.99 and verdict.slower == 0.9
    assert verdict.is_slower in (False, None)
    assert verdict.speed.call in ("better", "worse", "same", "unclear") and verdict.loss.quantity == "loss"
    assert list(verdict.table.quantity) == ["speed", "memory", "loss", "energy"]
    assert verdict.memory.call in ("better", "worse") and verdict.energy.problem.startswith("not measured")
    assert "parts of the step's time" in str(verdict) and verdict._repr_html_().count("<table>") == 4
    same = consist.verdict(fp32, fp32)
    assert same.is_slower is None and same.memory.call == "same" and not same.differences
    with pytest.raises(consist.UsageError, match="--slower is \"100%\"; it must be a percentage between 0% and 100%"):
        consist.verdict(fp32, bf16, slower=1.0)


def test_markdown_is_a_table(program: str, comparison: Path) -> None:
    text = run(program, *rows(comparison), "--markdown").stdout
    assert re.search(r"^\| speed, tokens/s \|( [^|]+ \|){5}$", text, re.MULTILINE), text
    assert "Options that differ:\n\n- precision: fp32 (A), bf16 (B)" in text


def test_the_example_workflow_gives_options_that_exist(program: str) -> None:
    text = (ROOT / "docs" / "verdict-workflow.yml").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"bin/consist (train|verdict) ([^>\n]*)", text)
    assert [command for command, _ in commands] == ["train", "verdict"]
    for command, words in commands:
        page = subprocess.run([program, command, "--help"], capture_output=True, text=True, timeout=60).stdout
        for option in re.findall(r"--[a-z-]+", words):
            assert option in page, f"{command} has no {option}"


TINY = ["--model", "llama-tiny", "--batch", "1", "--sequence", "32", "--dataset", "synthetic", "--device", "cpu", "--steps", "12"]


def compare(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "compare", *TINY, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=240)


def test_compare_repeats_rows_until_they_are_decided(program: str, tmp_path: Path) -> None:
    result = compare(program, "--seed", "0,1", "--until-sure", "12s", "--within", "90%", "--output", tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    jsonschema.Draft202012Validator(json.loads((SCHEMA.parent / "compare.schema.json").read_text())).validate(last)
    verdict, = last["verdicts"]
    assert (verdict["row"], verdict["against"]) == (1, 0) and verdict["looks"] >= 1
    runs = [len(row["archives"]) for row in last["rows"]]
    assert runs[0] == runs[1] >= 3, "rows take turns, and three of each come before the first look"
    assert verdict["interval_confidence"] == pytest.approx(1 - 0.05 / (verdict["looks"] * (verdict["looks"] + 1)))
    assert "Verdicts against A, llama-tiny_seed0" in result.stderr
    against = compare(program, "--output", tmp_path / "again", "--against", tmp_path / "llama-tiny_seed0", "--slower", "99%",
                      "--repeats", 3)
    assert against.returncode in (0, 3) and f"Verdicts against A, {tmp_path}/llama-tiny_seed0" in against.stdout


@pytest.mark.parametrize("words, message", [
    (["--slower", "2%"], "--slower is of a verdict on the rows, which --against ARCHIVE or --until-sure DURATION asks for"),
    (["--until-sure", "10"], '--until-sure is "10"; it must be a duration with its unit'),
    (["--until-sure", "10min", "--predict"], "--until-sure judges runs of this command, which --predict does not make"),
    (["--against", "none.h5"], "there is no 'none.h5': a side is"),
])
def test_compare_refuses_what_cannot_be_judged(program: str, tmp_path: Path, words: list[str], message: str) -> None:
    output = [] if "--predict" in words else ["--output", str(tmp_path / "c")]
    result = compare(program, *words, *output)
    assert result.returncode == 2 and message in result.stderr, result.stderr
    assert not (tmp_path / "c").exists(), "nothing was run"
