"""A folder as the archive that executors unpack."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from grete.container.archive import pack
from grete.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "application"
    (made / "package" / "__pycache__").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / ".git" / "config").write_text("[remote]")
    (made / "package" / "__pycache__" / "module.pyc").write_bytes(b"old")
    (made / "package" / "module.py").write_text("A = 1\n")
    (made / "words.txt").write_text("words")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o700)
    (made / "same.txt").symlink_to("words.txt")
    return made


def test_it_is_named_by_its_content_and_the_same_bytes_wherever_and_whenever_it_is_made(
    folder: Path, tmp_path: Path
) -> None:
    first = pack(folder, tmp_path / "one")
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    again = pack(folder, tmp_path / "two")
    assert first.name == again.name == f"grete-application-{first.digest[:16]}"
    assert first.path.read_bytes() == again.path.read_bytes()
    (folder / "words.txt").write_text("other")
    assert pack(folder, tmp_path / "one").name != first.name


def test_archives_of_earlier_contents_are_deleted_but_for_the_last_ones(folder: Path, tmp_path: Path) -> None:
    made = []
    for number in range(5):
        (folder / "words.txt").write_text(f"{number}")
        made.append(pack(folder, tmp_path / "packed").path)
        os.utime(made[-1], (number + 1, number + 1))
    assert sorted((tmp_path / "packed").iterdir()) == sorted(made[-3:])


def test_spark_can_unpack_it(folder: Path, tmp_path: Path) -> None:
    """It refuses entries that begin with `./`, and takes no other ending for a packed archive."""
    archive = pack(folder, tmp_path / "packed")
    assert archive.path.suffix == ".tgz"
    with tarfile.open(archive.path) as opened:
        modes = {entry.name: entry.mode for entry in opened.getmembers()}
        same = opened.extractfile("same.txt")
        assert same is not None
        assert same.read() == b"words"
    assert modes == {"package/module.py": 0o644, "run.sh": 0o755, "same.txt": 0o644, "words.txt": 0o644}


def test_a_link_that_leaves_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("hidden")
    (folder / "passwords").symlink_to(tmp_path / "passwords")
    with pytest.raises(ConfigError, match=r"passwords is a link to .* outside of the folder"):
        pack(folder, tmp_path / "packed")


def test_a_folder_that_is_too_large_or_not_there_is_refused_with_the_way_out(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"job.application.path: .*data in streams"):
        pack(folder, tmp_path / "packed", largest=10)
    with pytest.raises(ConfigError, match="there is no folder"):
        pack(tmp_path / "nowhere", tmp_path / "packed")
