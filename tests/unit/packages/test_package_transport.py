"""A package on its way to other machines: packed when it has to be, unpacked once on each, and mended there."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from grete.errors import PackageError
from grete.packages.build import Built, build_api
from grete.packages.transport import archive_of, unpack_once
from grete.packages.verify import verify


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_api(tmp_path_factory.mktemp("packages"))


def unpacked(built: Built, into: Path) -> Path:
    return unpack_once(built.archive, built.manifest.digest, into)


def unpacked_by_another(archive: Path, digest: str, into: Path) -> int:
    return unpack_once(archive, digest, into).stat().st_ino


def test_of_many_processes_of_a_machine_one_unpacks_it(built: Built, tmp_path: Path) -> None:
    asked = (built.archive, built.manifest.digest, tmp_path / "environments")
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as workers:
        found = {each.result() for each in [workers.submit(unpacked_by_another, *asked) for _ in range(8)]}
    folder = tmp_path / "environments" / built.manifest.digest[:16]
    assert found == {folder.stat().st_ino}
    assert verify(folder, digest=built.manifest.digest).problems == ()
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, ".lock"}


def test_one_that_a_killed_process_left_half_is_unpacked_by_the_next(built: Built, tmp_path: Path) -> None:
    (half := tmp_path / f".{built.manifest.digest[:16]}.new").mkdir()
    (half / "left.py").write_text("half")
    assert verify(unpacked(built, tmp_path), digest=built.manifest.digest).problems == ()
    assert not half.exists()


@pytest.mark.parametrize("harm", ["changed", "missing", "all"])
def test_what_was_damaged_on_a_machine_is_mended_by_the_next_process_that_asks(
    built: Built, tmp_path: Path, harm: str
) -> None:
    folder = unpacked(built, tmp_path)
    module = folder / "lib" / "grete" / "api.py"
    if harm == "changed":
        module.write_text("raise SystemExit")
    elif harm == "missing":
        module.unlink()
    else:
        shutil.rmtree(folder)
    assert unpacked(built, tmp_path) == folder
    assert verify(folder, digest=built.manifest.digest).problems == ()


def test_one_that_yarn_has_unpacked_is_whole_though_all_of_it_is_executable_and_its_damage_is_seen(
    built: Built, tmp_path: Path
) -> None:
    folder = unpacked(built, tmp_path)
    for path in folder.rglob("*"):
        path.chmod(0o755)
    assert verify(folder, digest=built.manifest.digest).problems != ()
    assert verify(folder, digest=built.manifest.digest, may_all_be_executable=True).problems == ()
    (folder / "lib" / "grete" / "api.py").write_text("")
    assert verify(folder, digest=built.manifest.digest, may_all_be_executable=True).problems == (
        "lib/grete/api.py: its content has changed",
    )


def test_one_that_is_whole_stays_as_it_is(built: Built, tmp_path: Path) -> None:
    before = unpacked(built, tmp_path).stat().st_ino
    assert unpacked(built, tmp_path).stat().st_ino == before


def test_an_archive_that_was_cut_on_its_way_is_named_and_leaves_nothing(built: Built, tmp_path: Path) -> None:
    cut = tmp_path / built.archive.name
    cut.write_bytes(built.archive.read_bytes()[:-2000])
    with pytest.raises(PackageError, match=f"{cut.name} is damaged"):
        unpack_once(cut, built.manifest.digest, tmp_path / "environments")
    assert {path.name for path in (tmp_path / "environments").iterdir()} == {".lock"}


def test_an_archive_of_another_package_is_refused(built: Built, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="is not the package that was sent"):
        unpack_once(built.archive, "0" * 64, tmp_path)


def test_the_archive_that_was_built_with_a_folder_is_taken_and_else_it_is_made_again_the_same(
    built: Built, tmp_path: Path
) -> None:
    assert archive_of(built.folder, built.manifest, tmp_path) == built.archive
    moved = Path(shutil.copytree(built.folder, tmp_path / "elsewhere" / "package"))
    made = archive_of(moved, built.manifest, tmp_path / "made")
    assert made.name == built.archive.name
    assert made.read_bytes() == built.archive.read_bytes()


def test_one_that_was_damaged_where_it_was_built_is_named_there_until_it_is_built_again(
    built: Built, tmp_path: Path
) -> None:
    package = Path(shutil.copytree(built.folder, tmp_path / "package"))
    (package / "lib" / "grete" / "api.py").write_text("raise SystemExit")
    said = (
        r"package was damaged since it was built.* lib/grete/api\.py: its content has changed; build it again"
    )
    with pytest.raises(PackageError, match=said):
        archive_of(package, built.manifest, tmp_path / "made")
    shutil.copyfile(built.folder / "lib" / "grete" / "api.py", package / "lib" / "grete" / "api.py")
    assert archive_of(package, built.manifest, tmp_path / "made").is_file()


def test_an_archive_that_was_damaged_where_it_was_built_goes_nowhere(built: Built, tmp_path: Path) -> None:
    package = Path(shutil.copytree(built.folder, tmp_path / "package"))
    cut = built.archive.read_bytes()[:-2000]
    (tmp_path / built.archive.name).write_bytes(cut)
    with pytest.raises(PackageError, match=f"{tmp_path / built.archive.name} is damaged"):
        archive_of(package, built.manifest, tmp_path / "made")


def test_packages_that_were_used_last_stay_and_older_ones_go(built: Built, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"old-{number}").mkdir()
        os.utime(tmp_path / f"old-{number}", (number, number))
    unpacked(built, tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {built.manifest.digest[:16], "old-2", "old-3"}
