"""Samza's keys for ignoring errors: the message is set aside, and everything else still fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from grete import AsyncStreamTask, StreamTask
from grete.application.poison import PoisonPolicy
from grete.config.derived import canonical_keys
from grete.config.settings import Settings
from grete.errors import ConfigError, ProcessingError
from grete.model.ids import SystemStream
from grete.testing.job import JobUnderTest


class Odd(ValueError):
    """A kind of failure that the application knows."""


class Divider(StreamTask):
    """Divides by each message, and sends what no serde writes for a 7."""

    def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        collector.send("local.out", 84 // envelope.message)
        if envelope.message == 7:
            collector.send("local.out", object())
        if envelope.message == 13:
            raise Odd("unlucky")


BASE = {
    "job.name": "shares",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.msg.serde": "json",
}
UNREADABLE, ZERO, NO_JSON, ODD = b"not json", b"0", b"7", b"13"
BAD = (UNREADABLE, ZERO, NO_JSON, ODD)


def run(keys: Mapping[str, str], bad: bytes) -> tuple[int, list[int]]:
    """(dead letters, outputs) of a job that gets one bad message between two good ones."""
    with JobUnderTest(Divider, {**BASE, **keys}) as job:
        for value in (b"42", bad, b"21"):
            job.send_bytes("local.in", value)
        ran = job.run()
        return ran.dead_letters, job.messages("local.out")


@pytest.mark.parametrize(
    ("keys", "aside"),
    [
        ({}, ()),
        ({"task.drop.deserialization.errors": "TRUE"}, (UNREADABLE,)),
        ({"task.drop.serialization.errors": "true"}, (NO_JSON,)),
        ({"task.ignored.exceptions": "ZeroDivisionError"}, (ZERO,)),
        ({"task.ignored.exceptions": f"{Odd.__module__}.Odd,OSError"}, (ODD,)),
        ({"task.ignored.exceptions": "ValueError"}, ()),  # as in Samza, not those derived from it
        ({"task.ignored.exceptions": "*"}, (ZERO, NO_JSON, ODD)),
        ({"task.ignored.exceptions": "*", "task.drop.deserialization.errors": "true"}, BAD),
        ({"task.ignored.exceptions": "*", "task.poison.policy": "fail"}, ()),
    ],
)
def test_a_message_is_set_aside_for_what_its_key_names_and_for_nothing_else(
    keys: Mapping[str, str], aside: tuple[bytes, ...]
) -> None:
    for bad in BAD:
        if bad in aside:
            assert run(keys, bad) == (1, [2, 4]), bad
        else:
            with pytest.raises(ProcessingError):
                run(keys, bad)


def test_dead_letters_have_a_stream_of_the_jobs_own_unless_one_is_named() -> None:
    keys = {**BASE, "task.drop.deserialization.errors": "true"}
    assert Settings.of(keys).task.dead_letters == SystemStream("local", "shares-1-dead-letters")
    assert canonical_keys(keys)["task.poison.dead-letter.stream"] == "local.shares-1-dead-letters"
    named = {**keys, "task.poison.dead-letter.stream": "local.dead"}
    assert Settings.of(named).task.dead_letters == SystemStream("local", "dead")
    assert Settings.of(BASE).task.dead_letters is None
    assert "task.poison.dead-letter.stream" not in canonical_keys(BASE)


def test_a_value_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.drop\.deserialization\.errors='yes'"):
        _ = Settings.of({"task.drop.deserialization.errors": "yes"}).task.poison
    assert Settings.of({"task.poison.policy": "Dead-Letter"}).task.poison == PoisonPolicy(everything=True)


class Leaver(StreamTask):
    """Takes a message for a reason to leave."""

    def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        if envelope.message == 13:
            sys.exit(0)
        collector.send("local.out", envelope.message)


class AsyncLeaver(AsyncStreamTask):
    """The same, later."""

    async def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0)
        if envelope.message == 13:
            sys.exit(0)
        collector.send("local.out", envelope.message)


@pytest.mark.parametrize("application", [Leaver, AsyncLeaver])
def test_an_exit_that_the_application_calls_is_a_failure_of_its_message(application: type) -> None:
    """It ended the process with code 0 before, which was taken for the end of all input."""
    with JobUnderTest(application, BASE) as job:
        job.send("local.in", 13)
        with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 0: SystemExit\(0\)"):
            job.run()
    keys = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    with JobUnderTest(application, {**BASE, **keys}) as job:
        for message in (1, 13, 2):
            job.send("local.in", message)
        assert job.run().dead_letters == 1
        assert job.messages("local.out") == [1, 2]


def test_an_exit_in_init_is_named() -> None:
    class AtOnce(Divider):
        def init(self, context):  # type: ignore[no-untyped-def]
            sys.exit("no licence")

    with JobUnderTest(AtOnce, BASE) as job:
        job.send("local.in", 1)
        with pytest.raises(RuntimeError, match=r"init\(\) of task 'Partition 0' .*sys\.exit\('no licence'\)"):
            job.run()


@pytest.mark.parametrize("time_ms", [1_795_589_366_320.225, "yesterday", 2**70])
def test_a_time_that_is_none_is_a_failure_of_its_message(time_ms: object) -> None:
    """`time.time() * 1000` is a common slip; it ended the job without a place, past the dead letters."""

    def late(envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        at = time_ms if envelope.message == 13 else np.int64(7)
        collector.send("local.out", envelope.message, timestamp_ms=at)

    with JobUnderTest(late, BASE) as job:
        job.send("local.in", 13)
        with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 0: .*timestamp_ms"):
            job.run()
    with JobUnderTest(late, {**BASE, "task.ignored.exceptions": "TypeError,ValueError"}) as job:
        for message in (1, 13, 2):
            job.send("local.in", message)
        assert job.run().dead_letters == 1
        assert job.messages("local.out") == [1, 2]
