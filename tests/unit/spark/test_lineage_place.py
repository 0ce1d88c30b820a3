"""Where files of Spark's are: lineages of pipelines, and checkpoint locations. In a folder, or at an address that
Hadoop's classes know.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config.paths import absolute_paths
from grete.config.places import place_of
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
        ("at 12:30/lineages", Path("/typed/here/at 12:30/lineages/words-1")),
        ("file://names/lineages", "file://names/lineages/words-1"),
    ],
)
def test_a_folder_of_this_machine_is_a_path_and_an_address_of_hadoops_a_text(
    named: str | None, expected: Path | str
) -> None:
    assert place(named) == expected
    assert Settings.of({"job.lineage.dir": named or ""}).job.has_lineages_on_hadoop is isinstance(
        expected, str
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("query", Path("query")),
        ("backup:of/query", Path("backup:of/query")),
        ("file:query", Path("query")),
        ("file:/data/query#1", Path("/data/query#1")),
        ("file://localhost/data/query", Path("/data/query")),
        ("FILE:///data/a%20query", Path("/data/a query")),
        ("file://other/data/query", "file://other/data/query"),
        ("hdfs:/data/query", "hdfs:/data/query"),
        ("HDFS://names/data/query//", "HDFS://names/data/query"),
        ("viewfs:///data/query", "viewfs:///data/query"),
        ("s3a://bucket/a%20query", "s3a://bucket/a%20query"),
        ("hdfs://[::1/query", "hdfs://[::1/query"),
    ],
)
def test_a_place_is_on_this_machine_or_has_an_address(written: str, expected: Path | str) -> None:
    assert place_of(written) == expected
