"""The wheel and the image of this build: what is in them, and that they work on systems that have nothing else."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Iterator, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CONSIST_BUILD_FOLDER", ROOT / "build"))
MEGABYTE = 1_000_000


def run(*words: object, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout)


def make_wheel(output: Path) -> Path:
    result = run("bash", "launch/package/wheel.sh", "--build", BUILD, "--built", "--output", output)
    assert result.returncode == 0, result.stdout + result.stderr
    return Path(result.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "CONSIST_PORTABLE:BOOL=ON" not in cache:
        pytest.skip("this build was configured without CONSIST_PORTABLE")
    return make_wheel(tmp_path_factory.mktemp("wheel"))


def names_in(wheel: Path) -> List[str]:
    with zipfile.ZipFile(wheel) as file:
        return [name for name in file.namelist() if not name.endswith("/")]


def text_in(wheel: Path, end: str) -> str:
    with zipfile.ZipFile(wheel) as file:
        name, = [name for name in file.namelist() if name.endswith(end)]
        return file.read(name).decode()


def test_wheel_is_small_and_asks_for_no_newer_symbols(wheel: Path) -> None:
    # auditwheel gives this name only to a wheel whose files ask for nothing newer; wheel.sh fails otherwise.
    assert re.fullmatch(r"consist-[\d.]+(\+cu\d+)?-py3-none-manylinux_2_34_x86_64\.whl", wheel.name)
    limit = 120 if "+cu" in wheel.name else 40
    assert wheel.stat().st_size < limit * MEGABYTE


def test_two_wheels_of_a_build_are_equal(wheel: Path, tmp_path: Path) -> None:
    other = make_wheel(tmp_path)
    assert other.name == wheel.name
    assert hashlib.sha256(other.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_wheel_holds_program_plugins_sdk_and_package(wheel: Path) -> None:
    names = set(names_in(wheel))
    native = "consist/_native/"
    for name in ["consist/__init__.py", "consist/py.typed", native + "bin/consist", native + "lib/libconsist.so",
                 native + "include/consist/strategy.h", native + "lib/cmake/Consist/ConsistConfig.cmake"]:
        assert name in names
    built = {path.name for path in (BUILD / "lib" / "consist" / "plugins").glob("*.so")}
    assert built and built == {Path(name).name for name in names if name.startswith(native + "lib/consist/plugins/")}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".a")]
    assert "consist = consist._program:main" in text_in(wheel, ".dist-info/entry_points.txt")


def test_bill_of_materials_names_every_library_beside(wheel: Path) -> None:
    components = json.loads(text_in(wheel, "sboms/consist.cdx.json"))["components"]
    beside = {one["name"] for one in components if one["properties"][0]["value"].startswith("beside")}
    names = {"onednn": "libdnnl", "opencl-icd-loader": "libOpenCL"}
    carried = {re.sub(r"-[0-9a-f]{8}\.so.*", "", Path(name).name) for name in names_in(wheel) if name.startswith("consist.libs/")}
    assert carried == {names.get(name, name) for name in beside}
    licences = text_in(wheel, "licenses/third-party.txt")
    for one in components:
        assert one["version"] and f"{one['name']} {one['version']}" in licences


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("root and debootstrap are needed to make a root file system")
    folder = tmp_path_factory.mktemp("roots")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_wheel_compares_in_a_new_debian(wheel: Path, roots: Path, suite: str) -> None:
    result = run("bash", "tests/package/wheel_in_root.sh", wheel, suite, roots / suite)
    if result.returncode == 77:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    table = [line for line in result.stdout.splitlines() if re.match(r"[ *] +(llama|qwen3)-tiny +[12] +(fp32|bf16) ", line)]
    assert len(table) == 8, result.stdout
    assert f"{suite}: installed and compared in " in result.stdout


def test_image_runs_and_is_what_its_digests_say(wheel: Path, roots: Path) -> None:
    root, archive = roots / "image", roots / "image.tar"
    result = run("bash", "launch/package/image.sh", wheel, "--root", root, "--output", archive)
    if "debootstrap" in result.stderr and not (root / "made").exists():
        pytest.skip(result.stderr.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(archive) as tar:
        def blob(digest: str) -> bytes:
            file = tar.extractfile("blobs/sha256/" + digest[len("sha256:"):])
            assert file is not None
            data = file.read()
            assert "sha256:" + hashlib.sha256(data).hexdigest() == digest
            return data

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]["digest"]))
        configuration = json.loads(blob(manifest["config"]["digest"]))["config"]
        blob(manifest["layers"][0]["digest"])
    assert configuration["Entrypoint"] == ["consist"]
    script = f"""source launch/package/common.sh
        RUN_AS=10001 RUN_HOME=/home/consist run_in_root {root} sh -c 'cd {configuration["WorkingDir"]} &&
        {configuration["Entrypoint"][0]} compare --model llama-tiny --ranks 1,2 --precision fp32 --steps 3 --batch 2 --sequence 32 --output runs'"""
    result = run("bash", "-c", script)
    assert result.returncode == 0 and "TOKENS/S" in result.stdout, result.stdout + result.stderr
