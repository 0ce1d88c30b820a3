"""The page of streams: records of a partition, and a key of a store."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient
from tests.unit.finished_job import changelog_of_totals, opened

from grete.model.streams import StreamSpec
from grete.pages.watch import Watch
from grete.systems.local.system import LocalSystem, Message


def test_records_of_a_stream_are_shown_from_an_offset_and_by_their_text(reader: TestClient) -> None:
    text = reader.get("/ui/job/orders/streams?stream=local.in&partition=0&at=2").text
    assert re.findall(r'<th scope="row" class="number">(\d+)', text) == ["2", "3"]
    text = reader.get("/ui/job/orders/streams?stream=local.in&partition=0&at=0&search=nothing").text
    assert "No record there" in text
    text = reader.get("/ui/job/orders/streams?stream=local.in&partition=9").text
    assert "has partitions 0 to 1, not 9" in text
    text = reader.get("/ui/job/orders/streams?stream=local.in&partition=0&at=1970-01-01T00:00:00").text
    assert re.findall(r'<th scope="row" class="number">(\d+)', text) == ["0", "1", "2", "3"]
    text = reader.get("/ui/job/orders/streams?stream=local.in&partition=0&at=2026-01-01").text
    assert "No record there" in text
    for wrong in ("at=1e9", "at=yesterday", "at=-1"):
        assert (
            "neither an offset nor a time"
            in reader.get(f"/ui/job/orders/streams?stream=local.in&{wrong}").text
        )
    for wrong in ("partition=x", "partition=-1", "at=" + "9" * 30, "partition=\u00b2"):
        assert "is a number, not" in reader.get(f"/ui/job/orders/streams?stream=local.in&{wrong}").text
    assert "hunter2" not in reader.get("/ui/job/orders/streams?stream=local.others").text


@pytest.fixture
def changelog(watch: Watch, system: LocalSystem) -> None:
    """The changelog of the finished job's store: numbers as Samza writes them, by keys that are texts."""
    changelog_of_totals(system)


@pytest.mark.usefixtures("changelog")
def test_a_key_of_a_store_is_looked_up_and_shown_as_its_serde_reads_it(reader: TestClient) -> None:
    def row(query: str) -> list[str]:
        page = reader.get(f"/ui/job/orders/streams?store=totals&{query}")
        assert page.status_code == 200, page.text
        table = page.text[page.text.index('aria-label="Entries of the key"') :]
        return re.findall(r"<t[hd][^>]*>([^<]*)<", table[table.index("<tbody>") :])

    task, partition, offset, _, value = row("key=a")
    assert (task, partition, offset, value) == ("Partition 0", "0", "2", "3")
    assert row("key=z")[0] == "Partition 1"
    assert row("key=c")[-1] == "deleted"
    assert row("key=nothing") == ["The store has no such key."]
    assert row("key=a&back=3")[-1] == "1", "further back is what it was"
    assert row("key=%3Cb%3E") == ["The store has no such key."]
    assert "back is a number" in reader.get("/ui/job/orders/streams?store=totals&key=a&back=x").text
    assert "Entries of" not in reader.get("/ui/job/orders/streams?store=another&key=a").text


@pytest.mark.usefixtures("changelog")
def test_records_of_a_changelog_are_shown_as_the_stores_serdes_read_them(reader: TestClient) -> None:
    page = reader.get("/ui/job/orders/streams?stream=local.orders-1-totals-changelog&at=0").text
    values = re.findall(r'data-label="Value">([^<]*)<', page)
    assert values == ["1", "2", "3", "4", "-"]


def test_a_record_of_10_mb_and_one_that_no_serde_reads_are_shown_in_a_small_page(
    reader: TestClient, system: LocalSystem
) -> None:
    with opened() as handle:
        handle.stream.change_config({"streams.large.samza.msg.serde": "json"}, run_id="r", reason="")
        handle.stream.change_config({"task.inputs": "local.in,local.large"}, run_id="r", reason="")
    system.create_stream(StreamSpec("large", 1))
    values = [b'{"text": "' + b"x" * 10_000_000 + b'"}', b"\xff\x00<b>", b'{"a": 1}', b"[" * 100_000]
    system.append("large", (Message(None, value, 1, partition=0) for value in values))
    page = reader.get("/ui/job/orders/streams?stream=local.large&at=0")
    assert page.status_code == 200
    assert len(page.content) < 40_000
    shown = re.findall(r'data-label="Value">([^<]*)<', page.text)
    assert [text[:12] for text in shown] == ["{&#34;text&#", "{&#34;hex&#3", "{&#34;a&#34;", "[[[[[[[[[[[["]
    assert "(10,000,012 bytes)" in shown[0]
