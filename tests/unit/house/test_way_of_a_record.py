"""The files that a record enters are those of docs/record.md."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import grete
from grete.api import IncomingMessageEnvelope, MessageCollector, StreamTask, TaskCoordinator
from grete.testing.job import JobUnderTest

PACKAGE = Path(grete.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "record.md"
MOST = 57
"""Files of the product; fewer is better."""

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}


class Counting(StreamTask):
    def init(self, context: Any) -> None:
        self._counts = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        count = (self._counts.get(envelope.key) or 0) + 1
        self._counts.put(envelope.key, count)
        collector.send("local.out", count, key=envelope.key)


def files_entered() -> set[str]:
    """While a share that is at work already processes and commits one record."""
    entered = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    with JobUnderTest(Counting, CONFIG, partitions={"local.in": 1, "local.out": 1}) as job:
        job.send("local.in", 1, key="a")
        job.run()
        job.send("local.in", 1, key="a")
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            job.run()
        finally:
            sys.setprofile(before)
        assert [one.message for one in job.outputs("local.out")] == [1, 2]
    ours = (Path(name).relative_to(PACKAGE) for name in entered if Path(name).is_relative_to(PACKAGE))
    names = {".".join(path.with_suffix("").parts) for path in ours if path.parts[0] != "testing"}
    return names - {"container.local_shares"}  # in Spark's place


def test_the_page_has_the_files_that_a_record_enters_and_no_others() -> None:
    [listed] = re.findall(r"\n\| \| files \|\n(.*?)\n\n", PAGE.read_text(), re.DOTALL)
    named = re.findall(r"`([\w.]+)`", listed)
    assert len(named) == len(set(named))
    assert set(named) == files_entered()
    assert len(named) <= MOST
