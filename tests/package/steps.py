"""What the tests of packages make: each once, two at a time, from the beginning of the session on."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CONSIST_BUILD_FOLDER", ROOT / "build"))
# The README's promise is tried at its full length in one place; other places have its table by shorter runs.
LENGTHS = {"bookworm": 20, "trixie": 4, "deb": 4}
QUICKLY = ("--level", 1)
QUICKEST = ("--level", 0)  # of xz, which takes most of the time of the Debian packages
MEMORY = 3 * 2**30  # bytes that all of it takes at most


def run(*words: object, timeout: float = 900,
        environment: Mapping[str, str] = {}) -> "subprocess.CompletedProcess[str]":
    """Runs a command in the top folder and takes what it says."""
    return subprocess.run([str(word) for word in words], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout, env={**os.environ, **environment})


def _free_memory() -> int:
    text = Path("/proc/meminfo").read_text() if Path("/proc/meminfo").exists() else ""
    found = re.search(r"^MemAvailable: +(\d+) kB$", text, re.M)
    return 1024 * int(found.group(1)) if found else 0


def rows_of(table: str) -> List[str]:
    """Rows of the quickstart's table."""
    return [line for line in table.splitlines() if re.match(r"[ *] +(llama|qwen3)-tiny +[12] +(fp32|bf16) ", line)]


class Steps:
    """Makes packages and systems in a folder. Each method is a step; `take` waits for one and gives what it made.

    A step may take others, which must begin before it: `begin` them in the order of ORDER.
    """

    ORDER = ("root_of_trixie", "wheel", "debs", "root_of_bookworm", "second_wheel", "second_debs", "compared_in_trixie",
             "compared_in_bookworm", "compared_by_deb", "image")
    NEEDS = {"second_wheel": ("wheel",), "second_debs": ("debs",), "compared_in_trixie": ("wheel", "root_of_trixie"),
             "compared_in_bookworm": ("wheel", "root_of_bookworm"), "compared_by_deb": ("debs", "root_of_bookworm"),
             "image": ("wheel", "root_of_bookworm")}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # In memory, where there is enough: dpkg waits for the disk after each file, and thousands are removed again.
        if os.geteuid() == 0 and _free_memory() > 2 * MEMORY:
            run("mount", "-t", "tmpfs", "-o", f"size={MEMORY},mode=755", "packages", folder)
        self._workers = ThreadPoolExecutor(2)
        self._made: Dict[str, "Future[Any]"] = {}

    def begin(self, wanted: Iterable[str]) -> None:
        """Begins the steps among these names, and what they need."""
        names = {need for name in wanted if name in self.ORDER for need in (name, *self.NEEDS.get(name, ()))}
        for name in self.ORDER:
            if name in names:
                step: Callable[[], Any] = getattr(self, name)
                self._made[name] = self._workers.submit(step)

    def take(self, name: str) -> Any:
        """Returns what the step made, or raises why it made nothing or was skipped."""
        return self._made[name].result(timeout=900)

    def end(self) -> None:
        """Waits for what runs, drops what has not begun, and removes the folder."""
        for one in self._made.values():
            one.cancel()
        self._workers.shutdown()
        for path in [*self.folder.glob("*"), self.folder]:
            if path.is_mount():
                run("umount", path)
        shutil.rmtree(self.folder, ignore_errors=True)

    def wheel(self) -> Path:
        """Makes the wheel."""
        if "CONSIST_PORTABLE:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text():
            pytest.skip("this build was configured without CONSIST_PORTABLE")
        return self._make_wheel("wheel")

    def second_wheel(self) -> Path:
        """Makes the wheel once more, when the first one's tools are there."""
        self.take("wheel")
        return self._make_wheel("second-wheel")

    def debs(self) -> Dict[str, Path]:
        """Makes the Debian packages, by their names."""
        for tool in ("dpkg-deb", "dpkg-shlibdeps", "patchelf"):
            if shutil.which(tool) is None:
                pytest.skip(f"there is no {tool}")
        return self._make_debs("debs")

    def second_debs(self) -> Dict[str, Path]:
        """Makes the Debian packages once more."""
        self.take("debs")
        return self._make_debs("second-debs")

    def root_of_bookworm(self) -> Path:
        """Makes a new Debian 12, of which others are copies."""
        return self._make_root("bookworm")

    def root_of_trixie(self) -> Path:
        """Makes a new Debian 13, likewise."""
        return self._make_root("trixie")

    def compared_in_bookworm(self) -> str:
        """Installs the wheel there in a copy, and compares."""
        wheel = self.take("wheel")
        self.take("root_of_bookworm")
        return self._in_root("wheel_in_root.sh", wheel, "bookworm", self.folder / "bookworm-of-wheel",
                             LENGTHS["bookworm"])

    def compared_in_trixie(self) -> str:
        """Installs the wheel there, and compares."""
        wheel = self.take("wheel")
        self.take("root_of_trixie")
        return self._in_root("wheel_in_root.sh", wheel, "trixie", self.folder / "trixie-of-wheel", LENGTHS["trixie"])

    def compared_by_deb(self) -> str:
        """Installs the Debian packages in a new system of this release, and compares."""
        release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
        suite = re.search(r"^VERSION_CODENAME=(\w+)$", release, re.M)
        if suite is None or "\nID=debian\n" not in release:
            pytest.skip("these are packages for this distribution, which is no Debian")
        packages = self.take("debs")
        if suite.group(1) == "bookworm":
            self.take("root_of_bookworm")
        return self._in_root("deb_in_root.sh", packages["consist"].parent, suite.group(1), self.folder / "root-of-debs",
                             LENGTHS["deb"])

    def image(self) -> Path:
        """Makes the image; its root file system lies beside the archive."""
        wheel = self.take("wheel")
        self.take("root_of_bookworm")
        archive = self.folder / "image.tar"
        result = run("bash", "launch/package/image.sh", wheel, "--root", self.folder / "image", "--output", archive,
                     *QUICKLY, environment={"CONSIST_ROOTS": str(self.folder / "roots")})
        assert result.returncode == 0, result.stdout + result.stderr
        return archive

    def _make_wheel(self, name: str) -> Path:
        result = run("bash", "launch/package/wheel.sh", "--build", BUILD, "--built", "--output", self.folder / name,
                     *QUICKLY)
        assert result.returncode == 0, result.stdout + result.stderr
        return Path(result.stdout.splitlines()[-1])

    def _make_debs(self, name: str) -> Dict[str, Path]:
        result = run("bash", "launch/package/deb.sh", "--build", BUILD, "--built", "--output", self.folder / name,
                     *QUICKEST)
        assert result.returncode == 0, result.stdout + result.stderr
        return {Path(line).name.split("_")[0]: Path(line) for line in result.stdout.splitlines()}

    def _make_root(self, suite: str) -> Path:
        root = self.folder / "roots" / suite
        root.parent.mkdir(exist_ok=True)
        result = run("bash", "-c", 'source tests/package/new_system.sh; new_root "$1" "$2"', "_", suite, root)
        if result.returncode == 77:
            pytest.skip(result.stdout.strip())
        assert result.returncode == 0, result.stdout + result.stderr
        return root

    def _in_root(self, script: str, *words: object) -> str:
        result = run("bash", f"tests/package/{script}", *words,
                     environment={"CONSIST_ROOTS": str(self.folder / "roots")})
        if result.returncode == 77:
            pytest.skip(result.stdout.strip())
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout
