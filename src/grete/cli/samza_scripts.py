"""Samza's scripts by their names: `grete checkpoint-tool.sh --config-path=file:///etc/job.properties`.

Whoever comes from Samza has them in runbooks and in cron. Their flags are taken as they stand; what writes is a dry
run without `--execute`, as everywhere in grete, where Samza's tool wrote at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from grete.errors import ConfigError
from grete.suggestions import nearest

_FACTORY = "--config-factory"
_FACTORIES = ("PropertiesConfigFactory", "PropertiesConfigLoaderFactory")
_LOADER = "job.config.loader."
_OPERATION = "--operation"
_OPERATIONS = {"run": "run", "kill": "stop", "status": "status"}
_NEW_OFFSETS = "--new-offsets"
_ELSEWHERE = {
    "kill-yarn-job": "grete stop ends a job in order, grete deploy kill at once",
    "kill-yarn-job-by-name": "grete stop --job NAME ends a job in order, grete deploy kill at once",
    "kill-all": "it ended every application of the cluster; grete stop --job NAME ends one job",
    "list-yarn-job": "grete deploy status --config FILE says what the cluster manager has of a job",
    "stat-yarn-job": "grete deploy status --config FILE says what the cluster manager has of a job",
    "validate-yarn-job": "grete status -o json and grete doctor --config FILE say what is wrong with a job",
    "run-jc": "grete run starts a job's coordinator, and that its containers",
    "run-container": "grete run starts a job's coordinator, and that its containers",
    "run-class": "grete run starts a job; its configuration names the class",
    "run-samza-rest-service": "each coordinator serves HTTP; grete status shows where",
    "state-storage-tool": "a store that is not there is built from its changelog when its task begins",
    "read-rocksdb-tool": "grete stream dump --log LOG shows a changelog",
}


def in_our_words(arguments: Sequence[str]) -> list[str]:
    """The arguments with a script of Samza's, if they begin with one, as the command that does the same.

    Raises:
        ConfigError: a script or a flag that nothing here does; says what does it instead.
    """
    if not arguments:
        return []
    script = arguments[0].removesuffix(".sh")
    if script in _ELSEWHERE:
        raise ConfigError(f"{arguments[0]} is none of grete's commands: {_ELSEWHERE[script]}")
    translate = _SCRIPTS.get(script)
    if translate is None and script != arguments[0]:
        meant = nearest(script, (*_SCRIPTS, *_ELSEWHERE))
        raise ConfigError(
            f"there is no command {arguments[0]!r}; "
            + (f"did you mean {meant}.sh?" if meant else "grete --help lists them")
        )
    return list(arguments) if translate is None else translate(_flags(arguments[1:]))


class _Flag(NamedTuple):
    """`--name=value` or `--name value`, with the `words` that it was; another word is a name alone."""

    name: str
    value: str
    words: tuple[str, ...]

    @property
    def is_override(self) -> bool:
        """Whether it is `--config key=value`, which overrides a key in Samza."""
        key, equals, _ = self.value.partition("=")
        is_key = bool(equals) and "/" not in key and not key.startswith(_LOADER)
        return self.name == "--config" and is_key


def _app(flags: list[_Flag]) -> list[str]:
    operation = next((flag.value for flag in reversed(flags) if flag.name == _OPERATION), "run")
    if operation not in _OPERATIONS:
        raise ConfigError(f"--operation={operation}: it can be {', '.join(_OPERATIONS)}")
    kept = [flag for flag in flags if flag.name != _OPERATION]
    if operation == "run":
        kept = [flag._replace(words=("--set", flag.value)) if flag.is_override else flag for flag in kept]
        return ["run", *_words(kept)]
    return [_OPERATIONS[operation], *_without_overrides(kept)]


def _checkpoint_tool(flags: list[_Flag]) -> list[str]:
    writes = any(flag.name == _NEW_OFFSETS for flag in flags)
    return ["checkpoint", "overwrite" if writes else "show", *_without_overrides(flags)]


_SCRIPTS: dict[str, Callable[[list[_Flag]], list[str]]] = {
    "run-app": _app,
    "run-job": _app,
    "checkpoint-tool": _checkpoint_tool,
    "run-coordinator-stream-writer": lambda flags: ["stream", "write", *_without_overrides(flags)],
}


def _flags(words: Sequence[str]) -> list[_Flag]:
    """The flags, without the class that reads the configuration, which is the one for properties files."""
    found: list[_Flag] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        said: tuple[str, ...] = (word,)
        if word.startswith("--") and not equals and left and not left[0].startswith("--"):
            value = left.pop(0)
            said = (word, value)
        if name != _FACTORY:
            found.append(_Flag(name, value, said))
        elif not value.endswith(_FACTORIES):
            raise ConfigError(f"{_FACTORY}={value}: files of properties alone are read; leave it out")
    return found


def _words(flags: Iterable[_Flag]) -> list[str]:
    return [word for flag in flags for word in flag.words]


def _without_overrides(flags: Sequence[_Flag]) -> list[str]:
    for flag in flags:
        if flag.is_override:
            raise ConfigError(
                f"--config {flag.value.partition('=')[0]}=...: a key is overridden by run alone. Write it into the "
                "file, or name a job that ran before by --job NAME:ID instead of --config"
            )
    return _words(flags)
