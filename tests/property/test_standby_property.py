"""Whatever happens to a job, its stores and its copies, in whatever order: its state is what it processed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import grete
from grete.testing.job import JobUnderTest

CONFIG = {
    "job.name": "job",
    "task.inputs": "local.in",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "job.standbytasks.replication.factor": "3",
}
KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("process"), KEYS),
        st.tuples(st.just("die before the commit"), KEYS),
        st.tuples(st.just("follow"), st.just("")),
        st.tuples(st.just("lose stores"), st.just("")),
        st.tuples(st.just("lose a copy"), st.sampled_from(["0", "1"])),
        st.tuples(st.just("cut a copy"), st.sampled_from(["0", "1"])),
        st.tuples(st.just("replay"), st.just("")),
    ),
    max_size=12,
)


class Count(grete.StreamTask):
    def init(self, context: grete.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(self, envelope: grete.IncomingMessageEnvelope, collector: Any, coordinator: Any) -> None:
        if envelope.message == "forget":
            self.counts.delete(envelope.key)
        else:
            self.counts.put(envelope.key, (self.counts.get(envelope.key) or 0) + 1)


def copies(directory: Path, replica: str) -> Iterator[Path]:
    return (directory / "jobs" / "job-1" / f"standby-{replica}").rglob("*.db")


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_state_is_what_was_processed_whatever_was_lost(steps: list[tuple[str, str]]) -> None:
    sent: list[str] = []
    expected: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, JobUnderTest(Count, CONFIG, directory=Path(name)) as job:
        for step, detail in steps:
            match step:
                case "process" | "die before the commit":
                    job.send("local.in", 1, key=detail)
                    sent.append(detail)
                    expected[detail] += 1
                    if step != "process":
                        job.run_batch(commit=False)
                        job.restart()
                    job.run()
                case "follow":
                    job.follow()
                case "lose stores":
                    job.restart(lose_stores=True)
                case "replay":
                    job.replay("local.in")
                    job.run()
                    expected.update(sent)
                case _:
                    for copy in list(copies(Path(name), detail)):
                        copy.unlink() if step == "lose a copy" else copy.write_bytes(copy.read_bytes()[:4500])
        job.send("local.in", "forget", key="a")
        job.run()
        expected.pop("a", None)
        job.restart(lose_stores=True)
        job.send("local.in", 1, key="b")
        job.run()
        expected["b"] += 1
        assert job.store("counts", "Partition 0") == dict(expected)
