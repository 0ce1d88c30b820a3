"""What the framework asks of the application's classes beside tasks: values in, values out, in whatever process.

Each request makes an instance, asks it, and forgets it, so nothing of the class is left with the framework.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grete.api import Description, Serde, Serdes, StreamTask
from grete.application.load import check_class, load_class
from grete.errors import ApplicationError, ConfigError, GreteError
from grete.model.ids import SystemStreamPartition


def ask(method: str, path: str, key: str, value: Any) -> Any:
    """The answer of the class that `key` names; JSON both ways.

    Raises:
        ConfigError: the class cannot be found, or its answer is none.
        ApplicationError: its module fails while it is imported, or it raised something else; says where in its file.
    """
    loaded, shown = load_class(path, key), f"{key}={path!r}"
    try:
        return _METHODS[method](loaded, shown, value)
    except GreteError:
        raise
    except (Exception, SystemExit) as error:  # the application's code; a coordinator does not end by it
        raise ApplicationError(f"{shown} failed at {_place(error, loaded)}: {error!r}") from error


def _place(error: BaseException, loaded: Any) -> str:
    """Where it was raised: in the file of the class, if that is on the way to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = getattr(sys.modules.get(getattr(loaded, "__module__", "")), "__file__", None)
    frame = next((frame for frame in reversed(frames) if frame.filename == own), frames[-1])
    return f"{frame.filename}, line {frame.lineno}"


def _rewrite(loaded: Any, shown: str, value: Sequence[Any]) -> dict[str, str]:
    name, config = value
    return checked_config(name, rewriter_of(loaded, shown).rewrite(name, config))


def rewriter_of(loaded: Any, shown: str) -> Any:
    """An instance of a rewriter's class.

    Raises:
        ConfigError: it is none.
    """
    return _with_method(loaded, "rewrite", "rewrite(name, config)", shown)


def _with_method(loaded: Any, method: str, signature: str, shown: str) -> Any:
    made = loaded() if callable(loaded) else loaded
    if not callable(getattr(made, method, None)):
        raise ConfigError(f"{shown} has no method {signature}")
    return made


def checked_config(name: str, result: object) -> dict[str, str]:
    """What the rewriter of this name returned, which has to be a configuration.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(result, Mapping):
        raise ConfigError(
            f"config rewriter {name} returned {type(result).__name__}, not a mapping of strings"
        )
    wrong = sorted(str(k) for k, v in result.items() if not (isinstance(k, str) and isinstance(v, str)))
    if wrong:
        raise ConfigError(
            f"config rewriter {name} returned keys or values that are no strings: {', '.join(wrong)}"
        )
    return dict(result)


def _group(loaded: Any, shown: str, value: Sequence[Any]) -> list[tuple[str, list[tuple[str, str, int]]]]:
    grouper = _with_method(loaded, "group", "group(ssps, config)", shown)
    given, config = value
    groups = grouper.group(frozenset(SystemStreamPartition(*one) for one in given), config)
    return [
        (str(task), [(one.system, one.stream, one.partition) for one in of_task])
        for task, of_task in groups.items()
    ]


def _describe(loaded: Any, shown: str, config: Mapping[str, str]) -> dict[str, Any]:
    check_class(loaded, StreamTask, *shown.split("=", 1))
    described = loaded.describe(config)
    if not isinstance(described, Description):
        raise ConfigError(f"{shown}: describe returned {type(described).__name__}, not a grete.Description")
    return {
        "inputs": _by_name(described.inputs),
        "outputs": _by_name(described.outputs),
        "stores": _by_name(described.stores),
        "serdes": {name: _class_path(serde, name, shown) for name, serde in described.serdes.items()},
    }


def _by_name(given: Mapping[str, Serdes] | Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    if isinstance(given, Mapping):
        return {name: (serdes.key, serdes.message) for name, serdes in given.items()}
    return dict.fromkeys(given, (None, None))


def _class_path(serde: object, name: str, shown: str) -> str:
    if not (isinstance(serde, type) and issubclass(serde, Serde)):
        raise ConfigError(
            f"{shown}: describe has {serde!r} as the serde {name!r}; give a class of grete.Serde"
        )
    if "<locals>" in serde.__qualname__:
        raise ConfigError(f"{shown}: the class of the serde {name!r} is inside a function; move it out of it")
    return f"{serde.__module__}:{serde.__qualname__}"


_METHODS: Mapping[str, Callable[[Any, str, Any], Any]] = {
    "rewrite": _rewrite,
    "group": _group,
    "describe": _describe,
}
