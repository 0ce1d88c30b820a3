"""Packages: the API with its list, manifests, and what a package that was changed or made to harm is refused for."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import grete
from grete.application.start import API
from grete.cli.main import main
from grete.container.archive import write_archive
from grete.errors import PackageError
from grete.packages import api_list
from grete.packages.build import Built, build_api, build_framework
from grete.packages.elf import look_beside, needed_libraries
from grete.packages.manifest import NAME
from grete.packages.transport import unpack_once
from grete.packages.verify import read_manifest, skew, verify

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_api(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def folder(built: Built, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built.folder, tmp_path / "package"))


def problems(package: Path) -> str:
    return "\n".join(verify(package).problems)


def test_the_api_runs_in_an_interpreter_that_has_nothing_else(built: Built) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import grete, grete.api; print(grete.__file__)"
    command = [sys.executable, "-I", "-S", "-B", "-c", code, str(built.folder / "lib")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == built.folder / "lib" / "grete" / "__init__.py"
    assert not list(built.folder.rglob("coordinator*"))


def test_an_applications_process_starts_from_the_package_and_finds_all_that_it_may_have(built: Built) -> None:
    """What the process may import and what the package holds is one list."""
    lib = built.folder / "lib"
    held = {path.relative_to(lib).with_suffix("") for path in lib.rglob("*.py")}
    names = {".".join(path.parts).removesuffix(".__init__") for path in held}
    assert names == {*API, "grete.application.start"}
    reads, writes, life = os.pipe(), os.pipe(), os.pipe()
    theirs = (reads[0], writes[1], life[0])
    start = str(lib / "grete" / "application" / "start.py")
    os.close(reads[1])  # a pipe that has ended is the end of the process
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", start, *map(str, theirs), ""],
        pass_fds=theirs,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    for descriptor in (*theirs, writes[0], life[1]):
        os.close(descriptor)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_list_has_what_grete_makes_public(built: Built) -> None:
    listed = api_list.read_api_list(built.folder / "lib")
    classes = [value for value in vars(grete).values() if isinstance(value, type)]
    public = [f"{each.__module__}.{each.__qualname__}" for each in classes if each.__module__ != "typing"]
    assert len(public) > 15
    assert [name for name in public if not listed.has(name)] == []
    assert not listed.has("grete.coordinator.coordinator.Coordinator")


def test_a_list_may_have_wildcards_and_blank_lines_and_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="grete package build api"):
        api_list.read_api_list(tmp_path)
    (tmp_path / api_list.NAME).write_text("\n  \n")
    with pytest.raises(PackageError, match="names nothing"):
        api_list.read_api_list(tmp_path)
    (tmp_path / api_list.NAME).write_text("\ngrete.api.StreamTask\n\nlogging.handlers.*\nmine.v?.Own$Inner\n")
    listed = api_list.read_api_list(tmp_path)
    assert listed.patterns == ("grete.api.StreamTask", "logging.handlers.*", "mine.v?.Own$Inner")
    assert listed.has("mine.v2.Own$Inner")
    assert not listed.has("mine.v22.Own$Inner")
    assert listed.has("grete.api.StreamTask")
    assert listed.has("logging.handlers.RotatingFileHandler")
    assert not listed.has("grete.api.Serde")


def test_the_same_package_is_the_same_bytes(built: Built, tmp_path: Path) -> None:
    again = build_api(tmp_path)
    assert again.archive.name == built.archive.name == f"grete-api-{built.manifest.digest[:16]}.tgz"
    assert again.archive.read_bytes() == built.archive.read_bytes()


def test_a_package_is_what_its_manifest_says_as_a_folder_and_as_an_archive(built: Built) -> None:
    assert not problems(built.folder)
    assert not problems(built.archive)
    assert read_manifest(built.archive) == read_manifest(built.folder) == built.manifest
    assert verify(built.folder, digest=built.manifest.digest).problems == ()
    assert "its digest is" in verify(built.archive, digest="0" * 64).problems[0]


def test_a_folder_of_that_name_is_left_as_it_is(built: Built) -> None:
    with pytest.raises(PackageError, match="is there already"):
        build_api(built.folder.parent)
    assert not problems(built.folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda top: (top / "lib/grete/api.py").write_text("A = 1\n"),
            "lib/grete/api.py: its content has changed",
        ),
        (lambda top: (top / "lib/grete/errors.py").unlink(), "lib/grete/errors.py: is missing"),
        (lambda top: (top / "lib/mine.py").write_text(""), "lib/mine.py: is not in the manifest"),
        (lambda top: (top / "lib/grete/api.py").chmod(0o755), "lib/grete/api.py: has become executable"),
        (
            lambda top: (top / "lib/out").symlink_to("../../secret"),
            "lib/out: is a link to .*outside of the package",
        ),
        (
            lambda top: (top / "lib/etc").symlink_to("/etc"),
            "lib/etc: is a link to /etc, outside of the package",
        ),
        (
            lambda top: (top / "lib/same").symlink_to("grete/api.py"),
            "lib/same: is a link to .*packages have none",
        ),
        (lambda top: os.mkfifo(top / "lib/pipe"), "lib/pipe: is neither a file nor a folder"),
        (lambda top: (top / NAME).write_text("{"), "manifest.json is not what"),
        (lambda top: (top / NAME).unlink(), "has no manifest.json"),
    ],
)
def test_what_was_changed_in_a_folder_is_named(folder: Path, change: Change, said: str) -> None:
    change(folder)
    found = problems(folder)
    assert re.search(said, found), found


def test_pythons_caches_are_no_change(folder: Path) -> None:
    (folder / "lib" / "grete" / "__pycache__").mkdir(exist_ok=True)
    (folder / "lib" / "grete" / "__pycache__" / "api.cpython-311.pyc").write_bytes(b"cache")
    assert not problems(folder)


def hostile(folder: Path, path: Path, entry: tarfile.TarInfo, content: bytes = b"") -> Path:
    """The archive of a package with one entry more."""
    files = [
        (each.relative_to(folder).as_posix(), each) for each in sorted(folder.rglob("*")) if each.is_file()
    ]
    write_archive(path, files)
    plain = io.BytesIO(gzip.decompress(path.read_bytes()))
    with tarfile.open(fileobj=plain, mode="a") as archive:
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    path.write_bytes(gzip.compress(plain.getvalue()))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (entry("../outside.py"), "../outside.py: is outside of the folder"),
        (entry("lib/../../outside.py"), "is outside of the folder"),
        (entry("/etc/cron.d/own"), "/etc/cron.d/own: is outside of the folder"),
        (entry("./lib/mine.py"), "begins with './', which Spark refuses"),
        (
            entry("lib/out", tarfile.SYMTYPE, "../../x"),
            "lib/out: is a link to ../../x, outside of the package",
        ),
        (entry("lib/out", tarfile.SYMTYPE, "/etc"), "lib/out: is a link to /etc, outside of the package"),
        (entry("lib/same", tarfile.LNKTYPE, "lib/grete/api.py"), "is a link to lib/grete/api.py"),
        (entry("lib/pipe", tarfile.FIFOTYPE), "lib/pipe: is neither a file nor a folder"),
        (entry("lib/grete/api.py"), "lib/grete/api.py: is there twice"),
        (entry("lib/more.py"), "lib/more.py: is not in the manifest"),
        (entry(NAME), f"{NAME}: is there twice"),
    ],
)
def test_an_archive_that_would_write_elsewhere_is_refused_and_not_unpacked(
    folder: Path, tmp_path: Path, added: tarfile.TarInfo, said: str
) -> None:
    archive = hostile(folder, tmp_path / "package.tgz", added)
    before = sorted(tmp_path.iterdir())
    assert said in problems(archive)
    assert sorted(tmp_path.iterdir()) == before


def test_a_cache_that_came_with_an_archive_is_not_unpacked(folder: Path, tmp_path: Path) -> None:
    """A folder may have caches, which Python runs in place of the modules beside them."""
    cache = entry("lib/grete/__pycache__/api.cpython-311.pyc")
    archive = hostile(folder, tmp_path / "package.tgz", cache, b"another program")
    with pytest.raises(PackageError, match=r"api\.cpython-311\.pyc: is not in the manifest"):
        unpack_once(archive, read_manifest(folder).digest, tmp_path / "environments")
    assert [path.name for path in (tmp_path / "environments").iterdir()] == [".lock"]


def test_an_archive_is_not_searched_for_its_manifest_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grete.packages.verify._MOST_ENTRIES", 3)
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for number in range(5):
            archive.addfile(entry(f"lib/{number}.py"))
    with pytest.raises(PackageError, match="unpacks to more than 3 files"):
        read_manifest(tmp_path / "package.tgz")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
def test_a_name_of_a_gigabyte_is_not_read_into_memory(tmp_path: Path, kind: bytes) -> None:
    """A megabyte of an archive says so in a few bytes, and the library reads names at once."""
    head = entry("././@LongLink", kind)
    head.size = 1 << 30
    archive = tmp_path / "package.tgz"
    with gzip.open(archive, "wb") as content:
        content.write(head.tobuf(tarfile.GNU_FORMAT))
        content.write(bytes(1 << 20))
    with pytest.raises(PackageError, match=r"package\.tgz is damaged.* a name that is too long"):
        read_manifest(archive)


def test_heads_with_numbers_that_are_none_and_heads_of_heads_are_refused_in_words(tmp_path: Path) -> None:
    """The library lets its own errors out for them."""
    name = entry("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    name.size = 1
    sparse = entry("lib/sparse.py")
    sparse.pax_headers = {"GNU.sparse.size": "many"}
    for content, words in (
        (sparse.tobuf(tarfile.PAX_FORMAT), "invalid literal"),
        ((name.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * 2_000, "headers of headers"),
    ):
        archive = tmp_path / "package.tgz"
        archive.write_bytes(gzip.compress(content + bytes(1 << 10)))
        with pytest.raises(PackageError, match=rf"package\.tgz is damaged.*{words}"):
            read_manifest(archive)


def test_damage_within_what_is_skipped_is_said_in_words(tmp_path: Path) -> None:
    """An entry before the manifest is not read but passed over, which unpacks it as well."""
    head = entry("lib/large", tarfile.REGTYPE)
    head.size = 1 << 20
    archive = tmp_path / "package.tgz"
    archive.write_bytes(gzip.compress(head.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 10)) + b"nothing packed")
    with pytest.raises(PackageError, match=r"package\.tgz is damaged"):
        read_manifest(archive)


@pytest.mark.parametrize("made", ['"bytes": 1e999', '"name\\ud800": 1, "bytes": 1'])
def test_a_manifest_with_what_is_no_number_or_no_text_is_refused_in_words(folder: Path, made: str) -> None:
    text = (folder / NAME).read_text()
    (folder / NAME).write_text(re.sub(r'"bytes": \d+', lambda _: made, text, count=1))
    assert "is not what `grete package build` writes" in problems(folder)


@pytest.mark.parametrize("kept", [0.2, 0.9])
def test_half_an_archive_is_refused_in_words(built: Built, tmp_path: Path, kept: float) -> None:
    whole = built.archive.read_bytes()
    half = tmp_path / "half.tgz"
    half.write_bytes(whole[: int(len(whole) * kept)])
    assert re.search(r"half.tgz is (damaged|no archive)", problems(half))


def test_packages_of_different_versions_do_not_fit_together(
    built: Built, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**document, "grete": "0.0.9"}))
    assert not skew([built.manifest, built.manifest])
    assert main(["package", "verify", str(built.folder), str(folder)]) == 1
    assert f"different versions of grete: api {grete.__version__}, api 0.0.9" in capsys.readouterr().out


def test_a_later_format_names_the_way_out(folder: Path) -> None:
    document = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps({**document, "format": 2}))
    assert "has format 2, this grete reads 1" in problems(folder)


def test_commands_print_versions_and_digests(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["package", "show", str(built.archive), "--files"]) == 0
    shown = capsys.readouterr().out
    assert built.manifest.digest in shown
    assert "lib/grete/api.py" in shown
    assert main(["package", "verify", "-o", "json", str(built.folder)]) == 0
    assert json.loads(capsys.readouterr().out)["packages"][0]["ok"] is True
    assert main(["package", "verify", str(built.folder / "nowhere")]) == 1
    assert "there is no package" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["orjson==3.10.18\n", "orjson --hash=sha256:" + "0" * 64, "--index-url=somewhere\n", "-e .\n"]
)
def test_a_lock_without_versions_and_hashes_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.txt").write_text(text)
    with pytest.raises(PackageError, match="has no version and hash"):
        build_framework(tmp_path, tmp_path / "lock.txt", Path(sys.executable))
    assert [path.name for path in tmp_path.iterdir()] == ["lock.txt"]


def test_what_is_no_program_of_linux_is_refused(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "damaged").write_bytes(b"\x7fELF\x02\x01" + b"\0" * 10)
    with pytest.raises(PackageError, match="is no program for 64-bit Linux"):
        needed_libraries(tmp_path / "script")
    with pytest.raises(PackageError, match="is damaged"):
        look_beside(tmp_path / "damaged", "$ORIGIN/../lib")
