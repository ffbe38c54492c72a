"""The wheel and the image of this build: what is in them, and that they work on systems that have nothing else."""
from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import List

from steps import BUILD, rows_of, run

MEGABYTE = 1_000_000


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


def test_two_wheels_of_a_build_are_equal(wheel: Path, second_wheel: Path) -> None:
    assert second_wheel.name == wheel.name
    assert hashlib.sha256(second_wheel.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


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


def test_wheel_compares_in_a_new_debian_12(compared_in_bookworm: str) -> None:
    assert len(rows_of(compared_in_bookworm)) == 8, compared_in_bookworm


def test_wheel_compares_in_a_new_debian_13(compared_in_trixie: str) -> None:
    assert len(rows_of(compared_in_trixie)) == 8, compared_in_trixie


def test_image_runs_and_is_what_its_digests_say(image: Path) -> None:
    with tarfile.open(image) as tar:
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
        RUN_AS=10001 RUN_HOME=/home/consist run_in_root {image.with_suffix("")} sh -c 'cd {configuration["WorkingDir"]} &&
        {configuration["Entrypoint"][0]} compare --model llama-tiny --ranks 1,2 --precision fp32 --steps 3 --batch 2 --sequence 32 --output runs'"""
    result = run("bash", "-c", script)
    assert result.returncode == 0 and "TOKENS/S" in result.stdout, result.stdout + result.stderr
