"""Finds the executable of Consist and starts it. Imports little, since every command of a wheel starts here."""
from __future__ import annotations

import os
import sys
from typing import Dict, List, NoReturn

from .errors import ProgramNotFoundError

VARIABLE = "CONSIST_PROGRAM"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


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


def environment() -> Dict[str, str]:
    """Returns the environment in which the program starts: CONSIST_PYTHON is the interpreter that runs this."""
    return dict(os.environ, CONSIST_PYTHON=sys.executable)


def main() -> NoReturn:
    """Becomes the program: the wheel's command ``consist``. Exits with 127 and a message where it is not found."""
    try:
        program = find()
    except ProgramNotFoundError as error:
        print(f"consist: {error}", file=sys.stderr)
        sys.exit(127)
    try:
        os.execve(program, [program, *sys.argv[1:]], environment())
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


if __name__ == "__main__":
    main()
