"""Exit codes, errors, and options that every command takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import grete
from grete.cli.main import main

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "words",
    [
        *([], ["nonsense"], ["run", "--nonsense"], ["config"], ["stop", "--deadline", "soon"]),
        *(["stream", "create", "in2"], ["stream", "create", "local.ä b"]),
        ["stream", "create", "local.in", "--partitions", "1000001"],
        ["stream", "grow", "local.in", "--partitions", "1000001"],
        *(["stream", "append", "in2"], ["stream", "dump", "in2"], ["stream", "tail", "--stream", "in2"]),
        *(["status", "--job", ":"], ["run", "--job", ":1"], ["job", "delete", "--execute", "--job", ""]),
    ],
)
def test_what_means_nothing_whatever_there_is_ends_with_2(
    home: Path, words: list[str], capsys: Output
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(home.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["stream", "append", "local.in", "--from-file"],
        ["checkpoint", "overwrite"],
        ["checkpoint", "diff", "--new-offsets"],
        ["config", "diff"],
        ["status", "--config"],
    ],
)
@pytest.mark.parametrize("name", ["nowhere.properties", "."])
def test_a_file_that_is_named_and_cannot_be_read_ends_with_2(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str
) -> None:
    monkeypatch.chdir(home)
    assert main([*words, name]) == 2
    error = capsys.readouterr().err
    assert "cannot read" in error
    assert name in error


def test_all_problems_of_a_configuration_are_listed_at_once(home: Path, capsys: Output) -> None:
    file = home / "bad.properties"
    file.write_text("job.name=a b\njob.container.count=x\n")
    assert main(["run", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("grete: the configuration is wrong:\n  - ")
    assert error.count("\n  - ") >= 4
    assert not (home / "local").exists()


@pytest.mark.parametrize("where", ["before", "after"])
def test_home_can_stand_before_and_after_the_command(
    home: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    other = str(tmp_path / "other")
    words = ["--home", other, "stream", "create", "local.x"]
    assert main(words if where == "before" else [*words[2:], *words[:2]]) == 0
    assert (tmp_path / "other" / "local" / "streams.db").exists()


def test_debug_shows_the_traceback(home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["config", "get"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["config", "get", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("GRETE_DEBUG", "1")
    assert main(["config", "get"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(home: Path, capsys: Output) -> None:
    assert main(["stream", "create", "local.in"]) == 0
    lines = home / "lines"
    lines.write_text('{"value": "a long value to fill the pipe"}\n' * 20_000)
    assert main(["stream", "append", "local.in", "--from-file", str(lines)]) == 0
    command = [sys.executable, "-m", "grete.cli.main", "stream", "dump", "--stream", "local.in"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (0, b"")


def test_the_version_is_printed(capsys: Output) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"grete {grete.__version__}\n"


def test_what_was_done_is_shown_where_the_terminal_lacks_its_characters(home: Path) -> None:
    command = [sys.executable, "-m", "grete.cli.main", "stream"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for words in (
        ["create", "local.in"],
        ["append", "local.in", "--lines"],
        ["dump", "--stream", "local.in"],
    ):
        done = subprocess.run(
            [*command, *words],
            env=environment,
            input="\u65e5\u672c\n".encode(),
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b""), words
    assert b"65e5" in done.stdout


@pytest.mark.parametrize(
    "words", [["stream", "dump", "--stream", "local.\udcff"], ["stream", "create", "local.x"]]
)
def test_bytes_that_are_no_utf8_are_named(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    assert main(["stream", "create", "local.in"]) == 0
    if words[1] == "create":
        monkeypatch.setenv("GRETE_HOME", f"{home}/\udcff")
    assert main(words) == 2
    assert "has bytes that are no UTF-8" in capsys.readouterr().err


def test_a_module_of_an_extra_that_is_missing_is_named_with_it(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [
        one for one in sys.modules if one.startswith(("grete.deploy", "grete.spark", "grete.cli.deploy"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    (home / "job.properties").write_text("job.name=orders\n")
    assert main(["deploy", "plan", "--config", str(home / "job.properties")]) == 2
    assert "pyspark is not installed; install it with: pip install 'grete[spark]'" in capsys.readouterr().err
