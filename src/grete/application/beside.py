"""The application's process beside one of the framework's: started, asked, and described when it has ended.

This is the framework's side of the pipe, and no module of the API.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from grete.application.carried import describe_error, rebuild_error
from grete.application.pipe import Blob, NoFrame, Pipe
from grete.environment import CONFIGURED
from grete.errors import ApplicationError, ApplicationGone, ConfigError, GreteError

Answers = Callable[[str, Any, Sequence[bytes]], tuple[Any, Sequence[Blob]]]
"""Answers a question of the process; what it raises is raised there."""

START_S = 60.0
"""An application that has not been imported by then hangs."""
_END_S = 5.0
_SYNC_S = 1.0
_HIDDEN = "***"
_LOG_MARK = "\x1e"
_LAST_LINES = 20
_LONGEST_LINE = 100_000
_SCRIPT = Path(__file__).with_name("start.py")
_LEFT_OUT = ("PYTHON", "PYSPARK", "SPARK_", "GRETE_", "VIRTUAL_ENV", "CONDA")
"""Beginnings of variables that speak of the worker's environment, or that are the framework's alone."""
_log = logging.getLogger("grete.application")
_output = logging.getLogger("grete.application.output")


class CallFailed(Exception):
    """The application raised `error`, at this row if it was a record."""

    def __init__(self, row: int | None, error: Exception) -> None:
        super().__init__(row, error)
        self.row = row
        self.error = error


def interpreter(environment: str | None) -> str:
    """The interpreter of an environment; this process's own when there is none.

    Raises:
        ConfigError: the folder has none.
    """
    if environment is None:
        return sys.executable
    found = Path(environment) / "bin" / "python"
    if not os.access(found, os.X_OK):
        raise ConfigError(
            f"job.application.environment: there is no {found}, which has to be the interpreter of the application's "
            f"environment; make the folder with python -m venv {environment}, or with grete package build"
        )
    return str(found)


def other_gretes(environment: str | None, version: str) -> Iterator[tuple[str, Path]]:
    """Other versions of grete with which an environment was made, and what says so: a package's manifest, or pip.

    None of them runs: an application's process has the API of the framework that starts it. But it may have been
    written for another one.
    """
    folder = Path(environment or os.devnull)
    found = {
        path: path.stem.split("-")[1] for path in folder.glob("lib/python*/site-packages/grete-*.dist-info")
    }
    manifest = folder / "manifest.json"
    if manifest.is_file():
        found[manifest] = str(json.loads(manifest.read_text("utf-8")).get("grete", version))
    for path, of_path in found.items():
        if of_path != version:
            yield of_path, path


def modules_folder(folder: str | None, environment: str | None) -> str | None:
    """Where the application's modules are: in the folder that is named for them, else in `lib` of its package."""
    is_package = environment is not None and Path(environment, "manifest.json").is_file()
    return folder or (str(Path(environment or "", "lib")) if is_package else None)


