"""From a name to an object: plug-ins by name, application classes by `module:Class`.

A plug-in is a Python entry point of a group such as `grete.rewriters`, or built in. Nothing else that a configuration
names is imported, except where it names a class of the application itself and the caller says so (RELIABILITY 19).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from grete.errors import ConfigError


@cache
def known_plugins(group: str) -> Mapping[str, str]:
    """`module:attribute` of each plug-in of a group that was installed when this process first asked, by name.

    Remembered, since looking costs 5 ms and a running coordinator validates at every change of its configuration.
    """
    from importlib.metadata import entry_points  # 20 modules, which most commands do without

    return {point.name: point.value for point in sorted(entry_points(group=group))}


def load_object(
    group: str,
    name: str,
    *,
    built_in: Mapping[str, str] | None = None,
    accepts_classes: bool = False,
    used_by: str,
) -> Any:
    """The object called `name`: built in, else an installed plug-in of `group`, else `module:Class` where accepted.

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
    if accepts_classes and ":" in name:
        return import_object(name, used_by=used_by)
    known = ", ".join(sorted({*own, *plugins})) or "none"
    ways = "; a class of the application is named module:Class" if accepts_classes else ""
    raise ConfigError(
        f"{used_by}={name!r} is not known; known are {known}{ways}. "
        f"A plug-in is installed as an entry point of the group {group!r}"
    )


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
