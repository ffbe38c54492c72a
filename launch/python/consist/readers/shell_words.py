"""Splits a shell script into commands and words, without running any of them."""
from __future__ import annotations

import dataclasses
import re
from typing import List, NoReturn

from .messages import DataError

BLANKS = " \t\n\r\v\f"
_MOST_WORDS = 100_000
_PLAIN = re.compile(r"""[^\\ \t\r\n#;|&<>()'"$`]+""")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclasses.dataclass
class Part:
    """A piece of a word: literal text, or text in which $NAME is to be expanded."""

    text: str
    expands: bool = False  # it stood neither in single quotes nor behind a backslash
    quoted: bool = False  # its expansion is not split at blanks


Word = List[Part]


@dataclasses.dataclass
class Command:
    """A command; that of NAME=( ... ) and NAME+=( ... ) has the array's elements as its words."""

    words: List[Word] = dataclasses.field(default_factory=list)
    line: int = 0
    array: str = ""
    appends: bool = False
    joined: str = ""  # the operator in front of it, if any
    ends_pattern: bool = False  # ")" follows: of `case`


def commands_of(text: str, name: str) -> List[Command]:
    """The commands in order, those of pipes and lists one by one; `name` begins the messages of errors.

    Reserved words begin commands like others. Remarks, redirections and here-documents are passed over.
    """
    return _Lexer(text, name).run()


class _Lexer:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.at, self.line, self.count = 0, 1, 0
        self.in_word = self.in_array = False
        self.word: Word = []
        self.joined = ""
        self.command = Command()
        self.commands: List[Command] = []
        self.documents: List[str] = []  # the ends of here-documents whose line is not over

    def run(self) -> List[Command]:
        while self.at < len(self.text):
            self._step()
        self._end_command()
        return self.commands

    def _refuse(self, why: str) -> NoReturn:
        raise DataError(f"{self.name}, line {self.line}: {why}")

    def _peek(self, ahead: int = 0) -> str:
        return self.text[self.at + ahead:self.at + ahead + 1]

    def _take(self) -> str:
        char = self.text[self.at]
        self.line += char == "\n"
        self.at += 1
        return char

    def _take_until(self, ends: str) -> str:
        begin = self.at
        while self.at < len(self.text) and self._peek() not in ends:
            self._take()
        return self.text[begin:self.at]

    def _step(self) -> None:
        char = self._peek()
        if char == "\\" and (self._peek(1) == "\n" or self.text[self.at + 1:self.at + 3] == "\r\n"):
            self._take_until("\n")
            self._take()
        elif char in " \t\r":
            self._take()
            self._end_word()
        elif char == "\n":
            self._end_word()
            if not self.in_array:
                self._end_command()
            self._take()
            self._skip_documents()
        elif char == "#" and not self.in_word:
            self._take_until("\n")
        elif char in ";|" or (char == "&" and self._peek(1) != ">"):
            self._end_word()
            if not self.in_array:
                self._end_command()
            self.joined = self._take()
            if self._peek() == char:
                self.joined += self._take()
        elif char in "<>":
            self._skip_redirection()
        elif char == "(":
            self._open_parenthesis()
        elif char == ")":
            self._take()
            self._end_word()
            self.command.ends_pattern = not self.in_array
            self._end_command()
            self.in_array = False
        else:
            self._read_piece(char)

    def _open_parenthesis(self) -> None:
        """Begins an array behind NAME= and NAME+=; another parenthesis is a subshell or a function."""
        self._take()
        if self.in_word and len(self.word) == 1 and self.word[0].text.endswith("="):
            array = self.word[0].text[:-1]
            appends = array.endswith("+")
            array = array[:-1] if appends else array
            if _NAME.match(array):
                self.word, self.in_word = [], False
                self._end_command()
                self.command = Command(line=self.line, array=array, appends=appends)
                self.in_array = True
                return
        self._end_command()

    def _skip_redirection(self) -> None:
        self._end_word()
        document = self._peek() == self._peek(1) == "<" != self._peek(2)
        for skipped in ("<>&-", " \t"):
            while self._peek() and self._peek() in skipped:
                self._take()
        target = self._take_until(BLANKS + ";)")
        if document:
            self.documents.append(re.sub(r"[\"'\\]", "", target))

    def _skip_documents(self) -> None:
        """Passes over the documents that the line before has announced."""
        for end in self.documents:
            while self.at < len(self.text):
                line = self._take_until("\n").lstrip("\t")
                if self.at < len(self.text):
                    self._take()
                if line and line == end:
                    break
        self.documents = []

    def _append(self, text: str, expands: bool, quoted: bool) -> None:
        self.in_word = True
        last = self.word[-1] if self.word else None
        if last and last.expands == expands and last.quoted == quoted:
            last.text += text
        else:
            self.word.append(Part(text, expands, quoted))

    def _read_piece(self, char: str) -> None:
        plain = _PLAIN.match(self.text, self.at)
        if plain:
            self.at = plain.end()
            self._append(plain.group(), True, False)
        elif char == "'":
            self._take()
            text = self._take_until("'")
            if self.at == len(self.text):
                self._refuse("a ' is not closed")
            self._take()
            self._append(text, False, True)
        elif char == '"':
            self._read_quoted()
        elif char == "\\":
            self._take()
            if self.at < len(self.text):
                self._append(self._take(), False, True)
        elif char == "$":
            self._append(self._expansion(), True, False)
        elif char == "`":
            text = self._take() + self._take_until("`")
            self._append(text + (self._take() if self.at < len(self.text) else ""), True, False)
        else:
            self._append(self._take(), True, False)

    def _read_quoted(self) -> None:
        self._take()
        text = ""
        while self.at < len(self.text) and self._peek() != '"':
            escaped = self._peek() == "\\" and self._peek(1)
            if escaped == "\n":
                self._take()
                self._take()
            elif escaped and escaped in '"\\$`':
                self._append(text, True, True)
                text = ""
                self._take()
                self._append(self._take(), False, True)
            else:
                text += self._expansion() if self._peek() == "$" else self._take()
        if self.at == len(self.text):
            self._refuse('a " is not closed')
        self._take()
        self._append(text, True, True)

    def _expansion(self) -> str:
        """Takes "$", "${...}", "$(...)" or "$((...))" as it stands, its brackets matched."""
        begin = self.at
        self._take()
        opening = self._peek()
        if opening not in ("{", "("):
            return "$"
        closing, depth = {"{": "}", "(": ")"}[opening], 0
        while True:
            if self.at == len(self.text):
                self._refuse(f"a ${opening} is not closed")
            char = self._take()
            depth += (char == opening) - (char == closing)
            if not depth:
                return self.text[begin:self.at]

    def _end_word(self) -> None:
        if not self.in_word:
            return
        self.count += 1
        if self.count > _MOST_WORDS:
            self._refuse(f"there are more than {_MOST_WORDS} words")
        if not self.command.words and not self.in_array:
            self.command.line = self.line
        self.command.words.append(self.word)
        self.word, self.in_word = [], False

    def _end_command(self) -> None:
        self._end_word()
        if self.command.words or self.command.array:
            self.command.joined, self.joined = self.joined, ""
            self.commands.append(self.command)
        self.command = Command()
