"""A job that is run while it is being written: coordinated in this process, started again when a file was saved."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from grete.assembly.run import coordinate
from grete.assembly.stop_signals import StopSignals
from grete.assembly.submission import WITHOUT_SPARK, RunOptions, submitted_settings
from grete.cli.pages_link import pages_link
from grete.cli.stream_append import append_lines
from grete.cli.warm_jvm import WarmJvm
from grete.clock import SystemClock
from grete.config.key_tables.coordinator import RETRY_COUNT
from grete.config.settings import Settings
from grete.coordinator.events import Event, StopRequested
from grete.environment import grete_home
from grete.errors import GreteError, StreamNotFound
from grete.extras import require
from grete.model.ids import SystemStream
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.operations.stream_records import decoded, read_records
from grete.systems.factory import open_system
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.coordinator.view import View
    from grete.systems.base import System

_LOOK_S = 0.1
_SAMPLES_A_LOOK, _LOOK_AT_OUTPUTS_S = 5, 0.5
_LONGEST_VALUE = 160
_STOP_S = 10.0
_AT_WORK = ("running", "waiting")
_NOT_SOURCES = ("__pycache__", "node_modules", "site-packages")


def settings_of(paths: Sequence[Path], overrides: Mapping[str, str]) -> Settings:
    """The settings that would be submitted. A container that fails is not tried again, unless `overrides` say so.

    Raises:
        ConfigError: they are wrong.
    """
    once = {RETRY_COUNT.name: "0", **overrides}
    options = RunOptions(config_paths=[str(path) for path in paths], overrides=once, dev=True)
    return submitted_settings(options, grete_home(), SystemClock())


class Saves:
    """Which of some files, and of all in some folders, were saved since the last look."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._known = self._look()

    def changed(self) -> list[Path]:
        """Those that were written, made or removed since the last time."""
        before, self._known = self._known, self._look()
        return sorted(path for path in {*before, *self._known} if before.get(path) != self._known.get(path))

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._files():
            with suppress(OSError):  # an editor has just replaced it
                state = path.stat()
                found[path] = (state.st_mtime_ns, state.st_size)
        return found

    def _files(self) -> Iterator[Path]:
        for place in self._places:
            if place.is_dir():
                yield from sources(place)
            else:
                yield place


def sources(folder: Path) -> Iterator[Path]:
    """The Python files of an application's folder, without environments and what is hidden."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _NOT_SOURCES:
            continue
        if path.is_dir():
            if not (path / "pyvenv.cfg").exists():
                yield from sources(path)
        elif path.suffix == ".py":
            yield path


class _Stops:
    """Implements `assembly.stop_signals.Requests`: stops the job when it is told to."""

    def __init__(self) -> None:
        self._reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_stopping = threading.Event()
        self.on_request: Callable[[], None] = lambda: None

    def stop(self, why: str) -> None:
        self._is_stopping.set()
        self._reasons.put(why)
        self.on_request()

    def listen(self) -> None:
        """See Requests."""

    def requests(self, deadline_s: float) -> Iterator[Event]:
        """See Requests."""
        while not self._reasons.empty():
            yield StopRequested(deadline_s, self._reasons.get())

    def again(self) -> bool:
        """See Requests."""
        return self._is_stopping.is_set()

    def wait(self, timeout_s: float) -> bool:
        """See Requests."""
        return self._is_stopping.wait(timeout_s)


class DevelopedJob:
    """The job as it was submitted last, coordinated by a thread until it ends."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.error = ""
        self._view: View | None = None
        self._stops = _Stops()
        self._thread = threading.Thread(target=self._coordinate, name="coordinator", daemon=True)
        self._thread.start()

    def _coordinate(self) -> None:
        options = RunOptions(config=self.settings.raw, dev=True, reason="grete dev")
        if not self.settings.job.is_pipeline:
            options = RunOptions(
                config=self.settings.raw, dev=True, reason="grete dev", container_command=WITHOUT_SPARK
            )
        try:
            coordinate(options, self._stops, self._take)
        except GreteError as error:
            self.error = str(error)

    def _take(self, view: View) -> None:
        self._view = view

    @property
    def is_over(self) -> bool:
        """Whether it has ended, by itself or with `error`."""
        return not self._thread.is_alive()

    def containers(self) -> dict[str, tuple[int, bool, int]]:
        """Of each: its epoch, whether it is at work, and the records that it has processed."""
        view = self._view
        reports = {} if view is None else view.containers.progress()
        return {
            name: (one.heartbeat.epoch, one.heartbeat.state in _AT_WORK, one.heartbeat.records)
            for name, one in reports.items()
        }

    def behind(self) -> str:
        """How many records there are that it has not processed, as the end of a line; nothing where none are."""
        view = self._view
        try:
            left = 0 if view is None else sum(view.measured_lag().by_ssp.values())
        except GreteError:  # a broker that is away is said by the job itself
            return ""
        return f", {left:,} records behind" if left else ""

    def pages(self) -> str:
        """Where its pages are, as a line."""
        with open_job(self.settings.job.id) as handle:
            state = handle.state()
        link = None if state is None else pages_link(state.url, state.read_token_file)
        return f"pages, within a minute: {link}; grete status gives another link" if link else ""

    def restart(self, why: str) -> None:
        """Start each container again, with the code that is there now.

        Raises:
            GreteError: it does not run any more.
        """
        assert self._view is not None, "it is at work"
        for name in self.containers():
            self._view.requests.write("restart", name, _STOP_S, why)

    def stop(self, why: str) -> None:
        """End it at a batch's boundary, and wait until it has."""
        self._stops.stop(why)
        self._thread.join(2 * _STOP_S)


