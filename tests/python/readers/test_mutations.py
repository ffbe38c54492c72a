"""Files changed at seeded random places: refused with one of the readers' exceptions, or taken with legal values."""
from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Dict, List

import pytest
from readers.reading import Reading
from readers.test_automodel import RECIPE
from readers.test_bridge import CONTAINER
from readers.test_primus import EXPERIMENT, TITAN, check_out
from readers.test_torchtitan_dump import dump
from readers.test_trainer import ARGUMENTS, AXOLOTL

from consist.readers.messages import DataError, UsageError
from consist.readers.target import Sizes, Target
from consist.readers.toml import to_toml

MUTANTS = 400  # of each seed
WORDS = [b"null", b"true", b"-1", b"1e999", b"[", b"]", b"{", b"}", b'"', b"\x00", b"\xff", b"\x1b[2J", b"\n", b": ", b" = ", b"0", b"99999999999999999999",
         b"&a ", b"*a", b"---\n", b"- ", b"#", b"auto", b"nan", b"inf", b"\xe2\x80\xae"]


def seeds() -> Dict[str, bytes]:
    """A file of each format."""
    found = {path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "seeds").iterdir())}
    return {**found, "arguments": json.dumps(ARGUMENTS).encode(), "axolotl": AXOLOTL.encode(), "dump": json.dumps(dump()).encode(),
            "automodel": RECIPE.encode(), "bridge": CONTAINER.encode(), "primus": EXPERIMENT.encode(), "primus-titan": TITAN.encode()}


def mutated(content: bytes, source: random.Random) -> bytes:
    """The content with one to four changes."""
    changed = bytearray(content)
    for _ in range(source.randint(1, 4)):
        at, length = source.randrange(len(changed) + 1), source.choice([0, 1, 2, 8, 40])
        lines: List[bytes] = bytes(changed).splitlines(keepends=True) or [b""]
        kind = source.randrange(5)
        if kind == 0:
            changed[at:at + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            changed[at:at + length] = source.choice(WORDS)
        elif kind == 2:
            del changed[at:at + length]
        elif kind == 3:
            changed[at:at] = source.choice(lines)
        else:
            source.shuffle(lines)
            changed[:] = b"".join(lines[:source.randint(1, len(lines))])
    return bytes(changed)


def check(target: Target) -> None:
    """What was taken is legal, and fit for a terminal."""
    assert all(isinstance(value, str) and value for value in target.options.values())
    assert math.isfinite(float(target.value("learning-rate")))
    for line in [*target.notes(), *to_toml(target).splitlines()]:
        assert len(line) < 20_000 and not any(c < " " or c == "\x7f" for c in line)
        line.encode("utf-8")


@pytest.mark.parametrize("name", sorted(seeds()))
def test_a_changed_file_is_read_or_refused(reading: Reading, name: str) -> None:
    content, source = seeds()[name], random.Random(name)
    check_out(reading.folder)
    (reading.folder / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    taken = 0
    for _ in range(MUTANTS):
        text = mutated(content, source).decode("utf-8", "surrogateescape")
        try:
            check(reading.read(text, sizes=Sizes(4), seed=1))
            taken += 1
        except (UsageError, DataError) as error:
            assert str(error).strip()
    assert 0 < taken < MUTANTS, "changes are too harsh or too mild to test anything"
