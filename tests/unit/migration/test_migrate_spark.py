"""Checkpoint locations of queries of Structured Streaming, as Spark 3.5 to 4.2 wrote them (`spark_checkpoints`).

Each query read `views` (2 partitions, 10 records each) and, with two sources, `clicks` (20 records) in batches of 8.
Those of two sources were killed in batch 2, and one was killed in batch 0.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.cli.main import main
from grete.errors import ConfigError, JobError
from grete.migration.note import Outcome
from grete.migration.spark_query import read_query
from grete.migration.spark_state import Rebuilt, of_state
from grete.model.startpoint import StateChoice
from grete.model.streams import StreamSpec
from grete.spark.lineage.source_log import SparkLogUnreadable
from grete.systems.local.system import LocalSystem

WRITTEN = Path(__file__).parent / "spark_checkpoints"
COMMITS_V2 = '{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["700a663d-b976-4bf2-8862-7e00c10a6200"]]}}'


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A query of two sources, to be changed."""
    folder = tmp_path / "query"
    shutil.copytree(WRITTEN / "spark-4.1.1-two-sources", folder)
    return folder


@pytest.mark.parametrize(
    ("name", "version"),
    [("spark-3.5.8-two-sources", "v1"), ("spark-4.1.1-two-sources", "v1"), ("spark-4.2.0-log-2", "v2")],
)
def test_a_query_stands_where_its_last_committed_batch_ended_and_the_planned_one_is_known(
    name: str, version: str
) -> None:
    query = read_query(WRITTEN / name)
    assert (query.version, query.committed, query.planned) == (version, 1, 2)
    assert query.committed_ends == {("views", 0): 8, ("views", 1): 8, ("clicks", 0): 16}
    assert query.planned_ends == {("views", 0): 10, ("views", 1): 10, ("clicks", 0): 20}
    assert not query.foreign
    assert not query.operators
    assert len(query.id) == 36


def test_a_query_that_never_committed_stands_where_it_began() -> None:
    query = read_query(WRITTEN / "spark-3.5.8-never-committed")
    assert (query.committed, query.planned) == (-1, 0)
    assert query.committed_ends == {("views", 0): 0, ("views", 1): 0}


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("spark-3.5.8-stateful", "operator 0"),
        ("spark-4.0.1-stateful", "stateStoreSave"),
        ("spark-4.2.0-stateful", "stateStoreSave"),
    ],
)
def test_operators_that_keep_state_are_named(name: str, operator: str) -> None:
    query = read_query(WRITTEN / name)
    assert query.operators == (operator,)
    assert not query.planned_ends
    [note] = of_state(query, StateChoice.KEEP, Rebuilt("the plan", ("kafka.views",), "an aggregation", ""))
    assert note.outcome is Outcome.AS_IS
    assert ("only their columns were compared" in note.says) == (operator == "operator 0")


def test_the_second_version_of_the_commit_log_is_read(copy: Path) -> None:
    (copy / "commits" / "1").write_text(f"v2\n{COMMITS_V2}")
    assert read_query(copy).committed == 1


def test_a_source_without_an_offset_yet_stands_where_it_began(copy: Path) -> None:
    lines = (copy / "offsets" / "1").read_text().splitlines()
    (copy / "offsets" / "1").write_text("\n".join([*lines[:3], "-"]))
    assert read_query(copy).committed_ends == {("views", 0): 8, ("views", 1): 8, ("clicks", 0): 0}


def test_sources_that_are_not_kafkas_are_told_from_those_that_are(copy: Path) -> None:
    for number, end in (("1", '{"logOffset":3}'), ("2", '{"logOffset":4}')):
        lines = (copy / "offsets" / number).read_text().splitlines()
        (copy / "offsets" / number).write_text("\n".join([*lines[:3], end]))
    query = read_query(copy)
    assert query.foreign == {"1": '{"logOffset":4}'}
    assert query.committed_ends == {("views", 0): 8, ("views", 1): 8}


