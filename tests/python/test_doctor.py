"""What `consist doctor` says of this machine, held against its schema and its documents."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict

import jsonschema
import pytest

import consist
from conftest import ROOT
from hosts import wait_for

SCHEMA = ROOT / "docs" / "json" / "doctor.schema.json"


def run(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "doctor", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)


def measured(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    """On processors, which other tests keep busy, too."""
    return subprocess.run([program, "doctor", "--device", "cpu", "--json", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})


def by_name(document: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    return {check["check"]: check for check in document["checks"]}


def test_json_is_as_its_schema_says(program: str, tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    result = run(program, "--json", "--archive", tmp_path, "--expect", "efa=100000")
    assert result.returncode == 1, result.stderr
    document = json.loads(result.stdout)
    validator.validate(document)
    checks = document["checks"]
    assert checks[0]["status"] == "wrong"
    expected, = [check for check in checks if check["check"] == "expect-efa"]
    assert expected["status"] == "wrong" and "instead of 100000" in expected["found"]
    assert sum(document["counts"].values()) == len(checks)
    refused = run(program, "--json", "--expect", "tpus=8")
    assert refused.returncode == 2
    validator.validate(json.loads(refused.stdout))


def test_every_check_is_documented(program: str) -> None:
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs" / "doctor.md").read_text()))
    missing = {check["check"] for check in json.loads(run(program, "--json").stdout)["checks"]} - named
    assert not missing, f"docs/doctor.md does not name {missing}"


def test_a_table_lists_all_where_it_is_asked_to(program: str) -> None:
    short, long = run(program), run(program, "--all")
    assert short.stdout.splitlines()[-1].endswith("(--all lists them).")
    assert long.stdout.count("expected: ") > 20 and "expected: " not in short.stdout


def test_devices_and_links_are_measured_beside_the_machines_file(program: str) -> None:
    result = measured(program, "--measure", "--ranks", 3, "--transport", "socket", "--machine", "cpu,peak-fp32=1e15,socket-node=1e14,host=1e14")
    document = json.loads(result.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    figures = document["measured"]
    assert [rank["rank"] for rank in figures["ranks"]] == [0, 1, 2] and figures["device"] and figures["comparable"]
    assert [link["ranks"] for link in figures["links"]] == [[0, 1], [0, 2], [1, 2]], "each pair has met once"
    assert figures["node"]["transport"] == "socket" and "127.0.0.1" in figures["node"]["path"] and figures["network"] is None
    checks = by_name(document)
    # A file with figures that no processor has: each is named, with what to do.
    assert checks["device-products"]["status"] == "warning" and "times as long as by cpu" in checks["device-products"]["found"]
    assert checks["node-links"]["status"] == "warning" and "/s by cpu" in checks["node-links"]["found"]
    assert checks["host-copies"]["status"] == "warning" and "numactl" in checks["host-copies"]["remedy"]
    assert checks["network-links"]["status"] == "not_applicable"
    assert document["step"] is None and result.returncode == (0 if document["counts"]["wrong"] == 0 else 1)


def test_figures_that_are_as_good_as_the_files_are_no_findings(program: str) -> None:
    result = measured(program, "--measure", "--ranks", 2, "--transport", "socket", "--machine", "cpu,peak-fp32=1e9,memory=1e7,socket-node=1e5,host=1e5")
    checks = by_name(json.loads(result.stdout))
    for name in ("device-products", "device-memory", "node-links", "host-copies"):
        assert checks[name]["status"] == "ok" and checks[name]["remedy"] is None, checks[name]


def test_a_file_of_another_kind_of_device_is_compared_with_nothing(program: str) -> None:
    document = json.loads(measured(program, "--measure", "--machine", "h100").stdout)
    check = by_name(document)["device-products"]
    assert not document["measured"]["comparable"] and check["status"] == "not_applicable" and "of 'h100' are not those of this device" in check["found"]


def test_what_is_slow_is_judged_by_a_step(program: str, tmp_path: Path) -> None:
    words = ["--model", "llama-tiny", "--strategy", "ddp", "--ranks", 2, "--batch", 4, "--sequence", 128, "--transport", "socket"]
    slow = measured(program, *words, "--machine", "cpu,socket-node=1e14", "--slower", "1%")
    document = json.loads(slow.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    check = by_name(document)["node-links"]
    assert check["status"] == "wrong" and slow.returncode == 1
    assert re.search(r"; costs [0-9.]+% of this step \([0-9.]+ ms\)$", check["found"]), check["found"]
    step = document["step"]
    assert step["job"] == "llama-tiny, ddp, 2 ranks, fp32" and step["slower_fraction"] == 0.01
    assert check["cost"]["seconds"] == pytest.approx(check["cost"]["fraction"] * step["predicted_seconds"])
    assert step["cost_fraction"] == pytest.approx(step["with_measured_seconds"] / step["predicted_seconds"] - 1)


def test_a_measurement_that_fails_is_wrong_and_the_rest_is_said(program: str) -> None:
    result = measured(program, "--measure", "--ranks", 2, "--transport", "nvlink")
    document = json.loads(result.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    check = by_name(document)["measurement"]
    assert result.returncode == 1 and check["status"] == "wrong" and "nvlink" in check["found"]
    assert document["measured"] is None and "clock" in by_name(document)


def test_measuring_takes_options_of_transports_and_none_that_there_are_not(program: str) -> None:
    result = measured(program, "--measure", "--ranks", 2, "--transport", "socket", "--socket.interface", "nosuch0")
    check = by_name(json.loads(result.stdout))["measurement"]
    assert check["status"] == "wrong" and "nosuch0" in check["found"], check


def test_a_signal_ends_the_measurement_and_the_rest_is_said(program: str) -> None:
    with subprocess.Popen([program, "doctor", "--measure", "--ranks", "2", "--device", "cpu"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as run:
        wait_for(lambda: processes_of(run.pid), 30, "the ranks that measure")
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=30)
    assert run.returncode == 1 and re.search(r"^WRONG +measurement +measuring was ended by SIGINT", output, re.M), output + errors


def processes_of(parent: int) -> bool:
    """True once the command has started the ranks' launcher."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return any(b"\0examine\0" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children if Path(f"/proc/{child}").exists())


