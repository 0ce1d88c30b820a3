from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from grete.checkpoint.task_commit import TaskCommit
from grete.errors import JobError, StateDoesNotFit
from grete.model.ending import ExitCode, exit_code
from grete.model.ids import SystemStreamPartition
from grete.spark.lineage.decision import (
    Checkpointed,
    Continue,
    LineageDecision,
    LineageInfo,
    StartNew,
    decide_lineage,
    refuse_to_lose_state,
    with_query,
)
from grete.spark.lineage.files import LineageDirectory
from grete.spark.lineage.offset_log import SourceOffsets, SparkProgress, read_progress
from grete.spark.lineage.parted_sources import Parts, with_more
from grete.spark.lineage.source_log import SparkLogUnreadable, read_planned

LINEAGE = LineageInfo("l1", {"local.in.0": 0}, "plan, tasks")


def progress(committed: int | None, planned: int | None) -> SparkProgress:
    def end(offset: int | None) -> SourceOffsets | None:
        return None if offset is None else SourceOffsets({"local.in.0": offset})

    return SparkProgress(1, 0, end(planned), end(committed))


@pytest.mark.parametrize(
    ("committed", "planned", "checkpoint"),
    [
        (None, None, 0),  # nothing has run yet
        (None, 10, 0),  # planned, our commit did not happen
        (None, 10, 10),  # our commit happened, Spark's did not: the batch is repeated and skipped
        (10, 20, 10),
        (10, 20, 20),
        (20, 20, 20),
    ],
)
def test_the_lineage_goes_on_while_spark_and_checkpoint_agree(
    committed: int | None, planned: int | None, checkpoint: int
) -> None:
    decision = decide_lineage(
        LINEAGE, progress(committed, planned), {"local.in.0": checkpoint}, "plan, tasks"
    )
    assert decision == Continue(LINEAGE)


@pytest.mark.parametrize(
    ("committed", "planned", "wanted"),
    [
        (20, 20, {"local.in.0": 10}),  # rewound
        (10, 20, {"local.in.0": 30}),  # moved ahead of everything Spark planned
        (10, 20, {"local.in.1": 10}),
    ],
)
def test_anything_else_starts_a_new_lineage_with_a_reason(
    committed: int, planned: int, wanted: Mapping[str, int]
) -> None:
    decision = decide_lineage(LINEAGE, progress(committed, planned), wanted, "plan, tasks")
    assert isinstance(decision, StartNew)
    assert decision.reason


def test_a_changed_plan_or_damaged_logs_start_a_new_lineage() -> None:
    wanted = {"local.in.0": 10}
    assert "plan" in str(decide_lineage(LINEAGE, progress(10, 10), wanted, "other, tasks"))
    assert "empty file" in str(decide_lineage(LINEAGE, "empty file", wanted, "plan, tasks"))


def test_a_checkpoint_that_an_operator_moved_ends_the_lineage_once_a_batch_is_planned() -> None:
    wanted = {"local.in.0": 15}
    assert isinstance(decide_lineage(LINEAGE, progress(10, 20), wanted, "plan, tasks"), Continue)
    assert isinstance(decide_lineage(LINEAGE, progress(10, 20), wanted, "plan, tasks", moved=True), StartNew)
    started = LineageInfo("l2", wanted, "plan, tasks")
    nothing_planned = SparkProgress(-1, -1, None, None)
    assert isinstance(decide_lineage(started, nothing_planned, wanted, "plan, tasks", moved=True), Continue)


def test_sources_that_are_not_gretes_have_the_numbers_that_spark_gives_them() -> None:
    assert LineageInfo("id", {}, "plan", ("kafka.in", "", "kafka.other", "")).foreign_sources == ("1", "3")
    assert not LineageInfo("id", {}, "plan", ("kafka.in",)).foreign_sources


def test_a_stateful_pipeline_never_loses_its_state_silently() -> None:
    lost = StartNew("rewound", LINEAGE)
    with pytest.raises(StateDoesNotFit, match=r"job\.lineage\.state=discard") as refused:
        refuse_to_lose_state(lost, had_checkpoint=True, discard=False, kept="Aggregate")
    assert exit_code(refused.value) == ExitCode.UNUSABLE, "no start would find another state"
    refuse_to_lose_state(lost, had_checkpoint=True, discard=True, kept="Aggregate")
    refuse_to_lose_state(lost, had_checkpoint=False, discard=False, kept="Aggregate")


