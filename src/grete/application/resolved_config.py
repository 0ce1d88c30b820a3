"""A configuration as an application sees it, on either side of the pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class ResolvedConfig(Mapping[str, str]):
    """A configuration whose values are what `resolve` makes of a key and of what is written there, at each access.

    So a rotated secret is seen by the next access, and nothing but the application holds the value.
    """

    __slots__ = ("_config", "_resolve")

    def __init__(self, config: Mapping[str, str], resolve: Callable[[str, str], str]) -> None:
        self._config = config
        self._resolve = resolve

    def __getitem__(self, key: str) -> str:
        """The value.

        Raises:
            KeyError: it is not set.
            ConfigError: it refers to nothing that can be read; names the key, never a secret.
        """
        return self._resolve(key, self._config[key])

    def __contains__(self, key: object) -> bool:
        return key in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def __reduce__(self) -> tuple[Any, ...]:
        """A function that is sent elsewhere finds nobody there who resolves.

        Raises:
            TypeError: always, here.
        """
        raise TypeError(
            "the configuration stays in the application's process: let `build` read the values that a function "
            "needs, and the function use those"
        )

    def __repr__(self) -> str:
        return f"a configuration of {len(self)} keys"
