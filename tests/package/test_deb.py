"""The Debian packages of this build: what is in them, Debian's own check, and that they work on a new system."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CONSIST_BUILD_FOLDER", ROOT / "build"))


def run(*words: object, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout)


def make(output: Path) -> Dict[str, Path]:
    """Packages by their names."""
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "patchelf"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    result = run("bash", "launch/package/deb.sh", "--build", BUILD, "--built", "--output", output)
    assert result.returncode == 0, result.stdout + result.stderr
    return {Path(line).name.split("_")[0]: Path(line) for line in result.stdout.splitlines()}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    return make(tmp_path_factory.mktemp("debs"))


def files(package: Path) -> List[str]:
    listing = run("dpkg-deb", "--contents", package).stdout
    return [line.split()[5][1:] for line in listing.splitlines() if not line.startswith("d")]


def field(package: Path, name: str) -> str:
    return run("dpkg-deb", "--field", package, name).stdout.strip()


def test_each_file_is_in_the_package_that_needs_it(packages: Dict[str, Path]) -> None:
    command, development = files(packages["consist"]), files(packages["libconsist-dev"])
    assert {"/usr/bin/consist", "/usr/lib/libconsist.so", "/usr/lib/consist/plugins/device-cpu.so",
            "/usr/lib/consist/plugins/transport-socket.so", "/usr/share/man/man1/consist.1.gz",
            "/usr/lib/python3/dist-packages/consist/__init__.py", "/usr/share/doc/consist/copyright"} <= set(command)
    assert {"/usr/include/consist/strategy.h", "/usr/lib/cmake/Consist/ConsistConfig.cmake"} <= set(development)
    assert not [path for path in command if "/include/" in path or "__pycache__" in path]
    assert ("consist-cuda" in packages) == (BUILD / "lib/consist/plugins/device-cuda.so").exists()
    built = {path.name for path in (BUILD / "lib/consist/plugins").glob("*.so")} - {"dataset-parquet.so"}
    packed = [path for package in packages.values() for path in files(package) if "/lib/consist/plugins/" in path]
    assert sorted(built) == sorted(Path(path).name for path in packed)


def test_dependencies_are_those_of_the_libraries(packages: Dict[str, Path]) -> None:
    depends = field(packages["consist"], "Depends")
    assert re.search(r"\blibc6 \(>= 2\.\d+\)", depends) and "libdnnl" in depends and "python3" in depends
    version = field(packages["consist"], "Version")
    assert f"consist (= {version})" in field(packages["libconsist-dev"], "Depends")


def test_lintian_has_nothing_to_say(packages: Dict[str, Path]) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("there is no lintian")
    result = run("lintian", "--allow-root", "--fail-on", "error,warning", *packages.values())
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_override_of_lintian_has_its_reason() -> None:
    for path in (ROOT / "launch/package/debian").glob("*.lintian-overrides"):
        assert path.read_text().startswith("# "), f"{path.name}: no reason before the first override"
        assert not re.search(r"\n\n", path.read_text())


def test_two_packagings_of_a_build_are_equal(packages: Dict[str, Path], tmp_path: Path) -> None:
    again = make(tmp_path)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in packages.items()}


def test_packages_compare_in_a_new_debian(packages: Dict[str, Path], tmp_path: Path) -> None:
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    suite = re.search(r"^VERSION_CODENAME=(\w+)$", release, re.M)
    if suite is None or "\nID=debian\n" not in release:
        pytest.skip("these are packages for this distribution, which is no Debian")
    result = run("bash", "tests/package/deb_in_root.sh", packages["consist"].parent, suite.group(1),
                 tmp_path / "root")
    if result.returncode == 77:
        pytest.skip(result.stdout.strip())
    assert result.returncode == 0, result.stdout + result.stderr
    table = [line for line in result.stdout.splitlines()
             if re.match(r"[ *] +(llama|qwen3)-tiny +[12] +(fp32|bf16) ", line)]
    assert len(table) == 8, result.stdout