def test_two_sources_of_one_topic_that_are_not_at_the_same_offset_are_said(copy: Path) -> None:
    lines = (copy / "offsets" / "1").read_text().splitlines()
    (copy / "offsets" / "1").write_text("\n".join([*lines[:3], '{"views":{"0":8,"1":5}}']))
    assert read_query(copy).apart == ("partition 1 of views: 8 and, in source 1, 5",)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("offsets/1", b"v3\n{}\n{}", "known are v1 and v2"),
        ("offsets/1", b"", "known are v1 and v2"),
        ("offsets/1", b"v1\n{\n{}", "cannot be read"),
        ("commits/1", b"v7\n{}", "known are v1 and v2"),
    ],
)
def test_a_log_that_is_damaged_or_of_another_version_is_refused_by_name(
    copy: Path, file: str, content: bytes, words: str
) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(SparkLogUnreadable, match=words) as refused:
        read_query(copy)
    assert str(copy / file) in str(refused.value)


def test_a_commit_whose_offsets_are_gone_is_refused(copy: Path) -> None:
    (copy / "offsets" / "1").unlink()
    with pytest.raises(SparkLogUnreadable, match="offsets/1"):
        read_query(copy)


def test_what_is_no_checkpoint_location_is_refused_in_words(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="checkpointLocation"):
        read_query(tmp_path)
    for file in (copy / "offsets").iterdir():
        file.unlink()
    with pytest.raises(JobError, match="no batch was ever planned"):
        read_query(copy)


@pytest.fixture
def config(home: Path, system: LocalSystem) -> Path:
    system.create_stream(StreamSpec("views", 2))
    path = home / "job.properties"
    path.write_text("job.name=views\napp.class=views:Views\ntask.inputs=local.views\n")
    return path


def findings(config: Path, name: str, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    command = ["migrate", "spark", "--checkpoint", str(WRITTEN / name), "--config", str(config), "-o", "json"]
    code = main([*command, *words])
    return code, {one["what"]: one for one in json.loads(capsys.readouterr().out)["findings"]}


def test_state_stays_with_spark_and_is_given_up_only_on_demand(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(config, "spark-4.2.0-stateful", capsys, "--execute")
    assert code == 1
    assert found["state"]["outcome"] == "will not work"
    assert "stateStoreSave" in found["state"]["says"]
    assert 'spark.read.format("statestore")' in found["state"]["way_out"]
    _, found = findings(config, "spark-4.2.0-stateful", capsys, "--state", "discard")
    assert found["state"]["outcome"] == "no effect"


def test_topics_are_taken_over_for_inputs_on_kafka_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(config, "spark-4.2.0-log-2", capsys)
    assert code == 1
    assert "no input is a topic that the query reads (clicks, views)" in found["task.inputs"]["says"]
    assert found["clicks"]["outcome"] == "no effect"


def test_it_is_shown_for_people_too(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["migrate", "spark", "--checkpoint", str(WRITTEN / "spark-4.2.0-log-2"), "--config", str(config)]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "log v2, batch 1 is the last committed" in shown
    assert "batch 2 was planned and not committed" in shown
    assert "nothing was written: this is what --execute would do" in shown


@pytest.mark.parametrize("written", ["{}", "file:{}", "file://localhost{}"])
def test_a_folder_of_this_machine_is_read_without_spark(config: Path, written: str) -> None:
    words = ["--checkpoint", written.format(WRITTEN / "spark-4.2.0-stateful"), "--config", str(config)]
    code = f"""
import sys
from grete.cli.main import main
code = main({["migrate", "spark", *words]!r})
print(sorted({{"pyspark", "py4j"}} & sys.modules.keys()))
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "the query keeps state (stateStoreSave" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_an_address_wants_pyspark(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "grete.spark.lineage.hadoop_files", raising=False)
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    words = ["--checkpoint", "hdfs://names/query", "--config", str(config)]
    assert main(["migrate", "spark", *words]) == 2
    assert "pip install 'grete[spark]'" in capsys.readouterr().err


def test_it_needs_a_configuration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "spark", "--checkpoint", str(WRITTEN / "spark-4.2.0-log-2")]) == 2
    assert "--config FILE" in capsys.readouterr().err
