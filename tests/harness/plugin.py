"""pytest's hooks of a run: what runs beside what, limits, what a failure tells, what a test leaves.

`tests/conftest.py` takes them in. They do their part in the controller and in xdist's workers alike; without a run
(`python -m pytest FILE`) what remains are the limits and the stacks.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.harness import processes

REPORT = "GRETE_TEST_REPORT"
"""The folder in which the controller writes `failed.jsonl`, `durations.tsv` and `orphans.tsv`."""
PATIENCE = "GRETE_TEST_PATIENCE"
"""By how much every limit is longer: for a machine that is kept busy."""
LIMIT_S = 60.0
"""Of every test that does not say how much more it needs: `@pytest.mark.timeout(180)`."""
_STACKS = pytest.StashKey[str]()
_DURATIONS = Path(__file__).with_name("durations.tsv")
_UNKNOWN_S = 0.05
_ALONE_WITH = {"harmed_broker": "one broker that is harmed", "harmed_nodes": "three nodes that are harmed"}
"""Tests that harm the brokers of these fixtures come one after the other, in one worker."""
_LONG = {"conformance", "e2e", "fault", "interop", "kafka", "simulation"}
"""Folders whose tests are worth being handed out one by one."""


@pytest.hookimpl(tryfirst=True)  # xdist takes the groups in afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group what cannot run beside each other, begin with what takes longest, and give each test its limit."""
    patience = float(os.environ.get(PATIENCE, "1"))
    took = expected_durations()
    total: dict[str, float] = {}
    group_of: dict[str, str] = {}
    for item in items:
        group = group_of[item.nodeid] = _group(item)
        if group != item.nodeid:
            item.add_marker(pytest.mark.xdist_group(group))
        total[group] = total.get(group, 0) + took.get(item.nodeid, _UNKNOWN_S)
        own = item.get_closest_marker("timeout")
        limit_s = float(own.args[0]) if own is not None else LIMIT_S
        item.add_marker(pytest.mark.timeout(limit_s * patience), append=False)
    if _is_spread(config):
        items.sort(key=lambda item: (-total[group_of[item.nodeid]], group_of[item.nodeid]))


def _is_spread(config: pytest.Config) -> bool:
    """Whether workers share the tests; in a worker xdist says so by another name than in the controller."""
    return hasattr(config, "workerinput") or config.getoption("dist", "no") != "no"


def _group(item: pytest.Item) -> str:
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    for name, group in _ALONE_WITH.items():
        if name in fixtures:
            return group
    module, _, _ = item.nodeid.partition("::")
    own = item.get_closest_marker("xdist_group")
    if own is not None:
        return str(own.args[0])
    return module if _has_module_fixture(item) or not _is_long(module) else item.nodeid


def _is_long(module: str) -> bool:
    return bool(_LONG & set(Path(module).parts))


def _has_module_fixture(item: pytest.Item) -> bool:
    definitions = getattr(item, "_fixtureinfo", None)
    named: dict[str, Sequence[Any]] = getattr(definitions, "name2fixturedefs", {})
    return any(made[-1].scope == "module" for made in named.values() if made)


def expected_durations() -> dict[str, float]:
    """Seconds each test took when this was last written down (`make durations`); only those of a second and more."""
    if not _DURATIONS.exists():
        return {}
    lines = (line.split("\t", 1) for line in _DURATIONS.read_text().splitlines())
    return {nodeid: float(seconds) for seconds, nodeid in lines}


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, Any, Any]:
    """At its limit look what each process of the test does, before the failure unwinds and ends them."""
    done = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):

        def look_and_fail(number: int, frame: FrameType | None) -> None:
            item.stash[_STACKS] = stacks_of(item.nodeid)
            fail(number, frame)

        signal.signal(signal.SIGALRM, look_and_fail)
    return done


def stacks_of(test: str) -> str:
    """What the processes do that this test has started; nothing is known of them outside of a run."""
    run = os.environ.get(processes.RUN)
    return processes.stacks([each for each in processes.of_run(run) if each.test == test]) if run else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a test that ran into its limit comes what its processes were doing."""
    report = yield
    stacks = item.stash.get(_STACKS, "")
    if report.failed and stacks:
        report.sections.append(("stacks of the test's processes", stacks))
        del item.stash[_STACKS]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """End what the test has left: processes whose parents are gone, which nobody else will end."""
    try:
        yield
    finally:
        run = os.environ.get(processes.RUN)
        if run:
            end_orphans(item.nodeid, run)


def end_orphans(test: str, run: str) -> None:
    """SIGKILL to them, and a line in the report for each."""
    left = [each for each in processes.of_run(run) if each.is_orphan and each.test == test]
    processes.end(left)
    _note("orphans.tsv", (f"{test}\t{each.pid}\t{each.command[:200]}\n" for each in left))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the controller: keep what failed, and how long everything took."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    name = without_group(report.nodeid)
    if report.failed:
        told = {"test": name, "when": report.when, "text": report.longreprtext, "output": report.capstderr}
        _note("failed.jsonl", [json.dumps(told) + "\n"])
    _note("durations.tsv", [f"{report.duration:.3f}\t{report.when}\t{name}\n"])


def without_group(nodeid: str) -> str:
    """A test's id without the group that xdist has written behind it."""
    name, _, group = nodeid.rpartition("@")
    return name if group.endswith(".py") or group in _ALONE_WITH.values() else nodeid


def _note(name: str, lines: Iterable[str]) -> None:
    folder = os.environ.get(REPORT)
    if folder:
        with (Path(folder) / name).open("a") as file:
            file.writelines(lines)
