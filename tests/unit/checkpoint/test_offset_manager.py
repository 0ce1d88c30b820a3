"""Where tasks start to read: the cases of Samza's TestOffsetManager, and those that it got wrong (S2-85 to S2-95)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grete.checkpoint.offset_manager import Skipped, StartingOffsets, starting_offsets
from grete.config.settings import Settings
from grete.errors import ConfigError, OffsetOutOfRange, StreamError, StreamUnreachable
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.admin import OffsetAdmin, PartitionOffsets

IN, OTHER = SystemStreamPartition("s", "in", 0), SystemStreamPartition("s", "other", 0)
ONE, TWO = TaskName("one"), TaskName("two")
HELD = PartitionOffsets("10", "49", "50")
EMPTY = PartitionOffsets(None, None, "7")


class Admin(OffsetAdmin):
    """A system that holds what the test says."""

    def __init__(self, streams: Mapping[str, Mapping[int, PartitionOffsets | None]] | None = None) -> None:
        self._streams = streams or {"in": {0: HELD}, "other": {0: EMPTY}}

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        return {number: one for number, one in self._streams[stream].items() if one is not None}

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        return self._streams[stream]


def start(
    checkpoint: Mapping[SystemStreamPartition, str] | None = None,
    *,
    ssp: SystemStreamPartition = IN,
    **config: str,
) -> str:
    checkpoints = {} if checkpoint is None else {ONE: checkpoint}
    settings = {key.replace("__", "."): value for key, value in config.items()}
    found = starting_offsets({ONE: [ssp]}, checkpoints, Settings.of(settings), {"s": Admin()})
    return found.by_task[ONE][ssp]


def test_a_task_goes_on_after_its_checkpoint() -> None:
    assert start({IN: "45"}) == "46"


def test_a_task_that_has_processed_everything_waits_at_the_end() -> None:
    assert start({IN: "49"}) == "50"


@pytest.mark.parametrize(("default", "offset"), [("oldest", "10"), ("newest", "49"), ("upcoming", "50")])
def test_without_a_checkpoint_the_default_of_stream_or_system_counts(default: str, offset: str) -> None:
    assert start(streams__in__samza__offset__default=default) == offset
    assert start(systems__s__samza__offset__default=default) == offset
    assert start(systems__s__streams__in__samza__offset__default=default) == offset


def test_without_any_default_it_is_upcoming() -> None:
    assert start() == "50"


def test_the_streams_default_comes_before_its_systems() -> None:
    settings = {
        "systems__s__samza__offset__default": "oldest",
        "streams__in__samza__offset__default": "newest",
    }
    assert start(None, ssp=IN, **settings) == "49"


def test_an_empty_stream_has_no_oldest_offset_and_starts_at_upcoming() -> None:
    assert start(ssp=OTHER, systems__s__samza__offset__default="oldest") == "7"


def test_of_a_stream_with_many_empty_partitions_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    admins = {"s": Admin({"in": dict.fromkeys(range(1_000), EMPTY)})}
    tasks = {TaskName(f"Partition {n}"): [SystemStreamPartition("s", "in", n)] for n in range(1_000)}
    settings = Settings.of({"systems.s.samza.offset.default": "oldest"})
    starting_offsets(tasks, {}, settings, admins)
    [said] = caplog.messages
    assert said.startswith(
        "s.in.0 and 999 more partitions: no oldest offset, since nothing is there; starting at"
    )


def test_a_reset_stream_forgets_its_checkpoint_and_takes_the_default() -> None:
    reset = {"streams__in__samza__reset__offset": "true", "systems__s__samza__offset__default": "oldest"}
    assert start({IN: "45"}, ssp=IN, **reset) == "10"


def test_an_unreachable_partition_goes_on_after_its_checkpoint_and_waits_without_one() -> None:
    admins = {"s": Admin({"in": {0: None}})}
    found = starting_offsets({ONE: [IN]}, {ONE: {IN: "45"}}, Settings.of({}), admins)
    assert found.by_ssp == {IN: "46"}
    with pytest.raises(StreamUnreachable, match=r"no broker answers for s\.in\.0"):
        starting_offsets({ONE: [IN]}, {}, Settings.of({}), admins)


def test_a_default_that_is_none_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"streams\.in\.samza\.offset\.default='first'"):
        start(streams__in__samza__offset__default="first")


def test_a_stream_that_is_no_input_any_more_is_ignored() -> None:
    assert start({IN: "45", OTHER: "3"}) == "46"


@pytest.mark.parametrize(
    ("last", "missing"), [("5", "6 to before 10"), ("8", "9 to before 10"), ("60", "before 61")]
)
def test_a_checkpoint_outside_of_what_the_stream_holds_is_refused_with_the_range(
    last: str, missing: str
) -> None:
    with pytest.raises(OffsetOutOfRange, match=missing):
        start({IN: last})


def test_a_job_may_go_on_without_what_retention_has_removed_and_says_what_that_is() -> None:
    policy = {"task.lost-offsets.policy": "skip"}
    found = starting_offsets({ONE: [IN]}, {ONE: {IN: "5"}}, Settings.of(policy), {"s": Admin()})
    assert (found.by_ssp, found.skipped) == ({IN: "10"}, (Skipped(ONE, IN, "6", "10"),))
    assert starting_offsets({ONE: [IN]}, {ONE: {IN: "9"}}, Settings.of(policy), {"s": Admin()}).skipped == ()
    with pytest.raises(OffsetOutOfRange, match="before 61"):
        starting_offsets({ONE: [IN]}, {ONE: {IN: "60"}}, Settings.of(policy), {"s": Admin()})


def test_the_last_offset_that_was_removed_is_no_loss() -> None:
    assert start({IN: "9"}) == "10"


def test_a_partition_or_a_system_that_is_not_there_is_named() -> None:
    with pytest.raises(StreamError, match=r"s\.in has no partition 3"):
        start(ssp=SystemStreamPartition("s", "in", 3))
    with pytest.raises(ConfigError, match=r"systems\.t\.samza\.factory"):
        start(ssp=SystemStreamPartition("t", "in", 0))


def test_two_tasks_on_a_broadcast_partition_each_have_their_own_offset_and_reading_starts_at_the_smaller() -> (
    None
):
    checkpoints = {ONE: {IN: "20"}, TWO: {IN: "30"}}
    found: StartingOffsets = starting_offsets(
        {ONE: [IN], TWO: [IN]}, checkpoints, Settings.of({}), {"s": Admin()}
    )
    assert (found.by_task[ONE][IN], found.by_task[TWO][IN], found.by_ssp[IN]) == ("21", "31", "21")


def test_the_smaller_offset_is_the_systems_opinion_not_the_alphabets() -> None:
    wide = Admin({"in": {0: PartitionOffsets("0", "199", "200")}})
    checkpoints = {ONE: {IN: "8"}, TWO: {IN: "99"}}
    assert (
        starting_offsets({ONE: [IN], TWO: [IN]}, checkpoints, Settings.of({}), {"s": wide}).by_ssp[IN] == "9"
    )
