"""Shell scripts are followed without being run."""
from __future__ import annotations

from typing import List, Optional, Tuple

import pytest

from consist.readers.messages import DataError
from consist.readers.shell_script import UNKNOWN, Script, arithmetic


def followed(text: str) -> Tuple[List[List[str]], List[str]]:
    """The commands that a script would run, and what is said of it."""
    commands: List[List[str]] = []
    notes: List[str] = []
    Script("a.sh", notes.append).follow(text, commands.append)
    return commands, notes


@pytest.mark.parametrize("text, words", [
    ("A=1\nrun --a $A", ["run", "--a", "1"]),
    ("A='1 2'\nrun $A \"$A\" '$A'", ["run", "1", "2", "1 2", "$A"]),
    ("A=${B:-3}; run ${A}x", ["run", "3x"]),
    ("B=\nrun ${B:-\"4\"} ${B-5}y", ["run", "4", "y"]),
    ("A=(--x 1 # one\n --y 2)\nA+=(--z)\nrun ${A[@]} \"${A[@]}\"",
     ["run", "--x", "1", "--y", "2", "--z", "--x", "1", "--y", "2", "--z"]),
    ("A=-x\nA+=y\nrun $A", ["run", "-xy"]),
    ("N=2; run $((N * (4 + 1))) $(( $N - 9 / 2 )) $((N / 0))", ["run", "10", "-2", UNKNOWN]),
    ("run $1 $(date) `date` $HOME", ["run"] + [UNKNOWN] * 4),
    ("run a \\\n  b > log 2>&1", ["run", "a", "b", "2"]),
    ("cat <<END > f\nrun other\nEND\nexport A=1; run $A", ["run", "1"]),
    ("if [ 2 -gt 1 ] && [[ x == x ]]; then A=yes; else A=no; fi\nrun $A", ["run", "yes"]),
    ("if [ -z \"$1\" ]; then A=absent; else A=there; fi\nrun $A", ["run", "absent"]),
    ("if [ ! a = a ]; then A=1; elif [ 1 -le 1 ] || test b = c; then A=2; else A=3; fi\nrun $A", ["run", "2"]),
    ("S=b\ncase $S in\n a) X=1 ;;\n b|c) X=2 ;;\n *) X=3 ;;\nesac\nrun $X", ["run", "2"]),
    ("case z in\n a) X=1 ;;\n *) X=3 ;;\nesac\nrun $X", ["run", "3"]),
])
def test_words_of_the_last_command(text: str, words: List[str]) -> None:
    assert followed(text)[0][-1] == words


@pytest.mark.parametrize("text, note", [
    ("for A in 1 2; do\n run $A\ndone\nrun end", "line 1: a loop is passed over"),
    ("\nif grep -q a file; then\n run a\nfi\nrun end",
     "line 2: a condition cannot be known without running the script; its branch is not followed"),
])
def test_what_is_not_known_is_passed_over_and_said(text: str, note: str) -> None:
    assert followed(text) == ([["run", "end"]], [note])


@pytest.mark.parametrize("text, message", [
    ("run\necho 'a", "a.sh, line 2: a ' is not closed"),
    ('echo "a', 'a.sh, line 1: a " is not closed'),
    ("run ${A", "a.sh, line 1: a ${ is not closed"),
    ("a " * 100_001, "more than 100000 words"),
    ("if a; then " * 17, "branches are nested deeper than 16 levels"),
    ("run " + "${A:-" * 18 + "}" * 18, "expansions are nested deeper than 16 levels"),
    ("A=" + "x" * 1000 + "\n" + "A=$A$A\n" * 12, "is larger than 1 MiB"),
])
def test_scripts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        followed(text)
    assert message in str(error.value)


@pytest.mark.parametrize("text, value", [("7 % 4 * 2", 6), ("1 - 8 / 3", -1), ("(1 - 8) / 3", -2), ("", None),
                                         ("1 +", None), ("-1", None), ("2 ** 3", None), ("9" * 18 + " * 100", None)])
def test_arithmetic(text: str, value: Optional[int]) -> None:
    assert arithmetic(text) == value


def test_an_array_may_begin_by_appending() -> None:
    script = Script("a.sh", print)
    script.follow("A+=(--a 1)", print)
    assert script.words_of_variables() == ["--a", "1"]


def test_words_of_variables() -> None:
    script = Script("a.sh", print)
    script.follow("B='--b 1'\nA=(--a 2)\nC=3\nB=' --b 4'", print)
    assert script.words_of_variables() == ["--b", "4", "--a", "2"]