class ApplicationProcess:
    """One process, from its start to its end. Used by one thread."""

    def __init__(
        self, python: str, folder: str | None, *, shown: str = "the application", start_s: float = START_S
    ) -> None:
        """Starts it; `shown` is its name in errors, which has to be loaded by `load` within `start_s`.

        Raises:
            ConfigError: the interpreter cannot be run, or the folder is none.
        """
        if folder and not Path(folder).is_dir():
            raise ConfigError(
                f"job.application.path: there is no folder {folder}, which has to have the modules"
            )
        self._shown = f"{shown} (with {python})"
        self._start_s = start_s
        requests, replies, life = os.pipe(), os.pipe(), os.pipe()
        theirs = (requests[0], replies[1], life[0])
        command = [python, "-I", str(_SCRIPT), *map(str, theirs), folder or ""]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter that the configuration names
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=theirs,
                env=without_framework(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            for descriptor in (*requests, *replies, *life):
                os.close(descriptor)
            raise ConfigError(f"the application's interpreter {python} cannot be run: {error}") from error
        for descriptor in theirs:
            os.close(descriptor)
        self._pipe = Pipe(replies[0], requests[1])
        self._life = life[1]
        assert self._process.stdout is not None, "it was asked for"
        self._log = _ProcessLog(self._process.stdout)
        self._hidden = ""
        self._carried: list[Exception] = []
        self._has_expired = False
        self.is_gone = False

    def hide(self, secret: str) -> None:
        """Say this text nowhere that the process has it from here: neither in its errors nor in what it writes."""
        self._log.hidden = self._hidden = secret

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def load(self, said: Mapping[str, Any], answers: Answers, *, verb: str = "hello") -> Any:
        """Let it import the application; what it answers to the first request, by default a description of its class.

        Raises:
            ConfigError: the class cannot be found, or is none.
            ApplicationError: the process ended or hung meanwhile, or the import failed.
        """
        expiry = threading.Timer(self._start_s, self._expire)
        expiry.start()
        try:
            python, _ = self._received(answers)
            _log.info("%s is in process %d, with Python %s", self._shown, self.pid, python)
            return self.call(verb, said, answers=answers)[0]
        except CallFailed as failed:
            raise _of_load(failed.error) from None
        except ApplicationGone as gone:
            if self._has_expired:
                raise ApplicationError(
                    f"{self._shown} was not imported within {self._start_s:g} s{self._log.shown()}"
                ) from gone
            raise ApplicationError(str(gone)) from gone
        finally:
            expiry.cancel()

    def _expire(self) -> None:
        self._has_expired = True
        self._process.kill()

    def call(
        self, verb: str, value: object, blobs: Sequence[Blob] = (), *, answers: Answers
    ) -> tuple[Any, list[bytes]]:
        """Let it do something; its result.

        Raises:
            CallFailed: the application raised its cause.
            ApplicationGone: the process has ended.
        """
        try:
            self._pipe.send(verb, value, blobs)
        except OSError as error:
            raise self._gone(verb) from error
        return self._received(answers, verb)

    def _received(self, answers: Answers, verb: str = "start") -> tuple[Any, list[bytes]]:
        while True:
            try:
                kind, value, blobs = self._pipe.receive()
                if kind in ("done", "ready"):
                    return value, blobs
                if kind == "failed":
                    raise self._failed(value)
                self._answer(kind, value, blobs, answers)
            except NoFrame as error:
                self._process.kill()
                raise ApplicationGone(
                    f"{self._gone(verb)}\nit was killed, since something else than the API has written into the pipe "
                    f"to the framework: {error}"
                ) from error
            except (EOFError, OSError) as error:
                raise self._gone(verb) from error

    def _answer(self, kind: str, value: Any, blobs: Sequence[bytes], answers: Answers) -> None:
        try:
            answer, made = answers(kind, value, blobs)
        except (GreteError, KeyError) as error:
            self._carried.append(error)
            self._pipe.send("refused", describe_error(error, len(self._carried) - 1))
        else:
            self._pipe.send("answer", answer, made)

    def _failed(self, value: dict[str, Any]) -> CallFailed:
        self._log.catch_up()
        if self._hidden:
            value = json.loads(json.dumps(value).replace(self._hidden, _HIDDEN))
        return CallFailed(value["row"], rebuild_error(value, self._carried))

    def _gone(self, verb: str) -> ApplicationGone:
        self.is_gone = True
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return ApplicationGone(
            f"the process of {self._shown} ended with {how} during {verb!r}{self._log.shown()}"
        )

    def close(self) -> None:
        """End it; one that does not end by itself is killed."""
        self._pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._life)
        self._log.close()


def _of_load(error: Exception) -> GreteError:
    return error if isinstance(error, GreteError) else ApplicationError(repr(error))


def without_framework(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what speaks of this process's environment, or is for its systems."""
    of_systems = environment.get(CONFIGURED, "").split(",")
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_LEFT_OUT) and name not in of_systems
    }


class _ProcessLog:
    """Puts what the process writes into this process's log, by a thread of its own."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.hidden = ""
        self._stream = stream
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._pump, name="application-output", daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        while line := self._stream.readline(_LONGEST_LINE):
            if self.hidden:
                line = line.replace(self.hidden.encode(), _HIDDEN.encode())
            text = line.decode(errors="replace").rstrip("\n")
            if not text.startswith(_LOG_MARK):
                self._last.append(text)
                _output.info("%s", text)
            elif text == _LOG_MARK:
                self._caught_up.set()
            else:
                self._log(text[1:])

    def _log(self, text: str) -> None:
        try:
            level, name, message = json.loads(text)
            self._last.append(message)
            logging.getLogger(name).log(level, "%s", message)
        except (ValueError, TypeError):
            _output.info("%s", text)

    def catch_up(self) -> None:
        """Wait for what was written before the mark that follows a failure."""
        self._caught_up.wait(_SYNC_S)
        self._caught_up.clear()

    def shown(self) -> str:
        """The last lines, for the error of a process that has ended."""
        self._thread.join(_SYNC_S)  # a fork of its own may keep the pipe open
        lines = list(self._last)
        return "; its last output:\n  " + "\n  ".join(lines) if lines else "; it had printed nothing"

    def close(self) -> None:
        """Read the rest."""
        self._thread.join(_SYNC_S)
        if not self._thread.is_alive():
            self._stream.close()
