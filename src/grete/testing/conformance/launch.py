"""Promises of every launcher (`grete.launch.base`).

Subclass with a fixture `launcher`: one whose containers behave as `behave` says, which reads its orders from the
environment that the launcher was given. Where containers are programs, this module is one:
`python -m grete.testing.conformance.launch`. Where a container that does not listen can be ended from outside, as it
should be wherever it can, subclass `KillingLauncherConformance`. `CAN_ADOPT` is False where a container ends with its
launcher's process; where it is True there is a fixture `another` as well, the launcher of the coordinator that comes
next. `STOPS_BY_DIRECTIVE` is True where nothing but the coordinator's answer to a heartbeat asks for an end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from grete.environment import CONTAINER_EPOCH, CONTAINER_ID
from grete.exit_report import write_report
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.model.ending import ContainerEnd, ExitCode, Failure, failure_of
from grete.model.ids import ContainerId
from grete.testing.waiting import eventually

ZERO, ONE = ContainerId("0"), ContainerId("1")
FAILURE = Failure("KeyError", "'page'", "Partition 0", "local.views.0", "4")
_PATIENCE_S = 30.0


def behave(environment: Mapping[str, str], stop: threading.Event) -> int:
    """A container: writes `GRETE_SUITE_WORD` as a line to the file `GRETE_SUITE_FILE`, then does what
    `GRETE_SUITE_ORDER` says: exit with a code, crash, end with a failure that it reports, run until it is stopped,
    or run and not listen.
    """
    with Path(environment["GRETE_SUITE_FILE"]).open("a", encoding="utf-8") as file:
        file.write(environment.get("GRETE_SUITE_WORD", "") + "\n")
    order = environment["GRETE_SUITE_ORDER"]
    if order == "crash":
        raise RuntimeError("out of luck")
    if order == "fail":
        return ContainerEnd(ExitCode.POISON, FAILURE)
    if order == "run":
        directive = _directive(Path(environment["GRETE_SUITE_FILE"]), environment[CONTAINER_ID])
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until_s:
            if stop.wait(0.05) or directive.exists():
                return 0
        return 99
    if order == "run deaf":
        threading.Event().wait(_PATIENCE_S)
        return 99
    return int(order)


def _directive(file: Path, id_: str) -> Path:
    """It is there when the container is directed to stop, as its coordinator would answer."""
    return file.with_name(f"{file.name}-stop-{id_}")


class LauncherConformance:
    """The suite."""

    CAN_ADOPT = True
    STOPS_BY_DIRECTIVE = False

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """Where containers write their word."""
        return tmp_path / "words"

    def _start(
        self, file: Path, order: str, *, id_: ContainerId = ZERO, epoch: int = 1, word: str = ""
    ) -> ContainerStart:
        orders = {"GRETE_SUITE_ORDER": order, "GRETE_SUITE_WORD": word, "GRETE_SUITE_FILE": str(file)}
        orders |= {CONTAINER_ID: id_, CONTAINER_EPOCH: str(epoch)}
        return ContainerStart(id_, epoch, orders)

    def _running(self, launcher: Launcher, file: Path, start: ContainerStart) -> None:
        """Start it and wait until it has written its word."""
        words = self._words(file)
        launcher.start(start)
        eventually(lambda: len(self._words(file)) > len(words), "its word", within_s=_PATIENCE_S)

    def _ask_to_stop(self, launcher: Launcher, file: Path, id_: ContainerId = ZERO) -> None:
        launcher.request_stop(id_)
        if self.STOPS_BY_DIRECTIVE:
            _directive(file, id_).touch()

    def _words(self, file: Path) -> list[str]:
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def _exits(self, launcher: Launcher, count: int = 1) -> list[ContainerExit]:
        """The next `count` exits, however long they take."""
        found: list[ContainerExit] = []

        def collected() -> bool:
            found.extend(launcher.exits())
            return len(found) >= count

        eventually(collected, f"the end of {count}", within_s=_PATIENCE_S)
        assert len(found) == count
        return found

    def test_a_container_gets_its_environment(self, launcher: Launcher, file: Path) -> None:
        """Whatever the values hold."""
        launcher.start(self._start(file, "0", word="a=b 'c' \"d\" $e é"))
        self._exits(launcher)
        assert self._words(file) == ["a=b 'c' \"d\" $e é"]

    @pytest.mark.parametrize("code", [0, 1, 3, 5])
    def test_an_exit_is_reported_once_with_its_code(self, launcher: Launcher, file: Path, code: int) -> None:
        """Under the id and epoch it was started with. A good end needs no reason."""
        launcher.start(self._start(file, str(code), epoch=7))
        (ended,) = self._exits(launcher)
        assert (ended.container_id, ended.epoch, ended.exit_code) == (ZERO, 7, code)
        assert code or ended.reason == ""
        assert launcher.exits() == []

    def test_a_crash_is_an_exit_with_a_reason(self, launcher: Launcher, file: Path) -> None:
        """The reason is what the container says of its end, for people."""
        launcher.start(self._start(file, "crash"))
        (ended,) = self._exits(launcher)
        assert ended.exit_code != 0
        assert "out of luck" in ended.reason

    def test_a_container_reports_the_failure_that_ended_it(self, launcher: Launcher, file: Path) -> None:
        """As a value: type, message, task, and the message that could not be processed."""
        launcher.start(self._start(file, "fail"))
        (ended,) = self._exits(launcher)
        assert (ended.exit_code, ended.place) == (ExitCode.POISON, "local.views.0 offset 4")
        assert ended.reason == "KeyError 'page' at local.views.0 offset 4, task 'Partition 0'"

    def test_what_an_earlier_incarnation_said_is_not_said_of_a_later_one(
        self, launcher: Launcher, file: Path
    ) -> None:
        """One that ended in order needs no reason."""
        launcher.start(self._start(file, "fail", epoch=1))
        self._exits(launcher)
        launcher.start(self._start(file, str(int(ExitCode.STOPPED)), epoch=2))
        (ended,) = self._exits(launcher)
        assert (ended.exit_code, ended.reason, ended.place) == (ExitCode.STOPPED, "", "")

    def test_starting_the_same_epoch_again_does_nothing(self, launcher: Launcher, file: Path) -> None:
        """As a coordinator does that is not sure."""
        start = self._start(file, "run", word="once")
        self._running(launcher, file, start)
        launcher.start(start)
        self._ask_to_stop(launcher, file)
        self._exits(launcher)
        assert self._words(file) == ["once"]
        assert launcher.exits() == []

    def test_containers_are_on_their_own(self, launcher: Launcher, file: Path) -> None:
        """One ends, the other runs on."""
        self._running(launcher, file, self._start(file, "run"))
        launcher.start(self._start(file, "1", id_=ONE))
        assert [ended.container_id for ended in self._exits(launcher)] == [ONE]
        self._ask_to_stop(launcher, file)
        assert [(ended.container_id, ended.exit_code) for ended in self._exits(launcher)] == [(ZERO, 0)]

    def test_a_container_that_is_asked_to_stop_ends_well(self, launcher: Launcher, file: Path) -> None:
        """With code 0. A request for one that was not started is fine."""
        self._running(launcher, file, self._start(file, "run"))
        assert launcher.exits() == []
        launcher.request_stop(ContainerId("unknown"))
        self._ask_to_stop(launcher, file)
        assert [ended.exit_code for ended in self._exits(launcher)] == [0]
        launcher.request_stop(ZERO)

    def test_a_container_that_is_killed_is_reported_like_any_other(
        self, launcher: Launcher, file: Path
    ) -> None:
        """And killing what is not there is fine."""
        launcher.kill(ContainerId("unknown"))
        self._running(launcher, file, self._start(file, "run"))
        launcher.kill(ZERO)
        assert [ended.container_id for ended in self._exits(launcher)] == [ZERO]
        launcher.kill(ZERO)

    def test_a_container_can_be_started_again_after_its_end(self, launcher: Launcher, file: Path) -> None:
        """Under a higher epoch, as a restart is."""
        for epoch in (1, 2):
            launcher.start(self._start(file, "1", epoch=epoch, word=str(epoch)))
            assert [ended.epoch for ended in self._exits(launcher)] == [epoch]
        assert self._words(file) == ["1", "2"]

    def test_a_higher_epoch_takes_the_place_of_a_lower_one(self, launcher: Launcher, file: Path) -> None:
        """Both ends are reported; a lower one that comes late does nothing."""
        self._running(launcher, file, self._start(file, "run", epoch=1))
        self._running(launcher, file, self._start(file, "run", epoch=2))
        assert [ended.epoch for ended in self._exits(launcher)] == [1]
        launcher.start(self._start(file, "run", epoch=1))
        self._ask_to_stop(launcher, file)
        assert [(ended.epoch, ended.exit_code) for ended in self._exits(launcher)] == [(2, 0)]

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_a_container_is_adopted_by_the_next_launcher(
        self, launcher: Launcher, file: Path, how: str, request: pytest.FixtureRequest
    ) -> None:
        """From then on it is stopped, killed and reported as one of its own."""
        start = self._start(file, "run", epoch=4)
        self._running(launcher, file, start)
        handle = launcher.handle(ZERO)
        if not self.CAN_ADOPT:
            assert handle == ""
            assert not launcher.adopt(start, handle)
            return
        another: Launcher = request.getfixturevalue("another")
        launcher.abandon()
        assert launcher.exits() == []
        assert another.adopt(start, handle)
        assert another.handle(ZERO) == handle
        another.start(start)
        assert another.exits() == []
        if how == "stop":
            self._ask_to_stop(another, file)
        else:
            another.kill(ZERO)
        (ended,) = self._exits(another)
        assert (ended.container_id, ended.epoch) == (ZERO, 4)
        if how == "stop":
            assert ended.exit_code == 0
        elif not self.STOPS_BY_DIRECTIVE:  # there a kill asks by SIGTERM first
            assert ended.exit_code != 0
        assert len(self._words(file)) == 1

    @pytest.mark.parametrize("handle", ["", "what is this?", "a/b/c", "boot/1/0", "boot/999999999/0"])
    def test_what_does_not_run_is_not_adopted(self, launcher: Launcher, file: Path, handle: str) -> None:
        """A handle of another boot, of another process under its number, or of nothing."""
        assert not launcher.adopt(self._start(file, "run"), handle)
        assert launcher.exits() == []
        assert launcher.handle(ZERO) == ""

    def test_nothing_runs_after_close(self, launcher: Launcher, file: Path) -> None:
        """Closing waits for the end of all, and closing twice is fine."""
        self._running(launcher, file, self._start(file, "run"))
        self._running(launcher, file, self._start(file, "run", id_=ONE))
        started = time.monotonic()
        launcher.close()
        launcher.close()
        assert time.monotonic() - started < _PATIENCE_S
        assert launcher.exits() == []


class KillingLauncherConformance(LauncherConformance):
    """The suite for launchers whose containers are no part of the launcher's own process."""

    def test_a_container_that_does_not_listen_can_be_killed(self, launcher: Launcher, file: Path) -> None:
        """After it was asked to stop and did not."""
        self._running(launcher, file, self._start(file, "run deaf"))
        launcher.request_stop(ZERO)
        launcher.kill(ZERO)
        (ended,) = self._exits(launcher)
        assert ended.exit_code != 0
        assert ended.reason == f"killed by signal {-ended.exit_code} (SIGKILL)"


def main() -> int:
    """A container that is a program."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        end = behave(os.environ, stop)
    except RuntimeError as error:
        end = ContainerEnd(ExitCode.FAILED, failure_of(error))
    write_report(end)
    return end


if __name__ == "__main__":
    sys.exit(main())
