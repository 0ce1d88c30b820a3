"""pytest's hooks of a run: what runs beside what, limits, the report of a failure, what a test leaves.

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
from tests.harness import processes, servers
from xdist.scheduler import LoadScopeScheduling

from grete.testing.waiting import patient
from grete_workbench.kube_apiserver import program

REPORT = "GRETE_TEST_REPORT"
"""The folder in which the controller writes `failed.jsonl`, `durations.tsv` and `orphans.tsv`."""
LIMIT_S = 120.0
"""Of every test that does not say how much more it needs: `@pytest.mark.timeout(180)`."""
_STACKS = pytest.StashKey[str]()
_DURATIONS = Path(__file__).with_name("durations.tsv")
_GROUPS = "groups.json"
_UNKNOWN_S = 0.05
_PROCESSOR_S = "processor_s"
"""Of a report: seconds that this process and those it has waited for have computed since the report before."""
_COMPUTED_S = pytest.StashKey[float]()
_ALONE_WITH = {
    "harmed_broker": "one broker that is harmed",
    "harmed_nodes": "three nodes that are harmed",
    "kubernetes": "one API server",
    "yarn": "one YARN",
    "harmed_zookeepers": "three ZooKeeper servers that are harmed",
    "secure_kafka": "one broker that asks who comes",
    "proxy": "one way to a broker that is cut",
    "azurite": "one account of Azure Storage whose clock is moved",
    "spark": "one Spark session",
    "isolated_cluster": "one cluster of Spark whose workers are lost",
}
"""Tests with these fixtures come one after the other, in one worker: they harm what they use, or are the only
ones that use it, so that it ends with the last of them."""
_LONG = {"conformance", "e2e", "fault", "interop", "kafka", "simulation"}
"""Folders whose tests are worth being handed out one by one."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give each test its limit. Those on an API server of Kubernetes are nightly ones, save those of `every_run`, and
    so are the cases of a campaign that `one_in` leaves out.
    """
    if not _is_of_every_run(item):
        item.add_marker(pytest.mark.nightly)
    if _needs(item, "kubernetes") and not (item.get_closest_marker("every_run") and program().exists()):
        item.add_marker(pytest.mark.nightly)
    own = item.get_closest_marker("timeout")
    limit_s = float(own.args[0]) if own is not None else LIMIT_S
    item.add_marker(pytest.mark.timeout(patient(limit_s)), append=False)


def _is_of_every_run(item: pytest.Item) -> bool:
    """Of a test with `one_in(n)` the first case and each n-th after it; of any other all cases."""
    marker, case = item.get_closest_marker("one_in"), getattr(item, "callspec", None)
    return marker is None or case is None or sum(case.indices.values()) % marker.args[0] == 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test that needs the servers of two groups. One such ended a server under 77 others."""
    alone = [fixture for fixture in _ALONE_WITH if fixture != "proxy" and _needs(item, fixture)]
    if len(alone) > 1:
        pytest.fail(
            f"{item.nodeid} needs {' and '.join(alone)}: it runs in the worker of one of them, and would use the "
            "other beside its tests and end it under them; give the test a server of its own"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: begin with the groups that take longest, and report them to the controller."""
    folder = os.environ.get(REPORT)
    if folder is None or not hasattr(config, "workerinput"):
        return
    took = expected_durations()
    total: dict[str, float] = {}
    groups = {item.nodeid: _group(item) for item in items}
    for test, group in groups.items():
        total[group] = total.get(group, 0) + took.get(test, _UNKNOWN_S)
    items.sort(key=lambda item: (-total[groups[item.nodeid]], groups[item.nodeid]))
    reported = Path(folder) / f"{config.workerinput['workerid']}.new"
    reported.write_text(json.dumps(groups))
    reported.rename(Path(folder) / _GROUPS)


class GroupScheduling(LoadScopeScheduling):
    """Hands a whole group to one worker; the groups are those that the workers have reported.

    xdist's own `loadgroup` writes a group into a test's id, which pytest 9.2 does not let it do any more: without
    any error each test is a group of its own then.
    """

    def _split_scope(self, nodeid: str) -> str:
        if not hasattr(self, "_groups"):
            self._groups: dict[str, str] = json.loads((Path(os.environ[REPORT]) / _GROUPS).read_text())
        return self._groups[nodeid]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    """Ours in a run, and xdist's where pytest is called by itself."""
    return GroupScheduling(config, log) if REPORT in os.environ else None


def _group(item: pytest.Item) -> str:
    for fixture, group in _ALONE_WITH.items():
        if _needs(item, fixture):
            return group
    module, _, _ = item.nodeid.partition("::")
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
    """State of the processes that this test has started; unknown outside of a run."""
    run = os.environ.get(processes.RUN)
    return processes.stacks([each for each in processes.of_run(run) if each.test == test]) if run else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With each phase comes what it cost; with a test that ran into its limit what its processes were doing."""
    report = yield
    report.user_properties.append((_PROCESSOR_S, _since_last_report(item.config)))
    stacks = item.stash.get(_STACKS, "")
    if report.failed and stacks:
        report.sections.append(("stacks of the test's processes", stacks))
        del item.stash[_STACKS]
    return report


def _since_last_report(config: pytest.Config) -> float:
    now = sum(os.times()[:4])
    before = config.stash.get(_COMPUTED_S, now)
    config.stash[_COMPUTED_S] = now
    return now - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """End what the test has left: processes whose parents are gone, and servers that no later test needs."""
    try:
        yield
    finally:
        run = os.environ.get(processes.RUN)
        if run:
            end_orphans(item.nodeid, run)
            if hasattr(item.config, "workerinput"):  # elsewhere the tests of a group are not in order
                end_servers(item, nextitem)


def end_servers(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End those of the group whose last test this was."""
    for fixture in _ALONE_WITH:
        if _needs(item, fixture) and not (nextitem and _needs(nextitem, fixture)):
            servers.end(fixture)


def _needs(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


def end_orphans(test: str, run: str) -> None:
    """SIGKILL to them, and a line in the report for each."""
    left = [each for each in processes.of_run(run) if each.is_orphan and each.test == test]
    processes.end(left)
    _note("orphans.tsv", (f"{test}\t{each.pid}\t{each.command[:200]}\n" for each in left))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the controller: keep what failed, and how long everything took."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    name = report.nodeid
    if report.failed:
        failure = {"test": name, "when": report.when, "text": report.longreprtext, "output": report.capstderr}
        _note("failed.jsonl", [json.dumps(failure) + "\n"])
    cost_s = dict(report.user_properties).get(_PROCESSOR_S, 0.0)
    worker = getattr(report, "worker_id", "")
    _note("durations.tsv", [f"{report.duration:.3f}\t{report.when}\t{name}\t{cost_s:.2f}\t{worker}\n"])


def _note(name: str, lines: Iterable[str]) -> None:
    folder = os.environ.get(REPORT)
    if folder:
        with (Path(folder) / name).open("a") as file:
            file.writelines(lines)
