"""Processes that misbehave: a small program in place of the real one says and does what each case needs."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest
from conftest import ROOT

import consist
from consist import _stream, events
from consist.observers import Observer

Program = Callable[[str], None]
RUN = '{"event": "run", "version": 1, "configuration": {}, "ranks": 1, "archive": null}'
RESULT = '{"event": "result", "steps": 1, "loss": 2.5}'


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a program of Python in the place of the real one."""

    def put(body: str) -> None:
        path = tmp_path / "consist"
        head = f"#!{sys.executable} -I\nimport os, signal, sys, time\ndef say(text): print(text, flush=True)\n"
        path.write_text(head + textwrap.dedent(body))
        path.chmod(0o755)
        monkeypatch.setenv("CONSIST_PROGRAM", str(path))

    return put


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


def test_events_come_while_the_program_runs(fake: Program, tmp_path: Path) -> None:
    fake(f"""
        say('{RUN}')
        while not os.path.exists({str(tmp_path / "go")!r}): time.sleep(0.01)
        say('{RESULT}')""")
    run = consist.run("m")
    come = run.events(timeout=60)
    assert isinstance(next(come), events.RunStarted) and run.is_running and run.status is None
    (tmp_path / "go").touch()
    assert [type(event) for event in come] == [events.RunResult]
    assert run.status == 0 and not run.is_running
    assert [type(event) for event in run] == [events.RunStarted, events.RunResult], "a second loop sees all of them"
    result = run.result(60)
    assert result.loss == 2.5 and result.steps == 1


def test_a_program_that_says_nothing(fake: Program) -> None:
    fake("time.sleep(600)")
    with consist.run("m") as run:
        with pytest.raises(consist.WaitTimeoutError, match="said nothing for 0.2 s; it runs on"):
            next(run.events(timeout=0.2))
        with pytest.raises(consist.WaitTimeoutError, match="still runs after 0.2 s; it was not ended"):
            run.result(timeout=0.2)
        assert run.is_running
        pid = run._process._popen.pid
    assert not run.is_running and gone(pid)


