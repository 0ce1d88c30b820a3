"""What a release is: built twice it has the same bytes; and the image runs a job as a user that is nobody else."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.server_cluster import jars_directory

ROOT = Path(__file__).parents[2]
_JOB = """
set -e
id -u
keytool -list -cacerts -storepass changeit 2>/dev/null | grep -c trustedCertEntry
cd "$GRETE_HOME"
grete init words --kind pipeline >/dev/null
cd words
grete stream create local.readings --partitions 2
grete stream append local.readings --from-file readings.jsonl --lines
grete run --config words.properties --until-drained
grete stream dump --stream local.alarms
touch /opt/grete/changed 2>&1 || true
"""


def test_a_wheel_has_the_same_bytes_wherever_and_whenever_it_is_built(tmp_path: Path) -> None:
    built = []
    for name, changed_s in (("here", 1_000_000_000), ("some/where/else", 1_700_000_000)):
        source = tmp_path / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
        for file in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
            shutil.copy(ROOT / file, source)
        for path in source.rglob("*"):
            os.utime(path, (changed_s, changed_s))
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1600000000"}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source / "dist")]
        subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
        [wheel] = (source / "dist").iterdir()
        built.append((wheel.name, wheel.read_bytes()))
    assert built[0] == built[1]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_release_lists_all_that_it_brings_with_licences_and_is_the_same_again(tmp_path: Path) -> None:
    for name in ("first", "second"):
        command = ["bash", ROOT / "scripts/dist.sh", tmp_path / name]
        subprocess.run(command, check=True, capture_output=True)
    first, second = (tmp_path / name / "SHA256SUMS" for name in ("first", "second"))
    assert first.read_text() == second.read_text()
    [listed] = first.parent.glob("*.cdx.json")
    document = json.loads(listed.read_text())
    found = {one["name"].lower().replace("_", "-"): one for one in document["components"]}
    locked = re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE
    )
    assert {name: one["version"] for name, one in found.items()} == {
        name.lower().replace("_", "-"): version for name, version in locked
    }
    assert not [name for name, one in found.items() if not one.get("licenses")]
    assert_is_provenance(first.parent)


def assert_is_provenance(release: Path) -> None:
    """Its digests are those of the files, the commit is this one."""
    [named] = release.glob("*.provenance.json")
    statement = json.loads(named.read_text())
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    files = {path for path in release.glob("grete-*") if path != named}
    assert subjects == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    source, *locks = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert source["digest"]["gitCommit"] == commit.stdout.strip()
    for lock in locks:
        assert lock["digest"]["sha256"] == hashlib.sha256((ROOT / lock["name"]).read_bytes()).hexdigest()


@pytest.mark.nightly  # compiled from BuildKit's Go modules
@pytest.mark.parametrize("wrong", ["", "ENV a b\n", "RUNN true\n"])
def test_the_dockerfiles_are_right_by_the_rules_of_dockers_own_builder(wrong: str) -> None:
    program = jars_directory("GRETE_DOCKERFILE_LINT", "dockerfile-lint-0.25.1") / "dockerfile-lint"
    of_users = re.findall(r"```dockerfile\n(.*?)```", (ROOT / "docs/production.md").read_text(), re.DOTALL)
    texts = [(ROOT / "packaging/image/Dockerfile").read_text(), *of_users]
    assert len(texts) == 2
    for text in texts:
        done = subprocess.run([program], input=text + wrong, capture_output=True, text=True)
        assert (done.returncode != 0) == bool(wrong), done.stderr


@pytest.mark.nightly  # needs root: Debian's buildah and debootstrap
@pytest.mark.timeout(1_200)
def test_the_image_runs_a_job_without_root_and_is_the_same_again(tmp_path: Path) -> None:
    """The base is a Debian that is made here, as no registry of images is needed for it."""
    storage = tmp_path / "storage.conf"
    places = f'runroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/images"\n'
    storage.write_text(f'[storage]\ndriver = "overlay"\n{places}')
    environment = {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(storage),
        "BUILDAH_ISOLATION": "chroot",
        "BASE": "localhost/debian:here",
    }

    def buildah(*words: str) -> str:
        done = subprocess.run(["buildah", *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    base = buildah("from", "scratch")
    buildah("add", "--quiet", base, str(jars_directory("GRETE_DEBIAN", "debian-12") / "root.tar"), "/")
    buildah("commit", "--quiet", base, environment["BASE"])
    try:
        layers = []
        for name in ("again", "tried"):
            command = ["bash", ROOT / "scripts/image.sh", name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            described = buildah("inspect", "--type", "image", f"localhost/{name}")
            layers.append(json.loads(described)["OCIv1"]["rootfs"]["diff_ids"])
        assert layers[0] == layers[1]
        made = buildah("from", "localhost/tried")
        said = buildah("run", made, "--", "/opt/entrypoint.sh", "bash", "-c", _JOB)
        assert said.splitlines()[0] == "185"
        assert '"celsius":99.1' in said, "what the job has written"
        assert "Permission denied" in said
        assert int(said.splitlines()[1]) > 100, "authorities that Java knows"
    finally:
        buildah("rm", "--all")
        buildah("rmi", "--all", "--force")
