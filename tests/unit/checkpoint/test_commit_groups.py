"""How many transactions commit a batch, as far as the configuration says."""

from __future__ import annotations

import os

import pytest

from grete.config.settings import Settings
from grete.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        ({}, os.cpu_count()),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3, 4]"}, 3),
        ({"spark.master": "local[*,4]"}, os.cpu_count()),
        ({"spark.master": "spark://host:7077", "spark.cores.max": "12"}, 12),
        ({"spark.master": "yarn", "spark.executor.cores": "4", "spark.executor.instances": "3"}, 12),
        ({"spark.master": "yarn"}, 4),
        ({"spark.master": "local[3]", "task.commit.groups": "7"}, 7),
    ],
)
def test_as_many_as_the_container_has_cores_unless_the_key_says_it(
    config: dict[str, str], groups: int
) -> None:
    assert Settings.of(config).task.commit_groups == groups


@pytest.mark.parametrize("given", ["0", "-1", "two", ""])
def test_none_at_all_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"task\.commit\.groups"):
        _ = Settings.of({"task.commit.groups": given}).task.commit_groups
