"""Look whether what is locked has known vulnerabilities: Python's side by pip-audit, what Maven brings by a list.

    python scripts/audit.py [--java]

Ends with 1 when a vulnerability is found. A registry that tells nothing is named, and is no failure: otherwise nobody
could build while it is away. `--java` looks at the list alone, which needs no network.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "scripts" / "advisories.toml"
TOOLS, PINNED = ROOT / ".cache" / "audit", ROOT / "scripts" / "packages" / "audit.txt"
POMS = ("benchmarks", "interop", "scripts")
LOCKS = ("requirements/build.txt", "requirements/dev.txt", "scripts/packages/kerberos.txt")
"""What users get, and what builds and tests run with. The applications of tests bring old packages on purpose."""
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"
_OLD_DAYS = 90
_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Pinned:
    """A package of one version, and the file that names it."""

    package: str
    version: str
    where: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: `found` ends with 1, `told` is for whoever reads."""

    found: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(self.found + other.found, self.told + other.told)


def is_before(version: str, other: str) -> bool:
    """Whether a version is older: by the numbers in it; one with a word (`-preview1`, `.Final`) counts as without."""
    pairs = zip_longest(_numbers(version), _numbers(other), fillvalue=0)
    return next((one < another for one, another in pairs if one != another), False)


def _numbers(version: str) -> list[int]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    if leading is None:
        raise ValueError(f"{version!r} is no version to compare: name a number in the pom")
    return [int(part) for part in leading[0].split(".")]


def pinned_in(pom: Path, where: str) -> Iterator[Pinned]:
    """What a pom names with a version.

    Raises:
        ValueError: a version is a property that the pom does not set.
    """
    project = ElementTree.parse(pom).getroot()  # noqa: S314 - a file of this repository
    found = project.find(f"{_MAVEN}properties")
    properties = {
        one.tag.removeprefix(_MAVEN): one.text or "" for one in (found if found is not None else ())
    }
    for one in project.iter(f"{_MAVEN}dependency"):
        group, name, version = (
            one.findtext(f"{_MAVEN}{tag}", "") for tag in ("groupId", "artifactId", "version")
        )
        if version.startswith("${"):
            version = properties.get(version[2:-1], version)
        _numbers(version)
        yield Pinned(f"{group}:{name}", version, where)


def java(pinned: Iterable[Pinned], listed: Mapping[str, Any], today: date) -> Outcome:
    """Compare what poms name with the list."""
    by_package: dict[str, Mapping[str, Any]] = {one["package"]: one["ranges"] for one in listed["advisory"]}
    found = []
    for one in pinned:
        for number, ranges in by_package.get(one.package, {}).items():
            fixed = [
                end
                for begin, end in ranges
                if not is_before(one.version, begin) and is_before(one.version, end)
            ]
            if fixed:
                found.append(
                    f"{one.where}: {one.package} {one.version} has {number}: take {fixed[0]} or newer"
                )
    age = (today - listed["dated"]).days
    told = (
        []
        if age <= _OLD_DAYS
        else [f"{LIST.name} is {age} days old: look for newer advisories, and set its date"]
    )
    return Outcome(tuple(found), tuple(told))


def unmaintained(listed: Mapping[str, Any], locks: Sequence[str]) -> Outcome:
    """Name what has no maintainer, and what is listed in vain."""
    entries = listed.get("unmaintained", ())
    locked = [
        re.search(rf"^{re.escape(one['package'])}==", "\n".join(locks), re.MULTILINE) for one in entries
    ]
    vain = [
        f"{LIST.name}: no lock has {one['package']} any more, remove it"
        for one, has in zip(entries, locked, strict=True)
        if not has
    ]
    told = [f"{one['package']} has no maintainer ({one['dated']}): {one['reason']}" for one in entries]
    return Outcome(tuple(vain), tuple(told))


def python(said: str, why: str) -> Outcome:
    """Read what pip-audit has printed, or why it has not."""
    try:
        packages: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError):
        return Outcome(
            told=(f"Python's packages were not looked up, pip-audit gave no answer: {why[-300:].strip()}",)
        )
    found = [
        f"{one['name']} {one['version']} has {vulnerability['id']}: take "
        f"{' or '.join(vulnerability['fix_versions']) or 'something else, no release mends it'}"
        for one in packages
        for vulnerability in one.get("vulns", ())
    ]
    unknown = [one["name"] for one in packages if "skip_reason" in one]
    missing = f"the registry told nothing of {len(unknown)} of {len(packages)} Python packages"
    told = (
        f"{missing} ({', '.join(unknown[:5])}{', ...' if len(unknown) > 5 else ''}): these were not looked up",
    )
    return Outcome(tuple(found), told if unknown else ())


def _pip_audit(accepted: Iterable[str]) -> Outcome:
    """Run the tool, in an environment of its own."""
    program = TOOLS / "bin" / "pip-audit"
    installed = TOOLS / "complete"
    try:
        if not installed.exists() or installed.read_bytes() != PINNED.read_bytes():
            _run([sys.executable, "-m", "venv", "--clear", str(TOOLS)])
            _run([str(TOOLS / "bin" / "pip"), "install", "-q", "--require-hashes", "-r", str(PINNED)])
            installed.write_bytes(PINNED.read_bytes())
        locks = [word for lock in LOCKS for word in ("-r", str(ROOT / lock))]
        ignored = [word for one in accepted for word in ("--ignore-vuln", one)]
        words = ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(  # noqa: S603 - our own words
            [str(program), *words, *locks, *ignored],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return python("", str(getattr(error, "stderr", None) or error))
    return python(done.stdout, done.stderr)


def _run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=_PATIENCE_S)  # noqa: S603 - our own words


def main(words: Sequence[str]) -> int:
    """Look, print, and say by the exit code whether something was found."""
    parser = argparse.ArgumentParser(description="known vulnerabilities of what is locked")
    parser.add_argument("--java", action="store_true", help="only the list of what Maven brings")
    asked = parser.parse_args(words)
    listed = tomllib.loads(LIST.read_text())
    poms = sorted(pom for folder in POMS for pom in (ROOT / folder).glob("**/pom.xml"))
    pinned = [one for pom in poms for one in pinned_in(pom, str(pom.relative_to(ROOT)))]
    outcome = java(pinned, listed, date.today())
    if not asked.java:
        outcome += unmaintained(listed, [(ROOT / lock).read_text() for lock in LOCKS])
        outcome += _pip_audit(one["id"] for one in listed.get("accepted", ()))
    for line in outcome.told:
        print(f"audit: {line}")
    for line in outcome.found:
        print(f"audit: {line}", file=sys.stderr)
    print(f"audit: {len(outcome.found)} found; {len(pinned)} versions of Maven's compared")
    return 1 if outcome.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
