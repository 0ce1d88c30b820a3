"""Where lineages of pipelines are: in a folder, or at an address that Hadoop's classes know."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config.paths import absolute_paths
from grete.config.settings import Settings
from grete.model.ids import JobId

HOME = Path("/home/of/grete")


def place(named: str | None) -> Path | str:
    config = {} if named is None else {"job.lineage.dir": named}
    return Settings.of(absolute_paths(config, Path("/typed/here"))).job.lineage_place(JobId("words"), HOME)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, HOME / "jobs/words-1"),
        ("/mnt/shared", Path("/mnt/shared/words-1")),
        ("shared", Path("/typed/here/shared/words-1")),
        ("file:///mnt/shared%20folder", Path("/mnt/shared folder/words-1")),
        ("file:/mnt/shared", Path("/mnt/shared/words-1")),
        ("hdfs://names:8020/lineages/", "hdfs://names:8020/lineages/words-1"),
        ("hdfs:///lineages", "hdfs:///lineages/words-1"),
        ("s3a://bucket/lineages", "s3a://bucket/lineages/words-1"),
    ],
)
def test_a_folder_of_this_machine_is_a_path_and_an_address_of_hadoops_a_text(
    named: str | None, expected: Path | str
) -> None:
    assert place(named) == expected
    assert Settings.of({"job.lineage.dir": named or ""}).job.has_lineages_on_hadoop is isinstance(
        expected, str
    )
