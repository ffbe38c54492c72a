"""The Debian packages of this build: what is in them, Debian's own check, and that they work on a new system."""
from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Dict, List

import pytest
from steps import BUILD, ROOT, rows_of, run


def files(package: Path) -> List[str]:
    listing = run("dpkg-deb", "--contents", package).stdout
    return [line.split()[5][1:] for line in listing.splitlines() if not line.startswith("d")]


def field(package: Path, name: str) -> str:
    return run("dpkg-deb", "--field", package, name).stdout.strip()


def test_each_file_is_in_the_package_that_needs_it(debs: Dict[str, Path]) -> None:
    command, development = files(debs["consist"]), files(debs["libconsist-dev"])
    assert {"/usr/bin/consist", "/usr/lib/libconsist.so", "/usr/lib/consist/plugins/device-cpu.so",
            "/usr/lib/consist/plugins/transport-socket.so", "/usr/share/man/man1/consist.1.gz",
            "/usr/lib/python3/dist-packages/consist/__init__.py", "/usr/share/doc/consist/copyright"} <= set(command)
    assert {"/usr/include/consist/strategy.h", "/usr/lib/cmake/Consist/ConsistConfig.cmake"} <= set(development)
    assert not [path for path in command if "/include/" in path or "__pycache__" in path]
    assert ("consist-cuda" in debs) == (BUILD / "lib/consist/plugins/device-cuda.so").exists()
    built = {path.name for path in (BUILD / "lib/consist/plugins").glob("*.so")} - {"dataset-parquet.so"}
    packed = [path for package in debs.values() for path in files(package) if "/lib/consist/plugins/" in path]
    assert sorted(built) == sorted(Path(path).name for path in packed)


def test_dependencies_are_those_of_the_libraries(debs: Dict[str, Path]) -> None:
    depends = field(debs["consist"], "Depends")
    assert re.search(r"\blibc6 \(>= 2\.\d+\)", depends) and "libdnnl" in depends and "python3" in depends
    version = field(debs["consist"], "Version")
    assert f"consist (= {version})" in field(debs["libconsist-dev"], "Depends")


def test_lintian_has_nothing_to_say(debs: Dict[str, Path]) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("there is no lintian")
    result = run("lintian", "--allow-root", "--fail-on", "error,warning", *debs.values())
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_override_of_lintian_has_its_reason() -> None:
    for path in (ROOT / "launch/package/debian").glob("*.lintian-overrides"):
        assert path.read_text().startswith("# "), f"{path.name}: no reason before the first override"
        assert not re.search(r"\n\n", path.read_text())


def test_two_packagings_of_a_build_are_equal(debs: Dict[str, Path], second_debs: Dict[str, Path]) -> None:
    assert {name: path.read_bytes() for name, path in second_debs.items()} == {
        name: path.read_bytes() for name, path in debs.items()}


def test_packages_compare_in_a_new_debian(compared_by_deb: str) -> None:
    assert len(rows_of(compared_by_deb)) == 8, compared_by_deb
