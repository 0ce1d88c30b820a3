"""Whatever is typed or piped in, the command line ends with a code and a message, and never with a traceback."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.keyed_log.base import Entry
from grete.metadata.history import History
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations.job_handle import open_job
from grete.systems.local.system import LocalSystem

CASES = 10_000 if os.environ.get("GRETE_NIGHTLY") == "1" else 300
BLOCKS = max(4, CASES // 100)
COMMANDS = (
    ("status",),
    ("history",),
    ("job-model",),
    ("config", "get"),
    ("config", "set"),
    ("config", "unset"),
    ("config", "diff"),
    ("config", "history"),
    ("config", "rollback"),
    ("checkpoint", "show"),
    ("checkpoint", "diff"),
    ("checkpoint", "rewind"),
    ("startpoint", "list"),
    ("startpoint", "set"),
    ("startpoint", "delete"),
    ("stream", "create"),
    ("stream", "grow"),
    ("stream", "list"),
    ("stream", "append"),
    ("stream", "dump"),
    ("stream", "tail"),
    ("stream", "write"),
    ("stream", "quarantine"),
    ("container", "list"),
    ("migrate",),
    ("package", "show"),
    ("package", "verify"),
)
WORDS = (
    *(
        "--job",
        "--config",
        "-o",
        "--execute",
        "--reason",
        "--to",
        "--ssp",
        "--task",
        "--partitions",
        "--batch",
        "-n",
    ),
    *(
        "--key",
        "--value",
        "--type",
        "--lines",
        "--key-field",
        "--partition",
        "--raw",
        "--log",
        "--remove",
        "--force",
    ),
    *(
        "job",
        "job:1",
        "job:",
        ":",
        "nobody",
        "json",
        "table",
        "local.in",
        "local.",
        ".",
        "nodot",
        "Partition 0",
    ),
    *(
        "local.in.0",
        "local.in.-1",
        "local.in.99999999999",
        "oldest",
        "upcoming",
        "timestamp:1e99",
        "batch:-1",
    ),
    *(
        "0",
        "1",
        "-1",
        "9" * 30,
        "9" * 5000,
        "²",
        "NaN",
        "1e400",
        "",
        " ",
        "\x00",
        "\x1b[31m",
        "\udcff",
        "ï",
        "=",
        "a=b",
    ),
    *("task.inputs=", "job.name=x", "{}", "[", "%s", "../..", "/dev/null", "/", "file:///nowhere", "-", "--"),
)
LINES = (
    *(
        b"",
        b"{}",
        b"[]",
        b"nul",
        b'{"value":1}',
        b'{"value":null}',
        b'{"value":"\\ud800"}',
        b"\xff\xfe",
        b"\x00",
    ),
    *(b'{"value":1,"timestamp_ms":%d}' % stamp for stamp in (0, -1, 2**63 - 1, 2**63, 2**64 - 1, 10**30)),
    *(b'{"value":1,"partition":%d}' % number for number in (0, -1, 7, 2**40, 10**30)),
    *(b'{"value":' + b"[" * deep + b"]" * deep + b"}" for deep in (10, 900, 5000)),
    *(b'{"value":1,"key":1e400}', b'{"value":1,"more":1}', b"x" * 100_000),
)
Output = pytest.CaptureFixture[str]


@pytest.fixture
def job(home: Path, system: LocalSystem) -> str:
    """A job whose stream holds what no program should write."""
    system.create_stream(StreamSpec("in", 2))
    with open_job(JobId("job"), must_exist=False) as handle:
        config = {
            "job.name": "job",
            "task.inputs": "local.in",
            "task.class": "x:X",
            "my.text": "\x1b[31mred\nline",
        }
        handle.stream.write_config(config, run_id="r", reason="\x1b]0;owned\x07")
        History(handle.stream).append("stopped", reason="\x1b[2J\nforged 2026-01-01  deployment")
        handle.coordinator_log.append(
            [
                Entry(b'[1,"set-config","\\ud800"]', b"x"),
                Entry(b'[1,"set-config","k"]', b'{"values":{"value":"v"},"timestamp":99999999999999999999}'),
                Entry(b'[1,"grete-history","9"]', b'{"values":{"event":"e"},"timestamp":-99999999999999999}'),
            ]
        )
    return "job"


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_arguments_and_no_lines_end_in_a_traceback(
    job: str, block: int, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(block, CASES, BLOCKS):
        chance = random.Random(seed)
        words = [*chance.choice(COMMANDS), *chance.choices(WORDS, k=chance.randrange(6))]
        if chance.random() < 0.5:
            words += ["--job", job]
        lines = b"\n".join(chance.choices(LINES, k=4))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
        try:
            code: object = main(words)
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:
            raise AssertionError(
                f"seed {seed}: grete {words} < {lines[:200]!r} ended with {error!r}"
            ) from error
        said = capsys.readouterr()
        assert code in (0, 1, 2), f"seed {seed}: {words}"
        assert "\x1b" not in said.out + said.err, f"seed {seed}: {words}"
        assert code == 0 or said.err or said.out, f"seed {seed}: {words} failed without a word"


@pytest.mark.parametrize(
    "words", [("history",), ("config", "history"), ("config", "get"), ("config", "get", "my.text")]
)
def test_what_a_stream_holds_says_nothing_to_a_terminal(
    job: str, words: tuple[str, ...], capsys: Output
) -> None:
    assert main([*words, "--job", job]) == 0
    out = capsys.readouterr().out
    assert "\\x1b" in out
    assert out.replace("\n", "").isprintable()
    assert not [line for line in out.splitlines() if line.startswith("forged")]


def append(home: Path, data: bytes, *words: str) -> int:
    (home / "lines").write_bytes(data)
    return main(["stream", "append", "local.in", "--from-file", str(home / "lines"), *words])


def test_the_first_millisecond_is_a_time_like_any_other(job: str, home: Path, capsys: Output) -> None:
    assert append(home, b'{"value": 1, "timestamp_ms": 0}\n') == 0
    capsys.readouterr()
    assert main(["stream", "dump", "--stream", "local.in"]) == 0
    assert json.loads(capsys.readouterr().out)["timestamp_ms"] == 0


def test_a_line_without_an_end_is_refused_before_memory_is_gone(
    job: str, home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["stream", "append", "local.in", "--lines", "--from-file", "/dev/zero"]) == 2
    assert "/dev/zero, line 1: it is longer than" in capsys.readouterr().err