def test_a_block_ends_with_all_processes_of_the_group(fake: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake(f"""
        import subprocess
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"])
        open({str(pids)!r}, "w").write(str(child.pid))
        say('{RUN}')
        time.sleep(600)""")
    run = consist.run("m")
    next(run.events(timeout=60))
    child = int(pids.read_text())
    begin = time.monotonic()
    run.stop(timeout=0.3)
    assert time.monotonic() - begin < 20 and gone(child) and not run.is_running
    with pytest.raises(consist.ProgramError, match="ended by signal 9") as caught:
        run.result()
    assert caught.value.status == -signal.SIGKILL
    assert [type(event) for event in run] == [events.RunStarted], "a loop over what was stopped by the caller ends quietly"


def test_what_the_program_leaves_behind_ends_with_it(fake: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake(f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(pids)!r}, "w").write(str(child.pid))
        say('{RUN}')
        say('{RESULT}')""")
    assert consist.run("m").result(timeout=60).steps == 1
    assert gone(int(pids.read_text()))


def test_the_run_ends_when_python_is_killed(fake: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake(f"""
        open({str(pids)!r}, "w").write(str(os.getpid()))
        say('{RUN}')
        time.sleep(600)""")
    script = "import consist; run = consist.run('m'); next(run.events(timeout=60)); print('on', flush=True); run.result()"
    python = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "launch" / "python")))
    assert python.stdout is not None and python.stdout.readline() == "on\n"
    python.kill()
    python.wait(60)
    python.stdout.close()
    assert gone(int(pids.read_text()))


def test_the_run_ends_when_python_ends(fake: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake(f"""
        open({str(pids)!r}, "w").write(str(os.getpid()))
        say('{RUN}')
        time.sleep(600)""")
    script = "import consist; run = consist.run('m'); next(run.events(timeout=60))"
    subprocess.run([sys.executable, "-c", script], env=dict(os.environ, PYTHONPATH=str(ROOT / "launch" / "python")), check=True,
                   timeout=60)
    assert gone(int(pids.read_text()))


def test_an_interrupt_ends_the_run(fake: Program, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake(f"""
        open({str(pids)!r}, "w").write(str(os.getpid()))
        say('{RUN}')
        time.sleep(600)""")
    script = ("import consist\nrun = consist.run('m')\ntry:\n  for event in run: print('on', flush=True)\n"
              "except KeyboardInterrupt: print('interrupted', run.is_running)")
    python = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "launch" / "python")))
    assert python.stdout is not None and python.stdout.readline() == "on\n"
    time.sleep(1)  # until the loop waits again: an interrupt of its body is the body's own
    python.send_signal(signal.SIGINT)
    assert python.communicate(timeout=60)[0] == "interrupted False\n"
    assert gone(int(pids.read_text()))


def test_a_run_of_another_thread(fake: Program) -> None:
    from concurrent.futures import ThreadPoolExecutor
    fake(f"""
        time.sleep(0.3)
        say('{RESULT}')""")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(consist.run, "m").result()
    assert run.result(60).loss == 2.5, "the thread that started it is gone"


def test_failures(fake: Program) -> None:
    fake("""
        print("some notes", file=sys.stderr)
        print("consist: the disk is full\\n  free some", file=sys.stderr)
        sys.exit(1)""")
    with pytest.raises(consist.ProgramError, match="the disk is full\n  free some") as caught:
        for _ in consist.run("m"):
            pass
    assert caught.value.status == 1 and caught.value.log.startswith("some notes")
    fake("""
        say('{"event": "error", "message": "no such model", "status": 2}')
        sys.exit(2)""")
    with pytest.raises(consist.UsageError, match="no such model"):
        consist.run("m").result(60)
    fake("os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(consist.ProgramError, match="ended by signal 11"):
        consist.run("m").result(60)
    fake("pass")
    with pytest.raises(consist.ProgramError, match="ended without a result: is it older than this package"):
        consist.run("m").result(60)


def test_a_program_that_fails_before_the_run_is_returned(fake: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(_stream.Process):
        """A process that has ended when it is made."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.wait(60)

    monkeypatch.setattr(_stream, "Process", Ended)
    fake("""
        print("consist: no", file=sys.stderr)
        sys.exit(1)""")
    with pytest.raises(consist.ProgramError, match="no") as caught:
        consist.run("m").result(60)
    assert caught.value.status == 1 and caught.value.command[1:] == ("train", "--json", "--model", "m")


def test_a_file_that_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "consist"
    path.write_bytes(b"\0\1\2\3")
    path.chmod(0o755)
    monkeypatch.setenv("CONSIST_PROGRAM", str(path))
    with pytest.raises(consist.ConsistError, match="cannot be started: Exec format error"):
        consist.run("m").result(60)


def test_lines_that_are_no_events_are_kept(fake: Program, capsys: pytest.CaptureFixture[str]) -> None:
    fake(f"""
        say("a library's greeting")
        print("progress", file=sys.stderr, flush=True)
        say('{{"event": "new kind", "x": 1}}')
        say('{RESULT}')""")
    run = consist.run("m", show_log=True)
    run.result(60)
    assert "a library's greeting" in run.log and "progress" in run.log
    assert [event.name for event in run] == ["new kind", "result"] and run.seen[0].data["x"] == 1
    assert "progress" in capsys.readouterr().err


def test_a_slow_reader_does_not_stop_the_program(fake: Program) -> None:
    fake(f"""
        for step in range(20_000): say('{{"event": "step", "step": %d, "loss": 1.0, "filler": "%s"}}' % (step, "x" * 100))
        say('{RESULT}')""")
    run = consist.run("m")
    run.result(timeout=120)
    assert len(run.steps) == 20_000 and run.steps.index[-1] == 19_999


class Recorder(Observer):
    """Notes what it is told; fails at a step."""

    def __init__(self, fails_at: int = -1) -> None:
        self.told: List[Any] = []
        self.fails_at = fails_at

    def begin(self, event: events.RunStarted) -> None:
        self.told.append("begin")

    def step(self, event: events.Step) -> None:
        if event.step == self.fails_at:
            raise ValueError("no space")
        self.told.append(event.step)

    def end(self, status: str, event: events.Event) -> None:
        self.told.append(status)


@pytest.mark.filterwarnings("default")
def test_observers_are_told_and_may_fail(fake: Program) -> None:
    fake(f"""
        say('{RUN}')
        for step in (1, 2, 3): say('{{"event": "step", "step": %d, "loss": 1.0}}' % step)
        say('{RESULT}')""")
    sound, failing = Recorder(), Recorder(fails_at=2)
    with pytest.warns(RuntimeWarning, match="the observer Recorder failed and is not called again: ValueError: no space"):
        consist.run("m", observers=[sound, failing]).result(60)
    assert sound.told == ["begin", 1, 2, 3, "finished"] and failing.told == ["begin", 1]


def test_observers_are_told_of_a_failure(fake: Program) -> None:
    fake(f"""
        say('{RUN}')
        sys.exit(1)""")
    seen = Recorder()
    with pytest.raises(consist.ProgramError):
        consist.run("m", observers=[seen]).result(60)
    assert seen.told == ["begin", "failed"]


def test_folder_and_environment(fake: Program, tmp_path: Path) -> None:
    fake(f"""
        import json
        say(json.dumps({{"event": "where", "folder": os.getcwd(), "x": os.environ["X"], "python": os.environ["CONSIST_PYTHON"],
                         "words": sys.argv[1:]}}))
        say('{RESULT}')""")
    run = consist.run({"hidden_size": 8}, folder=tmp_path, environment={"X": "1"}, steps=3)
    run.result(60)
    assert run.seen[0].data == {"event": "where", "folder": str(tmp_path), "x": "1", "python": sys.executable,
                                "words": ["train", "--json", "--model", '{"hidden_size": 8}', "--steps", "3"]}
    assert run.command[1:] == ("train", "--json", "--model", '{"hidden_size": 8}', "--steps", "3")


def test_a_run_shows_itself(fake: Program) -> None:
    fake(f"""
        say('{{"event": "step", "step": 7, "loss": 1.25}}')
        say('{RESULT}')""")
    run = consist.run("m")
    run.result(60)
    assert [line.split() for line in str(run).splitlines()][2:4] == [["step", "7"], ["loss", "1.2500"]]
    assert "finished" in str(run) and "<td" in run._repr_html_() and repr(run) == "Run('train --json --model m', finished)"