def test_a_checkpoint_location_that_is_gone_may_be_back_at_the_next_start() -> None:
    with pytest.raises(JobError, match="its Spark checkpoint location is gone") as refused:
        refuse_to_lose_state(StartNew("", LINEAGE), had_checkpoint=True, discard=False, kept="Aggregate")
    assert exit_code(refused.value) == ExitCode.FAILED


def test_a_lineage_follows_inputs_that_have_grown_from_the_beginning_of_their_new_partitions() -> None:
    wanted = {"local.in.0": 10, "local.in.1": 0}
    for progress_now in (progress(10, 10), progress(10, 20)):
        decision = decide_lineage(LINEAGE, progress_now, wanted, "plan, more tasks")
        assert decision == Continue(LineageInfo("l1", {"local.in.0": 0, "local.in.1": 0}, "plan, more tasks"))
    rewound = decide_lineage(LINEAGE, progress(20, 20), wanted, "plan, more tasks")
    assert isinstance(rewound, StartNew)


def test_a_pipeline_that_keeps_nothing_in_spark_goes_on_unless_a_batch_of_it_may_be_in_outputs() -> None:
    other = {"local.other.0": 3}
    for spark, refused in (
        (progress(20, 20), False),
        (SparkProgress(2, 1, None, None), True),
        ("damaged", True),
    ):
        settled = SparkProgress(1, 1, *(spark.planned_end, spark.committed_end)) if not refused else spark  # type: ignore[union-attr]
        decision = decide_lineage(LINEAGE, settled, other, "plan, tasks")
        assert isinstance(decision, StartNew)
        assert decision.unfinished is refused
        if refused:
            with pytest.raises(JobError, match=r"rows of it may be in lake already.*discard"):
                refuse_to_lose_state(
                    decision, had_checkpoint=True, discard=False, kept=None, outside=["lake"]
                )
            refuse_to_lose_state(decision, had_checkpoint=True, discard=False, kept=None)
        else:
            refuse_to_lose_state(decision, had_checkpoint=True, discard=False, kept=None, outside=["lake"])


def write_log(directory: Path, name: str, number: int, offset: int = 0) -> None:
    target = directory / name
    target.mkdir(exist_ok=True)
    (directory / "metadata").write_text('{"id":"q"}')
    source = f'\n{{"offsets": {{"local.in.0": {offset}}}, "tick": 0}}' if name == "offsets" else ""
    (target / str(number)).write_text(f"v1\n{{}}{source}")


def test_sparks_logs_are_read(tmp_path: Path) -> None:
    for number in range(3):
        write_log(tmp_path, "offsets", number, 10 * (number + 1))
    for number in range(2):
        write_log(tmp_path, "commits", number)
    (tmp_path / "offsets" / ".2.crc").write_bytes(b"crc")
    found = read_progress(tmp_path, ("local.in",))
    assert (found.planned, found.committed) == (2, 1)
    assert found.planned_end == SourceOffsets({"local.in.0": 30})
    assert found.committed_end == SourceOffsets({"local.in.0": 20})


