"""The checkpoint tool's property format, in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.checkpoint.text import format_checkpoints, parse_checkpoint_text
from grete.config.properties import format_properties
from grete.errors import ConfigError
from grete.model.ids import SystemStreamPartition, TaskName

PRINTED = "tasknames.Partition 0.systems.local.streams.in.partitions.3"
SSP = SystemStreamPartition("local", "in", 3)


@pytest.mark.parametrize(
    "text",
    [
        f"{PRINTED}=42\n",
        f"  {PRINTED} = 42",
        f"# a remark\n\n{PRINTED.replace(' ', chr(92) + ' ')}=42",
        f"! another\r\n{PRINTED.replace(' ', chr(92) + 'u0020')}: 42",
    ],
)
def test_lines_are_read_as_printed_and_as_java_wants_them(text: str) -> None:
    assert parse_checkpoint_text(text, origin="f") == ({TaskName("Partition 0"): {SSP: "42"}}, [])


def test_dots_belong_to_the_task_and_to_the_stream() -> None:
    line = "tasknames.a.systems.b.systems.local.streams.x.y.partitions.0=1"
    found, _ = parse_checkpoint_text(line, origin="f")
    assert found == {TaskName("a.systems.b"): {SystemStreamPartition("local", "x.y", 0): "1"}}


@pytest.mark.parametrize("task", ["a=b", "a = b", "=", "a=b.systems.c.streams.d.partitions.0=1", "ü/: = %"])
def test_a_task_with_an_equals_sign_in_its_name_comes_back_as_it_was(task: str) -> None:
    [line] = format_checkpoints({TaskName(task): {SSP: "42"}})
    assert parse_checkpoint_text(line, origin="f") == ({TaskName(task): {SSP: "42"}}, [])


def test_a_line_is_printed_as_samzas_tool_does() -> None:
    assert list(format_checkpoints({TaskName("Partition 0"): {SSP: "42"}})) == [f"{PRINTED} = 42"]


def test_what_is_no_offset_is_named_and_a_bad_escape_is_an_error() -> None:
    assert parse_checkpoint_text("systems.local.streams.in=1", origin="f") == (
        {},
        ["systems.local.streams.in"],
    )
    with pytest.raises(ConfigError, match="f, line 1"):
        parse_checkpoint_text("tasknames.\\u12=1", origin="f")


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="\\#!=:"), min_size=1
)
CHECKPOINTS = st.dictionaries(
    st.builds(lambda a, b: TaskName(f"{a} {b}"), TEXTS, st.integers(0, 99)),
    st.dictionaries(
        st.builds(
            SystemStreamPartition,
            st.just("local"),
            st.from_regex(r"[a-z.]{1,9}x", fullmatch=True),
            st.integers(0, 999),
        ),
        st.integers(-1, 2**63).map(str),
        min_size=1,
        max_size=3,
    ),
    max_size=4,
)


@given(CHECKPOINTS)
def test_what_is_printed_is_read_back_also_from_a_properties_file(
    checkpoints: dict[TaskName, dict[SystemStreamPartition, str]],
) -> None:
    lines = list(format_checkpoints(checkpoints))
    assert parse_checkpoint_text("\n".join(lines), origin="f") == (checkpoints, [])
    escaped = format_properties(dict(line.rsplit(" = ", 1) for line in lines))
    assert parse_checkpoint_text(escaped, origin="f") == (checkpoints, [])
