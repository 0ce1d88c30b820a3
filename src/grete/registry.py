"""From a name to an object: plug-ins by name, application classes by `module:Class`.

A plug-in is a Python entry point of a group such as `grete.rewriters`, or built in. Nothing else that a configuration
names is imported, except where it names a class of the application itself and the caller says so (RELIABILITY 19).
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from grete.errors import ConfigError
from grete.suggestions import did_you_mean


@cache
def known_plugins(group: str) -> Mapping[str, str]:
    """`module:attribute` of each plug-in of a group that was installed when this process first asked, by name.

    Remembered, since looking costs 5 ms and a running coordinator validates at every change of its configuration.
    """
    from importlib.metadata import entry_points  # 20 modules, which most commands do without

    return {point.name: point.value for point in sorted(entry_points(group=group))}


def is_class_of_application(group: str, name: str, built_in: Collection[str] = ()) -> bool:
    """Whether a name stands for a class of the application: the framework's own and its plug-ins come first."""
    return ":" in name and name not in built_in and name not in known_plugins(group)


def ways_to_name(group: str, name: str, *, accepts_classes: bool) -> str:
    """What can be named in a group beside what is known, for the error of a name that is not."""
    plugin = f"A plug-in is installed in the framework's environment as an entry point of the group {group!r}"
    if accepts_classes:
        return f"A class of the application is named module:Class. {plugin}"
    if ":" in name:
        return (
            f"A class of the application cannot be one, since it would be called in processes of the framework, "
            f"which never load the application. {plugin}"
        )
    return plugin


def load_object(
    group: str,
    name: str,
    *,
    built_in: Mapping[str, str] | None = None,
    accepts_classes: bool = False,
    used_by: str,
) -> Any:
    """The object called `name`: built in, else an installed plug-in of `group`.

    `accepts_classes` says that callers have looked for a class of the application before.

    `built_in` gives names and their `module:attribute`. `used_by` is the key that named it, for the error.

    Raises:
        ConfigError: unknown (lists what is known), or it cannot be imported.
    """
    own = built_in or {}
    if name in own:
        return import_object(own[name], used_by=used_by)
    plugins = known_plugins(group)
    if name in plugins:
        return import_object(plugins[name], used_by=used_by)
    known = ", ".join(sorted({*own, *plugins})) or "none"
    meant = did_you_mean(name, {*own, *plugins})
    ways = ways_to_name(group, name, accepts_classes=accepts_classes)
    raise ConfigError(f"{used_by}={name!r} is not known{meant}; known are {known}. {ways}")


def import_object(path: str, *, used_by: str) -> Any:
    """Import `module:attribute`. What the module raises while it is imported is not caught.

    Raises:
        ConfigError: malformed, no such module, or no such attribute.
    """
    module_name, _, attributes = path.partition(":")
    if not module_name or not attributes:
        raise ConfigError(f"{used_by}={path!r} does not name a class; write it as module:Class")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{used_by}={path!r} cannot be loaded ({error}); check the name, and that its module can be imported"
        ) from error
    return found