@pytest.mark.parametrize("words, complaint", [
    (["--measure", "--socket.frobnicate", "3"], "frobnicate"),
    (["--model", "llama-tiny", "--strategy", "zero2", "--ranks", "2", "--batch", "3", "--global-batch", "4"], "batch"),
    (["--batch", "4"], "--batch is an option of a job, and there is none: give --model"),
    (["--ranks", "2"], "--ranks says what is measured: give --measure or --model"),
    (["--slower", "3%"], "--slower is for a job's step"),
    (["--model", "llama-tiny", "--slower", "much"], "--slower"),
    (["--frobnicate"], "'--frobnicate' is no option of consist doctor"),
])
def test_options_without_a_meaning_are_refused(program: str, words: "list[str]", complaint: str) -> None:
    result = run(program, *words)
    assert result.returncode == 2 and complaint in result.stderr, result.stderr


def test_python_has_the_checks(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setenv("CONSIST_PROGRAM", program)
    examination = consist.doctor(expect={"efa": 100000})
    assert not examination.healthy and examination.complaints[0].check == "expect-efa"
    assert "instead of 100000" in examination.check("expect-efa").found and examination.check("expect-efa").remedy
    assert examination.cost is None and examination.measured is None
    assert list(examination.table["status"])[0] == "wrong" and len(examination.table) == len(examination.checks)
    with pytest.raises(KeyError):
        examination.check("nothing")
    with pytest.raises(consist.UsageError, match="--slower is for a job's step"):
        consist.doctor(slower=0.03)


def test_python_judges_by_a_run(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setenv("CONSIST_PROGRAM", program)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    examination = consist.doctor("llama-tiny", "ddp", ranks=2, batch=4, sequence=128, device="cpu", transport="socket",
                                 machine="cpu,socket-node=1e14", slower="1%")
    assert not examination.healthy and examination.check("node-links").status == "wrong"
    assert examination.cost == examination.step["cost_fraction"] and examination.step["slower_fraction"] == 0.01
