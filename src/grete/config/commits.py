"""What a configuration says of transactions on systems that have them."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.key import Key
from grete.config.key_tables.task import COMMIT_GROUPS, TRANSACTION_TIMEOUT
from grete.errors import ConfigError


def commit_groups(config: Mapping[str, str]) -> int:
    """How many transactions commit a container's batch.

    Raises:
        ConfigError: not a number of one or more.
    """
    return _number(config, COMMIT_GROUPS)


def transaction_timeout_s(config: Mapping[str, str]) -> float:
    """How long a transaction may take before the brokers abort it.

    Raises:
        ConfigError: not a number of one or more.
    """
    return _number(config, TRANSACTION_TIMEOUT) / 1000


def _number(config: Mapping[str, str], key: Key[int]) -> int:
    text = config.get(key.name, key.default or "")
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"{key.name}={text!r} must be a whole number of one or more")
    return number
