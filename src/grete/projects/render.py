"""The files of a new project, made of the templates beside this module.

A template is a text with `$name` and the like (`string.Template`). Its file ends in `.txt`, so that nothing here is
taken for a module of grete's.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from grete import __version__
from grete.errors import ConfigError

_TEMPLATES = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_BROKERS = """\
# Where the topics are
systems.kafka.samza.factory=kafka
systems.kafka.producer.bootstrap.servers=localhost:9092
"""
_KINDS = {"pipeline": "DataFrame pipeline of Spark's", "task": "task that is called for each record"}
_TAKEN = frozenset({"grete", "pyspark", "tests", "test", "conftest"})
"""Modules that are imported under these names already."""


@dataclass(frozen=True, slots=True)
class Project:
    """What a new project is to be. `system` is `local` or `kafka`; `kind` is `pipeline` or `task`."""

    name: str
    kind: str
    system: str

    def __post_init__(self) -> None:
        """Check the name.

        Raises:
            ConfigError: it cannot be a job's and a module's.
        """
        checked_module(self.name, self.module)

    @property
    def module(self) -> str:
        """The module of the application."""
        return self.name.replace("-", "_").lower()

    @property
    def class_name(self) -> str:
        """Its class."""
        return "".join(part[:1].upper() + part[1:] for part in re.split(r"[-_]", self.name))

    def files(self) -> Mapping[str, str]:
        """Each file's text, by its path in the project."""
        on_kafka = self.system == "kafka"
        needs = "some seconds, in which Spark starts" if self.kind == "pipeline" else "no Spark"
        words = {
            "name": self.name,
            "module": self.module,
            "class_name": self.class_name,
            "system": self.system,
            "extras": "spark,kafka" if on_kafka else "spark",
            "release": compatible_release(),
            "what": f"Alarms for readings that are too hot: a {_KINDS[self.kind]}. Its test needs {needs}.",
            "config": f" --config {self.name}.properties" if on_kafka else "",
            "run": " --dev" if on_kafka else "",
            "broker": "\nA broker is expected where the properties say, at localhost:9092.\n"
            if on_kafka
            else "",
            "brokers": _BROKERS if on_kafka else "",
        }
        return rendered(
            words,
            {
                "pyproject.toml": "common/pyproject.toml",
                ".gitignore": "common/gitignore",
                "README.md": "common/README.md",
                "readings.jsonl": "common/readings.jsonl",
                f"{self.module}.py": f"{self.kind}/application.py",
                f"{self.name}.properties": f"{self.kind}/job.properties",
                f"tests/test_{self.module}.py": f"{self.kind}/test.py",
            },
        )


def rendered(words: Mapping[str, str], templates: Mapping[str, str]) -> dict[str, str]:
    """Texts by path, from templates by path."""
    return {path: _text(template, words) for path, template in templates.items()}


def _text(template: str, words: Mapping[str, str]) -> str:
    text = Template((_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)
    return text.rstrip("\n") + "\n"


def checked_module(name: str, module: str) -> None:
    """Whether a job and its module may be called so.

    Raises:
        ConfigError: they may not.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a job: letters, digits, - and _, and a letter first")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _TAKEN:
        raise ConfigError(
            f"{module!r} is a module of Python's or of grete's already; name the job otherwise (--name)"
        )


def compatible_release() -> str:
    """`1.0` of 1.0.3: a project takes what comes in 1.x."""
    return ".".join(__version__.split(".")[:2])
