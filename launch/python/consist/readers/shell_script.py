"""Follows a shell script's variables to the commands that it would run, without running any of them."""
from __future__ import annotations

import dataclasses
import re
from typing import Callable, Dict, List, Optional, Tuple

from .messages import DataError, in_quotes
from .shell_words import BLANKS, Command, Word, commands_of

# Stands in words for what is not known: arguments of the script, variables that it does not set, output of commands.
UNKNOWN = "\x1f"
_MOST_EXPANDED, _MOST_BYTES, _MOST_DEPTH = 16 << 20, 1 << 20, 16
_WHOLE = re.compile(r"-?[0-9]+\Z")
_NAME = re.compile(r"[A-Za-z0-9_]*")
_VARIABLE = re.compile(r"(?<![\w${])[A-Za-z_]\w*", re.ASCII)
_PASSED = ("do", "{", "}", "function", "export", "local", "readonly", "declare", "time")
_COMPARE: Dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b, "-lt": lambda a, b: a < b, "-le": lambda a, b: a <= b}
Run = Callable[[List[str]], None]
Truth = Optional[bool]  # None: not known


def whole(text: str) -> Optional[int]:
    """The whole number that the text is, of at most 18 characters."""
    return int(text) if len(text) <= 18 and _WHOLE.match(text) else None


def arithmetic(text: str) -> Optional[int]:
    """The value of whole numbers of 64 bits with + - * / % and brackets; nothing for anything else."""
    tokens = re.findall(r"[0-9]+|\S", text)[::-1]

    def term(depth: int) -> int:
        token = tokens.pop()
        if token == "(" and depth < _MOST_DEPTH:
            inner = total(depth + 1)
            if tokens.pop() != ")":
                raise ValueError
            return inner
        if not token.isdigit() or len(token) > 18:
            raise ValueError
        return int(token)

    def checked(value: int) -> int:
        if not -2 ** 63 <= value < 2 ** 63:
            raise ValueError
        return value

    def product(depth: int) -> int:
        left = term(depth)
        while tokens and tokens[-1] in "*/%":
            sign, right = tokens.pop(), term(depth)
            if sign == "*":
                left = checked(left * right)
                continue
            if right <= 0:
                raise ValueError
            quotient = abs(left) // right * (-1 if left < 0 else 1)  # rounds towards 0
            left = quotient if sign == "/" else left - quotient * right
        return left

    def total(depth: int) -> int:
        left = product(depth)
        while tokens and tokens[-1] in "+-":
            left = checked(left + product(depth) if tokens.pop() == "+" else left - product(depth))
        return left

    try:
        value = total(0)
    except (ValueError, IndexError):
        return None
    return None if tokens else value


@dataclasses.dataclass
class _Frame:
    """An `if`, a `case` or a loop that is open."""

    outer: bool  # what surrounds it is followed
    kind: str = "branches"
    done: bool = False  # a branch was followed
    active: bool = False  # this branch is followed
    subject: str = ""
    awaits_pattern: bool = False
    matches: bool = False


