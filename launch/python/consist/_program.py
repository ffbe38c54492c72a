"""Finds the executable of Consist and starts it. Imports little, since every command of a wheel starts here."""
from __future__ import annotations

import os
import re
import sys
from typing import Dict, Iterator, List, NoReturn, Optional

from .errors import ProgramNotFoundError

VARIABLE = "CONSIST_PROGRAM"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
                   "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_STANDARD_LIBRARY = "libstdc++.so.6"


def find() -> str:
    """Returns the path of the executable ``consist``.

    Searched are, in this order: the environment variable CONSIST_PROGRAM, the executable of this package's wheel, that
    of the installation that this package lies in (PREFIX/lib/consist/python), the build folder of the checkout that it
    lies in (of several builds the newest), and PATH. Raises ProgramNotFoundError.
    """
    given = os.environ.get(VARIABLE)
    if given:
        if not _is_executable(given):
            raise ProgramNotFoundError(f"{VARIABLE} is '{given}', which is not an executable file")
        return os.path.abspath(given)
    in_wheel = _in_wheel()
    for path in (in_wheel, *_in_installation()):
        if _is_executable(path):
            return path
    builds = [path for path in _in_builds() if _is_executable(path)]
    if builds:
        return max(builds, key=os.path.getmtime)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder or ".", "consist")
        if _is_executable(path) and not _is_script(path):
            return os.path.abspath(path)
    raise ProgramNotFoundError(
        f"the program consist was not found: {VARIABLE} is not set; there is no {in_wheel}, as a wheel has it; this "
        f"package lies in {_PACKAGE}, beside no build of a checkout (build/bin/consist); and no folder of PATH has an "
        "executable consist. Install Consist's wheel or its Debian package, build the checkout, or set " + VARIABLE)


def environment(program: str) -> Dict[str, str]:
    """Returns the environment in which the program starts.

    CONSIST_PYTHON is the interpreter that runs this. LD_LIBRARY_PATH begins with the wheel's libstdc++ where the
    system's is older.
    """
    variables = dict(os.environ, CONSIST_PYTHON=sys.executable)
    fallback = os.path.join(os.path.dirname(os.path.dirname(program)), "lib", "fallback")
    ours = _library_version(_library_in(fallback))
    if ours is not None and (_system_library_version() or 0) < ours:
        given = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = fallback + (os.pathsep + given if given else "")
    return variables


def main() -> NoReturn:
    """Becomes the program: the wheel's command ``consist``. Exits with 127 and a message where it is not found."""
    try:
        program = find()
    except ProgramNotFoundError as error:
        print(f"consist: {error}", file=sys.stderr)
        sys.exit(127)
    try:
        os.execve(program, [program, *sys.argv[1:]], environment(program))
    except OSError as error:
        print(f"consist: {program} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(126)


def _in_wheel() -> str:
    return os.path.join(_PACKAGE, "_native", "bin", "consist")


def _in_installation() -> List[str]:
    folder, ending = os.path.dirname(_PACKAGE), os.path.join(os.sep, "lib", "consist", "python")
    return [os.path.join(folder[:-len(ending)], "bin", "consist")] if folder.endswith(ending) else []


def _in_builds() -> List[str]:
    """Executables that a checkout around this package may have: build/bin, and a folder for each of CMake's presets."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(_PACKAGE)))
    if not os.path.isfile(os.path.join(root, "launch", "main.cpp")):
        return []
    build = os.path.join(root, "build")
    folders = [build]
    if os.path.isdir(build):
        folders += [os.path.join(build, name) for name in sorted(os.listdir(build))]
    return [os.path.join(folder, "bin", "consist") for folder in folders]


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_script(path: str) -> bool:
    """True for the command of a Python environment, which is this module again and would start itself for ever."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _library_in(folder: str) -> Optional[str]:
    path = os.path.join(folder, _STANDARD_LIBRARY)
    return path if os.path.isfile(path) else None


def _library_version(path: Optional[str]) -> Optional[int]:
    """The N of libstdc++.so.6.0.N, which defines GLIBCXX_3.4.N: by the real file's name, else by its newest symbol."""
    if path is None:
        return None
    named = re.search(r"\.so\.6\.0\.(\d+)$", os.path.realpath(path))
    if named:
        return int(named.group(1))
    with open(path, "rb") as file:
        found = re.findall(rb"GLIBCXX_3\.4\.(\d+)\0", file.read())
    return max((int(number) for number in found), default=None)


def _system_library_version() -> Optional[int]:
    for folder in _library_folders():
        path = _library_in(folder)
        if path is not None and _is_64_bit(path):
            return _library_version(path)
    return None


def _library_folders() -> Iterator[str]:
    """Folders in the loader's order: LD_LIBRARY_PATH, those of its configuration, those of the system."""
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    settings = "/etc/ld.so.conf.d"
    for name in sorted(os.listdir(settings)) if os.path.isdir(settings) else []:
        try:
            with open(os.path.join(settings, name), encoding="utf-8", errors="replace") as file:
                yield from (line.strip() for line in file if line.startswith("/"))
        except OSError:
            continue
    yield from _SYSTEM_FOLDERS


def _is_64_bit(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(5) == b"\x7fELF\x02"
    except OSError:
        return False


if __name__ == "__main__":
    main()
