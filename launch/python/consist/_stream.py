"""A command that goes on, and its events: what run(), compare() and tune() have in common."""
from __future__ import annotations

import threading
import time
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, Generic, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar

from . import _tables
from ._process import Folder, Process, failure
from .errors import ConsistError, ProgramError, WaitTimeoutError
from .events import Event, Failure, event_of

Result = TypeVar("Result", bound=Event)
STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.05


class Stream(Generic[Result]):
    """Events of a command, kept as they come, so that any number of loops sees all of them."""

    _kinds: Mapping[str, Type[Event]] = {}
    _result_kind: Type[Event] = Event

    def __init__(self, arguments: Sequence[str], listeners: Sequence[Callable[[Event], None]] = (),
                 folder: Folder = None, environment: Optional[Mapping[str, str]] = None,
                 show_log: bool = False) -> None:
        self._events: List[Event] = []
        self._news = threading.Condition()
        self._error: Optional[ProgramError] = None
        self._is_stopped = False
        self._listeners = list(listeners)
        self._process = Process(arguments, self._take, self._end, folder, environment, show_log)

    @property
    def command(self) -> Sequence[str]:
        """The words of the command, as a shell would take them."""
        return tuple(self._process.command)

    @property
    def log(self) -> str:
        """The last lines that the program wrote for people (standard error)."""
        return self._process.log

    @property
    def status(self) -> Optional[int]:
        """The exit status; None while the command goes on."""
        return None if self.is_running else self._process.status

    @property
    def is_running(self) -> bool:
        """True until the command has ended and all of its events are here."""
        return self._process.is_running

    @property
    def seen(self) -> Sequence[Event]:
        """The events so far; does not wait."""
        return tuple(self._events)

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, timeout: Optional[float] = None) -> Iterator[Event]:
        """Yields the events from the first one on, as they come, and returns when the command has ended.

        Raises ProgramError at the end of a command that failed, WaitTimeoutError if nothing happens for ``timeout``
        seconds (None: waits as long as the command goes on). An interrupt while it waits stops the command.
        """
        index = 0
        while True:
            event = self._next(index, timeout)
            if event is None:
                break
            yield event
            index += 1
        if self._error is not None and not self._is_stopped:
            raise self._error

    def result(self, timeout: Optional[float] = None) -> Result:
        """Waits for the end and returns the last event.

        Raises the program's message as ProgramError (UsageError: the options were refused), WaitTimeoutError after
        ``timeout`` seconds (None: waits as long as the command goes on). An interrupt while it waits stops the command.
        """
        try:
            self._process.wait(timeout)
        except KeyboardInterrupt:
            self.stop()
            raise
        if self._error is not None:
            raise self._error
        last: Any = self._events[-1]
        return last  # type: ignore[no-any-return]

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Asks the command to end: a run ends after its step, writes its checkpoint and closes its archive.

        After ``timeout`` seconds the processes are killed. Does nothing if the command has ended.
        """
        if self.is_running:
            self._is_stopped = True
            self._process.stop(timeout)

    def __enter__(self: "Self") -> "Self":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()

    def _next(self, index: int, timeout: Optional[float]) -> Optional[Event]:
        """The event of this number; None if there is none and will be none."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            with self._news:
                while index >= len(self._events):
                    if not self.is_running:
                        return None
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise WaitTimeoutError(f"consist {self.command[1]} said nothing for {timeout:g} s; it runs on")
                    # The end comes after the last event, and does not notify: look again now and then.
                    self._news.wait(_LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS))
                return self._events[index]
        except KeyboardInterrupt:
            self.stop()
            raise

    def _take(self, data: Dict[str, Any]) -> None:
        event = event_of(data, self._kinds)
        with self._news:
            self._events.append(event)
            self._news.notify_all()
        self._tell(event)

    def _tell(self, event: Event) -> None:
        """Tells the listeners. One that fails is not called again, and the command goes on."""
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as error:
                self._listeners.remove(listener)
                warnings.warn(f"{listener} failed and is not called again: {type(error).__name__}: {error}",
                              RuntimeWarning, stacklevel=2)

    def _end(self, process: Process) -> None:
        # The process may end before self._process is known.
        last = self._events[-1] if self._events else None
        status = 0 if process.status is None else process.status
        if isinstance(last, Failure):
            self._error = failure(last.status or status, process.command, process.log, last.message)
        elif not isinstance(last, self._result_kind):
            self._error = failure(status, process.command, process.log) if status else ProgramError(
                f"{process.command[0]} ended without a result: is it older than this package?", status, process.command,
                process.log)
            # What listens for the end is told that there was one.
            self._tell(Failure(data={"event": "error"}, message=self._error.message, status=status))

    # Display

    def facts(self) -> Dict[str, Any]:
        """Returns what is shown of the command."""
        return {"command": " ".join(self.command[1:]), "state": self._state()}

    def _state(self) -> str:
        if self.is_running:
            return "running"
        if self._is_stopped:
            return "stopped"
        return "finished" if self._error is None else f"failed: {self._error}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.command[1:])!r}, {self._state()})"

    def __str__(self) -> str:
        return _tables.facts_as_text(self.facts())

    def _repr_html_(self) -> str:
        return _tables.facts_as_html(self.facts())


Self = TypeVar("Self", bound="Stream[Any]")