class Script:
    """A script whose variables are known as far as they follow from its text."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        """Takes what begins the messages of errors, and what is told of loops and conditions passed over."""
        self._name, self._note = name, note
        self._variables: Dict[str, List[str]] = {}  # plain ones have one word; in the order of first assignment
        self._arrays: Dict[str, bool] = {}
        self._frames: List[_Frame] = []
        self._in_condition = False
        self._condition: Truth = False
        self._condition_line = 0
        self._expanded = 0  # characters of all expansions

    def follow(self, text: str, run: Run) -> None:
        """Follows the script to its end, and calls `run` with the words of each command that is no assignment."""
        for command in commands_of(text, self._name):
            self._read(command, run)

    def words_of_variables(self) -> List[str]:
        """All words of arrays, and of variables, whose text begins with "--"."""
        texts = (" ".join(words) for words in self._variables.values())
        return [word for text in texts if text.lstrip(" \t\n\r").startswith("--")
                for word in re.split("[ \t\n\r]+", text) if word]

    def _follows(self) -> bool:
        return not self._frames or (self._frames[-1].active and self._frames[-1].outer)

    def _read(self, command: Command, run: Run) -> None:
        if self._read_pattern(command):
            return
        if command.array:
            if not self._in_condition and self._follows():
                before = command.appends and self._arrays.get(command.array)
                old = self._variables[command.array] if before else []
                self._set(command.array, old + self._expand_all(command.words), True)
            return
        while command.words and self._take_reserved(command):
            pass
        if not command.words:
            return
        if self._in_condition:
            self._read_condition(self._expand_all(command.words), command.joined)
        elif self._follows():
            self._take_assignments(command)
            words = self._expand_all(command.words)
            if words:
                run(words)

    def _take_reserved(self, command: Command) -> bool:
        """Takes away a first word that branches and loops are made of; with it what only belongs to it."""
        first = command.words[0]
        if len(first) != 1 or first[0].quoted:
            return False
        word = first[0].text
        if word in ("if", "elif"):
            if word == "if":
                self._frames.append(_Frame(outer=self._follows()))
            self._in_condition, self._condition, self._condition_line = True, False, command.line
            command.joined = ""
        elif word == "then" and self._in_condition:
            self._choose_branch()
        elif word == "else" and self._frames:
            self._frames[-1].active = not self._frames[-1].done
        elif word in ("fi", "esac", "done"):
            if self._frames:
                self._frames.pop()
            command.words = []
            return True
        elif word in ("for", "while", "until"):
            if self._follows():
                self._note(f"line {command.line}: a loop is passed over")
            self._frames.append(_Frame(outer=self._follows(), kind="loop"))
            command.words = []
            return True
        elif word == "case" and len(command.words) >= 2:
            words = self._expand_all(command.words[1:])
            subject = words[0].replace(UNKNOWN, "") if words else ""
            self._frames.append(_Frame(outer=self._follows(), kind="cases", subject=subject, awaits_pattern=True))
            if len(words) > 2:
                self._match(words[2:], command.ends_pattern)
            command.words = []
            return True
        elif word not in _PASSED:
            return False
        if len(self._frames) > _MOST_DEPTH:
            raise DataError(f"{self._name}, line {command.line}: branches are nested deeper than {_MOST_DEPTH} levels")
        del command.words[0]
        return True

    def _read_pattern(self, command: Command) -> bool:
        """True if the command is a pattern of `case`, which is matched then."""
        if not self._frames or self._frames[-1].kind != "cases":
            return False
        frame = self._frames[-1]
        frame.awaits_pattern = frame.awaits_pattern or command.joined == ";;"
        if not frame.awaits_pattern:
            return False
        words = self._expand_all(command.words)
        if words and words[0] == "esac":
            return False
        self._match(words, command.ends_pattern)
        return True

    def _match(self, patterns: List[str], last: bool) -> None:
        frame = self._frames[-1]
        frame.matches = frame.matches or any(pattern in ("*", frame.subject) for pattern in patterns)
        if last:
            frame.active = frame.matches and not frame.done
            frame.done = frame.done or frame.active
            frame.matches = frame.awaits_pattern = False

    def _read_condition(self, words: List[str], joined: str) -> None:
        one, before = self._truth_of(words), self._condition
        if joined not in ("||", "&&"):
            self._condition = one
        elif (joined == "||") in (one, before):
            self._condition = joined == "||"
        else:
            self._condition = None if None in (one, before) else joined == "&&"

    def _choose_branch(self) -> None:
        self._in_condition = False
        if not self._frames:
            return
        frame = self._frames[-1]
        if self._condition is None and frame.outer:
            self._note(f"line {self._condition_line}: a condition cannot be known without running the script; its "
                       "branch is not followed")
        frame.active = not frame.done and self._condition is True
        frame.done = frame.done or frame.active

    def _take_assignments(self, command: Command) -> None:
        """Sets the variables of NAME=VALUE and NAME+=VALUE in front of a command, or alone."""
        while command.words:
            word = command.words[0]
            if not word or word[0].quoted:
                return
            name, equals, rest = word[0].text.partition("=")
            appends = name.endswith("+")
            name = name[:-1] if appends else name
            if not equals or not name or not _NAME.fullmatch(name):
                return
            value = (self._variables.get(name) or [""])[0] if appends else ""
            value += self._expand_text(rest) if word[0].expands else rest
            value += "".join(self._expand_text(part.text) if part.expands else part.text for part in word[1:])
            self._set(name, [value], False)
            del command.words[0]

    def _set(self, name: str, value: List[str], array: bool) -> None:
        if sum(map(len, value)) > _MOST_BYTES:
            raise DataError(f"{self._name}: the variable {in_quotes(name)} is larger than 1 MiB")
        self._variables[name] = value
        self._arrays[name] = array

    def _truth_of(self, given: List[str]) -> Truth:
        words = [word.replace(UNKNOWN, "") for word in given if word not in ("[", "[[", "]", "]]", "test")]
        wanted = True
        while words and words[0] == "!":
            wanted = not wanted
            del words[0]
        if len(words) == 1 and words[0] not in ("-z", "-n") and given[0] in ("[", "[["):
            return bool(words[0]) == wanted
        if 1 <= len(words) <= 2 and words[0] in ("-z", "-n"):
            return ((len(words) == 1 or not words[1]) == (words[0] == "-z")) == wanted
        if len(words) != 3:
            return None
        left, sign, right = words
        if sign in ("==", "=", "!="):
            return ((left == right) == (sign != "!=")) == wanted
        first, second = whole(left), whole(right)
        if first is None or second is None or sign not in _COMPARE:
            return None
        return _COMPARE[sign](first, second) == wanted

    def _expand_all(self, words: List[Word]) -> List[str]:
        every: List[str] = []
        size = 0
        for word in words:
            made = self._expand(word)
            size += sum(map(len, made)) + len(made)
            if size > _MOST_BYTES:
                raise DataError(f"{self._name}: a command is larger than 1 MiB")
            every += made
        return every

    def _expand(self, word: Word) -> List[str]:
        """The words that a word becomes: expansions that are not quoted fall apart at blanks."""
        made: List[str] = []
        goes_on = False
        for part in word:
            value = self._expand_text(part.text) if part.expands else part.text
            splits = part.expands and not (part.quoted and "[@]" not in part.text) and re.search("[$`]", part.text)
            for piece in re.findall(f"[{BLANKS}]+|[^{BLANKS}]+", value) if splits else [value]:
                if splits and piece[0] in BLANKS:
                    goes_on = False
                    continue
                if goes_on:
                    made[-1] += piece
                else:
                    made.append(piece)
                goes_on = True
        return made

    def _expand_text(self, text: str, depth: int = 0) -> str:
        if depth > _MOST_DEPTH:
            raise DataError(f"{self._name}: expansions are nested deeper than {_MOST_DEPTH} levels")
        pieces: List[str] = []
        size = at = 0
        self._expanded += len(text)
        while at < len(text):
            if self._expanded + size > _MOST_EXPANDED:
                raise DataError(f"{self._name}: its variables unfold to more than 16 MiB")
            plain = re.compile("[^$`]+").match(text, at)
            if plain:
                piece, at = plain.group(), plain.end()
            elif text[at] == "`":
                end = text.find("`", at + 1)
                piece, at = UNKNOWN, len(text) if end < 0 else end + 1
            else:
                piece, at = self._expand_dollar(text, at, depth)
            pieces.append(piece)
            size += len(piece)
        self._expanded += size
        return "".join(pieces)

    def _expand_dollar(self, text: str, at: int, depth: int) -> Tuple[str, int]:
        """The value of the expansion that begins with "$", and where it ends."""
        opening = text[at + 1:at + 2]
        if opening in ("{", "("):
            closing, level, end = {"{": "}", "(": ")"}[opening], 1, at + 2
            while level and end < len(text):
                level += (text[end] == opening) - (text[end] == closing)
                end += 1
            inner = text[at + 2:end - 1]
            if opening == "{":
                return self._value_of(inner, depth + 1), end
            counts = inner.startswith("(") and inner.endswith(")")
            return self._arithmetic(inner[1:-1], depth + 1) if counts else UNKNOWN, end
        name = _NAME.match(text, at + 1)
        if name and name.group():
            return self._value_of(name.group(), depth + 1), name.end()
        special = opening and opening in "@*#?!$-"
        return (UNKNOWN, at + 2) if special else ("$", at + 1)

    def _value_of(self, expression: str, depth: int) -> str:
        """The value of what stands within ${...}."""
        match = _NAME.match(expression)
        name = match.group() if match else ""
        rest = expression[len(name):]
        found = self._variables.get(name)
        if rest in ("", "[@]", "[*]"):
            if found is None:
                return UNKNOWN
            joined = " ".join(found)
            if len(joined) > _MOST_BYTES:
                raise DataError(f"{self._name}: a value is larger than 1 MiB")
            return joined
        or_empty = rest[:2] in (":-", ":=")
        if not or_empty and rest[0] not in "-=":
            return UNKNOWN
        if found is not None and not (or_empty and (not found or not found[0])):
            return self._value_of(name, depth + 1)
        fallback = rest[2 if or_empty else 1:]
        if len(fallback) >= 2 and fallback[0] in "\"'" and fallback[-1] == fallback[0]:
            fallback = fallback[1:-1]
        return self._expand_text(fallback, depth + 1)

    def _arithmetic(self, text: str, depth: int) -> str:
        value = arithmetic(self._expand_text(_VARIABLE.sub(r"$\g<0>", text), depth + 1))
        return UNKNOWN if value is None else str(value)
