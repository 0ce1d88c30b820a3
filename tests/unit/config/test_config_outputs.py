"""Outputs that are no streams, checked at submit."""

from __future__ import annotations

import pytest

from grete.config.redact import is_secret_key, redact
from grete.config.rules.validate import check

JOB = {"job.name": "words", "app.class": "words:Words", "task.inputs": "local.in"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"outputs.lake.path": "x"}, "outputs.lake.format is not set"),
        ({"outputs.lake.format": "delta"}, "outputs.lake.path is not set"),
        ({"outputs.db.format": "JDBC", "outputs.db.url": "jdbc:x"}, "outputs.db.table is not set"),
        (
            {"outputs.lake.format": "iceberg", "outputs.lake.path": "x"},
            "does not run on 4.2; use delta, or parquet",
        ),
        ({"outputs.a b.format": "csv", "outputs.a b.path": "x"}, "an output's name has only"),
        (
            {"app.class": "", "task.class": "a:B", "outputs.a.format": "csv", "outputs.a.path": "x"},
            "only a DataFrame",
        ),
    ],
)
def test_an_output_without_what_its_format_needs_is_refused_with_the_way_out(
    settings: dict[str, str], says: str
) -> None:
    config = {key: value for key, value in {**JOB, **settings}.items() if value}
    assert [problem for problem in check(config).errors if says in problem]


def test_complete_outputs_are_accepted_and_their_passwords_are_not_shown() -> None:
    config = {
        **JOB,
        "outputs.db.format": "jdbc",
        "outputs.db.url": "jdbc:postgresql://db/shop",
        "outputs.db.table": "orders",
        "outputs.db.password": "geheimnis",
        "outputs.db.option.batchsize": "5000",
        "outputs.lake.format": "parquet",
        "outputs.lake.path": "/lake",
        "outputs.lake.partition.by": "day,hour",
    }
    report = check(config)
    assert report.errors == ()
    [plain] = [warning for warning in report.warnings if "outputs." in warning]
    assert plain.startswith("written out in plain text")
    assert is_secret_key("outputs.db.password")
    assert "geheimnis" not in str(redact(config))
