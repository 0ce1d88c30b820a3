"""`grete dev`: which file it takes for the job, and what it sees of saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.cli.dev_command import job_file
from grete.cli.development import Saves, sources
from grete.cli.main import main
from grete.errors import ConfigError


def test_the_only_file_that_names_a_job_is_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "words.properties").write_text("job.name=words\n")
    (tmp_path / "log4j.properties").write_text("job.name=no\n")
    (tmp_path / "other.properties").write_text("colour=red\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    assert job_file(tmp_path) == tmp_path / "words.properties"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "has no job's configuration"),
        (["a", "b"], "several jobs' configurations: a.properties, b.properties"),
    ],
)
def test_none_and_several_are_named_with_the_ways_out(names: list[str], said: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / f"{name}.properties").write_text(f"job.name={name}\n")
    with pytest.raises(ConfigError, match=said) as found:
        job_file(tmp_path)
    assert "--config FILE" in str(found.value)
    assert "grete init" in str(found.value)


def test_sources_are_the_applications_own(tmp_path: Path) -> None:
    for name in ("job.py", "parts/one.py", ".git/hook.py", "env/lib/x.py", "__pycache__/y.py", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert [str(path.relative_to(tmp_path)) for path in sources(tmp_path)] == ["job.py", "parts/one.py"]


def test_what_was_written_made_and_removed_is_seen_once(tmp_path: Path) -> None:
    config, code = tmp_path / "words.properties", tmp_path / "code"
    code.mkdir()
    config.write_text("a=1\n")
    (code / "old.py").write_text("")
    (code / "kept.py").write_text("")
    saves = Saves([config, code])
    assert saves.changed() == []
    config.write_text("a=1\nb=2\n")
    (code / "new.py").write_text("")
    (code / "old.py").unlink()
    assert [path.name for path in saves.changed()] == ["new.py", "old.py", "words.properties"]
    assert saves.changed() == []


def test_a_folder_without_a_job_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dev"]) == 2
    assert "has no job's configuration" in capsys.readouterr().err


def test_fresh_deletes_nothing_of_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "rooms"), "--kind", "task", "--system", "kafka"]) == 0
    assert main(["dev", "--fresh", "--config", str(tmp_path / "rooms" / "rooms.properties")]) == 2
    assert "kafka is not embedded" in capsys.readouterr().err