class Outputs:
    """What has come into the job's output streams since they were looked at."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self._streams = list(settings.task.outputs)
        self._systems: dict[str, System] = {}
        for name in sorted({stream.system for stream in self._streams}):
            opened = open_system(settings, name, grete_home(), SystemClock())
            self._systems[name] = stack.enter_context(closing(opened))
        self._ends: dict[tuple[SystemStream, int], int] = {}
        self.look()

    def look(self) -> tuple[int, list[str]]:
        """How many records have come since the last look, and the last few of them as lines."""
        came, lines = 0, []
        for stream in self._streams:
            with suppress(StreamNotFound):  # it is made with the first record
                for partition, offsets in self._systems[stream.system].offsets(stream.stream).items():
                    end, place = int(offsets.upcoming), (stream, partition)
                    before, self._ends[place] = self._ends.get(place, 0), end
                    if end > before:
                        came += end - before
                        lines += self._samples(stream, partition, max(before, end - _SAMPLES_A_LOOK))
        return came, lines[-_SAMPLES_A_LOOK:]

    def _samples(self, stream: SystemStream, partition: int, start: int) -> list[str]:
        records = read_records(self._systems[stream.system], stream.stream, partition, start)
        return [f"{stream}  {_short(decoded(one.key))}  {_short(decoded(one.value))}" for one in records]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}...")


class Development:
    """Runs a job, looks at what is saved, and says what happens, until it is interrupted."""

    def __init__(self, paths: Sequence[Path], overrides: Mapping[str, str], out: TextIO) -> None:
        """`overrides` win over the files."""
        self._paths = [path.resolve() for path in paths]
        self._overrides = dict(overrides)
        self._out = out
        self._job: DevelopedJob | None = None
        self._since_s: float | None = None
        """When it was started or restarted last, until it is at work."""
        self._epochs: dict[str, int] = {}
        self._jvm = WarmJvm()
        self._signals = StopSignals()
        """A shell that starts it in the background has SIGINT ignored, so that there is no KeyboardInterrupt: what is
        sent to it then, as by a test, is meant."""

    def run(self) -> int:
        """Until Ctrl-C or SIGTERM: 0. A second Ctrl-C waits for nothing."""
        self._saves = Saves(self._paths)
        self._signals.listen()
        try:
            while not self._signals.have_come:
                with ExitStack() as stack:
                    outputs = self._submit(stack)
                    self._attend(outputs)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._say("stopping")
            self._end("grete dev was interrupted")
            return 0
        finally:
            self._jvm.close()

    def _say(self, text: str) -> None:
        for line in text.splitlines():
            print(f"{datetime.now():%H:%M:%S}  {printable(line)}", file=self._out, flush=True)

    def _submit(self, stack: ExitStack) -> Outputs | None:
        """Start the job; None where it cannot be, which was said."""
        try:
            settings = settings_of(self._paths, self._overrides)
            require("arrow")
            self._create_inputs(settings)
            self._watch(settings)
            outputs = Outputs(settings, stack)
        except GreteError as error:
            self._say(f"{error}\nwaiting for a change")
            return None
        kind = "a pipeline; Spark takes some seconds" if settings.job.is_pipeline else "a task, without Spark"
        self._say(f"{settings.job.id.shown}: {kind}; Ctrl-C ends it")
        self._jvm.start_for(settings)
        self._job, self._since_s, self._epochs = DevelopedJob(settings), time.monotonic(), {}
        return outputs

    def _watch(self, settings: Settings) -> None:
        place = settings.job.application_path
        self._saves = Saves([*self._paths, *([Path(place)] if place else [])])

    def _create_inputs(self, settings: Settings) -> None:
        for stream in settings.task.all_inputs:
            if settings.system(stream.system).is_embedded:
                with closing(open_system(settings, stream.system, grete_home(), SystemClock())) as system:
                    if stream.stream not in system.streams():
                        system.create_stream(StreamSpec(stream.stream, 1))
                        self._say(f"{stream}: created with one partition{self._sample(system, stream)}")

    def _sample(self, system: System, stream: SystemStream) -> str:
        """Append the lines of the file beside the configuration that has the stream's name; what to say of it."""
        sample = self._paths[0].parent / f"{stream.stream}.jsonl"
        if not sample.is_file():
            return f"; grete stream append {stream} fills it"
        count = append_lines(system, stream.stream, sample)
        return f", and filled with the {count:,} lines of {sample.name}"

    def _attend(self, outputs: Outputs | None) -> None:
        """Say what happens until the job is to be submitted again, or all is to end."""
        looked_s, processed = time.monotonic(), 0
        while not self._signals.wait(_LOOK_S):
            if (changed := self._saves.changed()) and self._follow(changed):
                return
            if self._job is None or outputs is None:
                continue
            if self._job.is_over:
                self._say(f"{self._job.error or 'the job has ended'}\nwaiting for a change")
                self._job = None
                continue
            self._note_at_work(self._job)
            if time.monotonic() - looked_s >= _LOOK_AT_OUTPUTS_S:
                looked_s = time.monotonic()
                processed = self._show(self._job, outputs, processed)

    def _follow(self, changed: Sequence[Path]) -> bool:
        """Restart containers where code alone was saved; whether the job is to be submitted again."""
        names = ", ".join(path.name for path in changed)
        if (
            self._job is None
            or self._job.is_over
            or set(changed) & set(self._paths)
            or self._since_s is not None
        ):
            self._say(f"{names} saved: starting")
            self._end(f"{names} saved")
            return True
        self._say(f"{names} saved: restarting")
        self._since_s = time.monotonic()
        self._epochs = {name: epoch for name, (epoch, _, _) in self._job.containers().items()}
        self._jvm.start_for(self._job.settings)
        self._job.restart(f"{names} saved")
        return False

    def _note_at_work(self, job: DevelopedJob) -> None:
        found = job.containers()
        if self._since_s is None or not found:
            return
        if all(at_work and epoch > self._epochs.get(name, 0) for name, (epoch, at_work, _) in found.items()):
            self._say(f"at work after {time.monotonic() - self._since_s:.1f} s{job.behind()}")
            self._since_s = None
            if not self._epochs:
                self._say(job.pages())

    def _show(self, job: DevelopedJob, outputs: Outputs, before: int) -> int:
        """Say what came in and went out since the last time; returns the records in all."""
        processed = sum(records for _, _, records in job.containers().values())
        came, lines = outputs.look()
        moved = [f"in {processed - before:,}"] if processed > before else []
        moved += [f"out {came:,}"] if came else []
        self._say(", ".join(moved))
        self._say("\n".join(lines))
        return processed

    def _end(self, why: str) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.stop(why)
