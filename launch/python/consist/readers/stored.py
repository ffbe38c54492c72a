"""Values of a file that mean something together only: kept under a short name until all are read."""
from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Mapping, NoReturn, Optional, Sequence

from .messages import listed, shown
from .target import Target


@dataclass(frozen=True)
class Stored:
    """A value with its key as the file has it."""

    key: str
    value: Any
    said: Any  # what the file has, which `value` follows from


class StoredValues:
    """The values of a file by their short names. Each getter raises UsageError that names the key.

    `keys` has the file's own keys of short names, for messages about values that it does not give.
    """

    def __init__(self, target: Target, keys: Mapping[str, str] = MappingProxyType({})) -> None:
        self.target = target
        self._keys = keys
        self._values: Dict[str, Stored] = {}

    def add(self, name: str, key: str, value: Any, said: Any = None) -> None:
        """Keeps a value, which follows from what the key says (`said`, None: it is that).

        Raises UsageError where another key has given `name`.
        """
        known = self._values.setdefault(name, Stored(key, value, value if said is None else said))
        if known.key != key:
            self.target.refuse(key, f"is given beside {known.key}, which means the same; leave one of them out")

    def find(self, name: str) -> Optional[Stored]:
        """The value; None if the file does not give it."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """True if the file gives the value."""
        return name in self._values

    def key_of(self, name: str) -> str:
        """The file's key of a short name."""
        given = self.find(name)
        return given.key if given else self._keys.get(name, name)

    def __getitem__(self, name: str) -> Any:
        return self._values[name].value

    def whole(self, name: str, fallback: int, least: int, most: int) -> int:
        """A whole number in a range, or `fallback`."""
        given = self.find(name)
        return self.target.whole(given.key, given.value, least, most) if given else fallback

    def number(self, name: str, fallback: float) -> float:
        """A number, or `fallback`."""
        given = self.find(name)
        return self.target.number(given.key, given.value) if given else fallback

    def truth(self, name: str, fallback: bool = False) -> bool:
        """A truth value, or `fallback`."""
        given = self.find(name)
        return self.target.truth(given.key, given.value) if given else fallback

    def text(self, name: str, fallback: str) -> str:
        """A text, or `fallback`."""
        given = self.find(name)
        if given is None:
            return fallback
        if not isinstance(given.value, str):
            self.target.refuse(given.key, f"is {shown(given.value)}; it must be a text")
        return given.value

    def choice(self, name: str, fallback: str, legal: Sequence[str]) -> str:
        """A text that is one of `legal`, or `fallback`."""
        read = self.text(name, fallback)
        if read not in legal:
            self.refuse(name, f"is {shown(read)}, which is not done here; it may be one of {listed(legal)}")
        return read

    def note(self, what: str, *names: str) -> None:
        """A note about each of the values that the file gives."""
        for name in names:
            given = self.find(name)
            if given:
                self.target.note(given.key, given.said, what)

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raises UsageError that names the key, or `name` itself where it has its default."""
        self.target.refuse(self.key_of(name) + ("" if self.has(name) else " (its default)"), why)

    def state(self, name: str, option: str, value: Any) -> None:
        """The option takes the value if the file gives it, else it is the trainer's default."""
        given = self.find(name)
        if given:
            self.target.state(given.key, given.said, option, value)
        else:
            self.target.absent(self.key_of(name), option, value)

    def state_balanced_experts(self, name: str) -> None:
        """A value that says whether all experts are forced to have as many tokens; by default they are not."""
        if self.has(name) and self.truth(name):
            self.state(name, "expert-load", "balanced")
        else:
            self.note("--expert-load is natural", name)

    def state_plugin(self, name: str, plugin: str, option: str, text: str) -> None:
        """The same for an option of a plugin."""
        given = self.find(name)
        if given:
            self.target.state_plugin(given.key, given.said, plugin, option, text)
        else:
            self.target.absent_plugin(self.key_of(name), plugin, option, text)