@pytest.mark.parametrize("topic", ["in", "offsets", "tick", "with.dots"])
def test_the_log_of_sparks_kafka_source_is_read_with_the_systems_name(tmp_path: Path, topic: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{topic}":{{"1":7,"0":123}}}}')
    found = read_progress(tmp_path, (f"kafka.{topic}",))
    assert found.planned_end == SourceOffsets({f"kafka.{topic}.0": 123, f"kafka.{topic}.1": 7})


def test_each_source_has_its_line_and_a_foreign_one_is_sparks_alone(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    lines = ['{"in":{"0":123}}', '{"logOffset":4}', '{"in":{"0":9}}', '{"in":{"0":120}}']
    (tmp_path / "offsets" / "0").write_text("\n".join(["v1", "{}", *lines]))
    found = read_progress(tmp_path, ("a.in", "", "b.in", "a.in"))
    assert found.planned_end == SourceOffsets({"a.in.0": 120, "b.in.0": 9})


def test_a_lineage_goes_on_only_while_build_reads_the_same_inputs_in_the_same_order() -> None:
    lineage = LineageInfo("l1", {"local.in.0": 0, "local.b.0": 0}, "plan", ("local.in", "", "local.b"))
    goes_on, wanted = Continue(lineage), {"local.in.0": 7, "local.b.0": 8}
    assert with_query(goes_on, ("local.in", "", "local.b"), None, wanted) == goes_on
    changed = with_query(goes_on, ("local.b", "local.in"), None, wanted)
    assert isinstance(changed, StartNew)
    assert changed.lineage == LineageInfo("", wanted, "plan", ("local.b", "local.in"), "")
    assert (
        "local.b, local.in, in this order, and read local.in, a source of Spark's, local.b" in changed.reason
    )


def test_a_build_that_keeps_state_goes_on_where_inputs_came_to_those_it_read() -> None:
    lineage = LineageInfo("l1", {"k.a.0": 0, "k.b.0": 0}, "plan", ("k.a", "", "k.b"), "Aggregate")

    def now(*sources: str, kept: str | None = "Aggregate") -> LineageDecision:
        return with_query(Continue(lineage), sources, kept, {"k.a.0": 7, "k.b.0": 8})

    came = now("k.c", "k.a", "", "k.d", "k.b")
    assert isinstance(came, Continue)
    assert came.lineage == replace(lineage, sources=("k.c", "k.a", "", "k.d", "k.b"))
    assert came.widened == Parts((("", "k.c"), ("0", ""), ("1", ""), ("", "k.d"), ("2", "")))
    for other in (
        ("k.b", "", "k.a", "k.c"),
        ("k.a", "k.b", "k.c"),
        ("k.a", "", "", "k.b"),
        ("k.a", "", "k.b", "k.a"),
    ):
        asked = now(*other)
        assert isinstance(asked, StartNew)
        assert asked.kept_before == "Aggregate"
    assert isinstance(now("k.a", "", "k.b", "k.c", kept=None), StartNew), "it keeps nothing that could go on"


def test_a_source_that_came_has_no_end_until_a_batch_has_read_it(tmp_path: Path) -> None:
    lineages, lineage = lineages_of(tmp_path, "spark-4.2.0-stateful", "k.views")
    sources = ("k.more", "k.views")
    parts = with_more(lineage.sources, sources)
    assert parts is not None
    wanted = {"k.more.0": 3, **lineage.starting_offsets}
    wide = lineages.widen(replace(lineage, sources=sources, starting_offsets=wanted), parts, now_ms=5)
    assert lineages.current() == wide
    checkpoint = lineages.spark_checkpoint(wide)
    assert not (tmp_path / lineage.id / "spark").exists()
    assert read_planned(checkpoint, 3).ends == {"0": None, "1": b'{"views":{"0":10,"1":10}}'}
    assert lineages.plan_up_to(wide, {"k.more.0": 9}, now_ms=6), "the one that reads nothing comes first"
    (tmp_path / wide.id / wide.folder / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":7000}')
    with pytest.raises(JobError, match=r"no batch has read k\.more yet"):
        lineages.plan_up_to(wide, {"k.more.0": 9}, now_ms=7)
    assert lineages.plan_up_to(wide, {"k.views.0": 12}, now_ms=8)
    assert read_planned(checkpoint, 4).ends == {"0": None, "1": b'{"views":{"0":12,"1":10}}'}
    lineages.close()


def test_state_moves_in_a_copy_by_a_batch_that_counts_for_the_one_before(tmp_path: Path) -> None:
    lineages, lineage = lineages_of(tmp_path, "spark-4.2.0-stateful", "k.views")

    def move(place: str) -> None:
        log = Path(place)
        assert not (log / "offsets" / "3").exists(), "what keeps a predecessor out is not in the copy"
        record = (log / "offsets" / "2").read_text().replace('partitions":"', 'partitions":"1')
        (log / "offsets" / "3").write_text(record)
        (log / "commits" / "3").write_text((log / "commits" / "2").read_text())

    def fail(place: str) -> None:
        raise RuntimeError(place)

    for refused, error in ((fail, RuntimeError), (lambda place: None, JobError)):
        with pytest.raises(error):
            lineages.repartition(lineage, refused, now_ms=5)
        assert lineages.current() == lineage
        assert [one.name for one in (tmp_path / lineage.id).iterdir() if one.is_dir()] == ["spark"]
    moved = lineages.repartition(lineage, move, now_ms=5)
    assert moved == replace(lineage, folder="spark-2", silent=3) == lineages.current()
    assert not lineages.is_open(moved)
    commit = TaskCommit({SystemStreamPartition.parse("k.views.0"): "9"}, moved.id, 2)
    assert Checkpointed.of(moved, [commit]) == Checkpointed(3, {"k.views.0": 10})
    assert Checkpointed.of(lineage, [commit]) == Checkpointed(2, {"k.views.0": 10})
    lineages.close()


@pytest.mark.parametrize("before", ["", None, "Aggregate [k]"])
def test_a_build_that_begins_to_keep_state_needs_no_word_where_it_is_known_that_it_kept_none(
    before: str | None,
) -> None:
    goes_on, wanted = (
        Continue(LineageInfo("l", {"local.in.0": 7}, "plan", ("local.in",), before)),
        {"local.in.0": 7},
    )
    decision = with_query(goes_on, ("local.in",), "Deduplicate [k]", wanted)
    if before == "":
        assert isinstance(decision, StartNew)
        assert decision.lineage.kept == "Deduplicate [k]"
        refuse_to_lose_state(decision, had_checkpoint=True, discard=False, kept="Deduplicate [k]")
    else:
        assert decision == goes_on, "whether the state fits is for Spark to say"


def test_what_has_changed_of_a_plan_is_said_by_name() -> None:
    now = decide_lineage(
        LineageInfo("l", {"local.in.0": 7}, "pipeline a:B, update, 12"),
        progress(7, 7),
        {"local.in.0": 7},
        "pipeline a:C, append, 12",
    )
    assert isinstance(now, StartNew)
    assert now.reason == (
        "the application was 'pipeline a:B' and is 'pipeline a:C'; output_mode was 'update' and is 'append'"
    )


def test_a_lineage_of_an_earlier_version_reads_the_streams_that_it_started_with(tmp_path: Path) -> None:
    (tmp_path / "current.json").write_text('{"id":"l1","starting_offsets":{"kafka.in.0":3},"plan":"p"}')
    assert LineageDirectory(tmp_path).current() == LineageInfo("l1", {"kafka.in.0": 3}, "p", ("kafka.in",))


def test_a_job_that_moved_to_another_system_starts_a_new_lineage(tmp_path: Path) -> None:
    write_log(tmp_path, "offsets", 0, 10)
    write_log(tmp_path, "commits", 0)
    decision = decide_lineage(
        LINEAGE, read_progress(tmp_path, ("local.in",)), {"kafka.in.0": 10}, "plan, tasks"
    )
    assert "other stream partitions" in str(decision)


def test_a_batch_that_our_checkpoint_has_is_the_one_that_spark_has_of_that_number() -> None:
    """Else Spark would give its number again, and the rows of the second would be taken for written."""

    def decided(batch: int, offset: int) -> LineageDecision:
        commit = TaskCommit({SystemStreamPartition("local", "in", 0): str(offset - 1)}, "l1", batch)
        others = [TaskCommit({}), TaskCommit({}, "an earlier one", 9)]
        checkpointed = Checkpointed.of(LINEAGE, [commit, *others])
        return decide_lineage(
            LINEAGE, progress(20, 20), {"local.in.0": 20}, "plan, tasks", checkpointed=checkpointed
        )

    assert decided(0, 20) == decided(1, 20) == Continue(LINEAGE)
    assert Checkpointed.of(LINEAGE, [TaskCommit({})]) is None
    assert "the checkpoint is of batch 2, and Spark has planned 1 and committed 0" in str(decided(2, 20))
    assert "local.in.0: batch 1 ends at 19 in the checkpoint, and at 20 in Spark's offset log" in str(
        decided(1, 19)
    )


@pytest.mark.parametrize("damage", ["empty", "version", "hole", "foreign", "more sources", "another input"])
def test_damaged_logs_name_the_file(tmp_path: Path, damage: str) -> None:
    write_log(tmp_path, "offsets", 0, 10)
    write_log(tmp_path, "commits", 0)
    file = tmp_path / "offsets" / "0"
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "version":
        file.write_text("v9\n{}\n{}")
    elif damage == "hole":
        write_log(tmp_path, "commits", 5)
    elif damage == "more sources":
        file.write_text(file.read_text() + '\n{"logOffset":3}')
    elif damage == "another input":
        file.write_text('v1\n{}\n{"offsets": {"local.other.0": 1}, "tick": 0}')
    else:
        file.write_text("v1\n{}\n[1, 2]")
    with pytest.raises(SparkLogUnreadable, match=str(tmp_path)):
        read_progress(tmp_path, ("local.in",))


def test_a_lineage_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    first, second = LineageDirectory(tmp_path), LineageDirectory(tmp_path)
    lineage = first.start(LineageInfo("", {"local.in.0": 5}, "plan, tasks"))
    assert second.current() == lineage
    assert not second.lock(lineage)
    first.close()
    assert second.lock(lineage)


def test_an_unreadable_description_counts_as_no_lineage(tmp_path: Path) -> None:
    directory = LineageDirectory(tmp_path)
    directory.start(LineageInfo("", {}, "plan, tasks"))
    (tmp_path / "current.json").write_text("{")
    assert directory.current() is None


QUERY = Path(__file__).parents[1] / "migration" / "spark_checkpoints"


def lineages_of(folder: Path, query: str, *sources: str) -> tuple[LineageDirectory, LineageInfo]:
    """A lineage that goes on from what a real query of Spark's has written."""
    lineages = LineageDirectory(folder)
    starting = {f"{source}.{partition}": 0 for source in sources for partition in (0, 1, 2)}
    return lineages, lineages.start(
        LineageInfo("", starting, "plan, tasks", sources), taken_over=QUERY / query
    )


def test_a_batch_that_is_planned_here_is_one_of_sparks_and_ends_where_it_was_told(tmp_path: Path) -> None:
    lineages, lineage = lineages_of(tmp_path, "spark-4.2.0-stateful", "k.views")
    checkpoint = tmp_path / lineage.id / "spark"
    (checkpoint / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":7000}')
    assert lineages.plan_up_to(lineage, {"k.views.0": 12, "k.views.1": 3, "k.other.0": 9}, now_ms=5)
    before, after = ((checkpoint / "offsets" / name).read_text().split("\n") for name in "23")
    assert (after[0], after[2:]) == ("v1", ['{"views":{"0":12,"1":10}}'])
    known = json.loads(before[1]) | {"batchWatermarkMs": 7000, "batchTimestampMs": 5}
    assert json.loads(after[1]) == known, "what a query keeps for as long as it has state stays"
    found = lineages.progress(lineage)
    assert isinstance(found, SparkProgress)
    assert (found.planned, found.committed) == (3, 2)
    assert lineages.plan_up_to(lineage, {"k.views.0": 99}, now_ms=6), "it is planned already"
    assert not (checkpoint / "offsets" / "4").exists()
    (checkpoint / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":7000}')
    assert not lineages.plan_up_to(lineage, {"k.views.0": 12, "k.views.1": 10}, now_ms=7), "all is read"
    assert lineages.plan_up_to(lineage, {"k.views.2": 4, "k.views.3": 4}, now_ms=8), "the input grew"
    grown = (checkpoint / "offsets" / "4").read_text().split("\n")[2]
    assert json.loads(grown) == {"views": {"0": 12, "1": 10, "2": 4}}, (
        "what another container reads is not in it"
    )
    lineages.close()


def test_each_source_of_a_batch_that_is_planned_here_keeps_its_place(tmp_path: Path) -> None:
    lineages, lineage = lineages_of(tmp_path, "spark-4.2.0-log-2", "k.views", "q.clicks")
    checkpoint = tmp_path / lineage.id / "spark"
    assert lineages.plan_up_to(lineage, {"q.clicks.0": 25}, now_ms=5), (
        "one that Spark has planned comes first"
    )
    (checkpoint / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert lineages.plan_up_to(lineage, {"q.clicks.0": 25, "k.clicks.0": 99}, now_ms=6)
    lines = (checkpoint / "offsets" / "3").read_text().split("\n")
    assert (lines[0], lines[2:]) == ("v2", ['1:{"clicks":{"0":25}}', '0:{"views":{"0":10,"1":10}}'])
    lineages.close()


def test_the_first_batch_of_a_lineage_is_planned_by_spark(tmp_path: Path) -> None:
    lineages = LineageDirectory(tmp_path)
    lineage = lineages.start(LineageInfo("", {"local.in.0": 4}, "plan, tasks", ("local.in",)))
    assert not lineages.plan_up_to(lineage, {"local.in.0": 4}, now_ms=5), "there is nothing to read"
    with pytest.raises(JobError, match=r"has no batch yet.*: run the job once"):
        lineages.plan_up_to(lineage, {"local.in.0": 5}, now_ms=5)
    lineages.close()
