"""Completion in a shell: the words that may come next, asked of bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grete.cli.main import COMMANDS, main

Output = pytest.CaptureFixture[str]
_ASK = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_LINE="${COMP_WORDS[*]}"
$(complete -p grete | sed 's/.*-F \\([^ ]*\\) .*/\\1/') grete "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, capsys: Output, *words: str) -> set[str]:
    assert main(["completion", "bash"]) == 0
    script = folder / "grete.bash"
    script.write_text(capsys.readouterr().out)
    command = ["bash", "-c", _ASK, "bash", str(script), *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(said.stdout.split())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["grete", "stat"], {"status"}),
        (["grete", "checkpoint", ""], {"show", "history", "diff", "export", "overwrite", "rewind"}),
        (["grete", "checkpoint", "rewind", "--st"], {"--state"}),
        (["grete", "checkpoint", "rewind", "--state", ""], {"keep", "restore", "discard"}),
        (["grete", "container", "list", "--wa"], {"--watch"}),
    ],
)
def test_bash_knows_what_may_come_next(
    tmp_path: Path, capsys: Output, words: list[str], found: set[str]
) -> None:
    assert completed(tmp_path, capsys, *words) >= found


def test_files_are_completed_where_one_is_named(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.properties").touch()
    monkeypatch.chdir(tmp_path)
    assert "orders.properties" in completed(tmp_path, capsys, "grete", "run", "--config", "ord")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_every_command(capsys: Output, shell: str) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert not [command for command in COMMANDS if command not in script]
