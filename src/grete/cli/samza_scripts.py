"""Samza's scripts by their names: `grete checkpoint-tool.sh --config-path=file:///etc/job.properties`.

Whoever comes from Samza has them in runbooks and in cron. Their flags are taken as they stand; what writes is a dry
run without `--execute`, as everywhere in grete, where Samza's tool wrote at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from grete.errors import ConfigError

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
    script, rest = arguments[0].removesuffix(".sh"), list(arguments[1:])
    if script in _ELSEWHERE:
        raise ConfigError(f"{arguments[0]} is none of grete's commands: {_ELSEWHERE[script]}")
    translate = _SCRIPTS.get(script)
    return list(arguments) if translate is None else translate(_without_factory(rest))


def _app(rest: list[str]) -> list[str]:
    operation = "run"
    kept: list[str] = []
    for flag, value, words in _flags(rest):
        if flag == _OPERATION:
            operation = value
        else:
            kept += words
    if operation not in _OPERATIONS:
        raise ConfigError(f"--operation={operation}: it can be {', '.join(_OPERATIONS)}")
    return [_OPERATIONS[operation], *(_overrides(kept) if operation == "run" else _without_overrides(kept))]


def _checkpoint_tool(rest: list[str]) -> list[str]:
    writes = any(flag == _NEW_OFFSETS for flag, _, _ in _flags(rest))
    return ["checkpoint", "overwrite" if writes else "show", *_without_overrides(rest)]


_SCRIPTS: dict[str, Callable[[list[str]], list[str]]] = {
    "run-app": _app,
    "run-job": _app,
    "checkpoint-tool": _checkpoint_tool,
    "run-coordinator-stream-writer": lambda rest: ["stream", "write", *_without_overrides(rest)],
}


def _flags(words: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Flag, value and words of each `--flag=value` and `--flag value`; other words stand alone."""
    found: list[tuple[str, str, list[str]]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        said = [word]
        if word.startswith("--") and not equals and left and not left[0].startswith("--"):
            value = left.pop(0)
            said.append(value)
        found.append((flag, value, said))
    return found


def _without_factory(words: Sequence[str]) -> list[str]:
    """Without the class that reads the configuration, which is the one for properties files."""
    kept: list[str] = []
    for flag, value, said in _flags(words):
        if flag != _FACTORY:
            kept += said
        elif not value.endswith(_FACTORIES):
            raise ConfigError(f"{_FACTORY}={value}: files of properties alone are read; leave it out")
    return kept


def _overrides(words: Sequence[str]) -> list[str]:
    """`--config key=value`, which overrides a key in Samza, as `--set key=value`."""
    kept: list[str] = []
    for flag, value, said in _flags(words):
        kept += ["--set", value] if _is_override(flag, value) else said
    return kept


def _without_overrides(words: list[str]) -> list[str]:
    for flag, value, _ in _flags(words):
        if _is_override(flag, value):
            raise ConfigError(
                f"--config {value.partition('=')[0]}=...: a key is overridden by run alone. Write it into the file, "
                "or name a job that ran before by --job NAME:ID instead of --config"
            )
    return words


def _is_override(flag: str, value: str) -> bool:
    key, equals, _ = value.partition("=")
    return flag == "--config" and bool(equals) and "/" not in key and not key.startswith(_LOADER)
