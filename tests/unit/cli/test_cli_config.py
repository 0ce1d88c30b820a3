"""Looking at and changing the configuration of a job from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.finished_job import CONFIG, GROUPER, Output, config, config_file, opened

from grete.cli.main import main
from grete.config.rules.validate import validate
from grete.keyed_log.base import Entry
from grete.metadata.assignments import TaskAssignments
from grete.metadata.config_in_force import ConfigInForce
from grete.operations import JobHandle
from grete.operations.configuration import roll_back_config, set_config


def test_config_get_masks_secrets_but_shows_references_to_them(job: Path, capsys: Output) -> None:
    assert main(["config", "get"]) == 0
    shown = capsys.readouterr().out
    assert "shop.password=********" in shown
    assert "shop.token=${env:SHOP_TOKEN}" in shown
    assert "hunter2" not in shown
    assert main(["config", "get", "shop.password", "--show-secrets"]) == 0
    assert capsys.readouterr().out == "hunter2hunter2\n"


def test_config_get_of_a_key_that_is_not_set_says_its_default(job: Path, capsys: Output) -> None:
    assert main(["config", "get", "job.id"]) == 2
    assert capsys.readouterr().err == "grete: job.id is not set; its default is '1'\n"


def test_config_set_changes_keys_together_and_says_what_that_touches(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "job.container.count=2", "shop.name=a=b", "--reason", "more"]) == 0
    assert "job.container.count: (not set) -> 2  (restart-query)" in capsys.readouterr().out
    assert (config()["job.container.count"], config()["shop.name"]) == ("2", "a=b")
    assert main(["config", "history", "-o", "json"]) == 0
    generations = json.loads(capsys.readouterr().out)
    assert [g["reason"] for g in generations] == ["first", "more"]
    assert len(generations[-1]["changes"]) == 2


def test_what_a_change_touches_is_the_changes_own_matter_and_not_its_keys(job: Path, capsys: Output) -> None:
    """A default that is written out and a key that grete only knows of change nothing that runs."""
    written_out = f"job.systemstreampartition.grouper.factory={GROUPER}"
    assert (
        main(["config", "set", written_out, "cluster-manager.allocator.sleep.ms=2048", "task.window.ms=7"])
        == 0
    )
    touches = {line.split(":")[0]: line.rsplit("(")[-1] for line in _changed(capsys)}
    assert touches == {
        "job.systemstreampartition.grouper.factory": "live)",
        "cluster-manager.allocator.sleep.ms": "live)",
        "task.window.ms": "restart-query)",
    }


def _changed(capsys: Output) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "->" in line]


def test_two_who_set_different_keys_at_the_same_moment_both_get_what_they_set(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as one, opened() as other:

        def validate_while_the_other_writes(new: dict[str, str]) -> None:
            monkeypatch.setattr("grete.operations.configuration.validate", validate)
            set_config(other, {"task.window.ms": "70"}, reason="theirs")

        monkeypatch.setattr("grete.operations.configuration.validate", validate_while_the_other_writes)
        set_config(one, {"task.commit.ms": "5000", "shop.token": None}, reason="ours")
    assert config()["task.window.ms"] == "70"
    assert config()["task.commit.ms"] == "5000"
    assert "shop.token" not in config()


def test_config_unset_removes_keys(job: Path) -> None:
    assert main(["config", "unset", "shop.token", "shop.password"]) == 0
    assert "shop.token" not in config()
    assert "shop.password" not in config()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("job.container.cuont", "2"), "did you mean job.container.count?"),
        (("job.container.count", "two"), "whole number"),
        (("stores.totals.factory", "other"), "factory"),
        ((" ", "2"), "blank"),
    ],
)
def test_a_change_that_is_wrong_is_refused_with_the_reason(
    job: Path, capsys: Output, words: tuple[str, str], reason: str
) -> None:
    before = config()
    assert main(["config", "set", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("grete: ")
    assert reason in error
    assert config() == before


@pytest.mark.parametrize(
    ("words", "lacking"),
    [
        (("job.container.count",), "'job.container.count' has no value; "),
        (("shop.password", "correct", "horse"), ""),
        (("=2",), ""),
        (("a=1", "b"), ""),
    ],
)
def test_config_set_shows_how_keys_and_values_are_written(
    job: Path, capsys: Output, words: tuple[str, ...], lacking: str
) -> None:
    assert main(["config", "set", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        f"grete: {lacking}write `grete config set KEY VALUE`, or `grete config set KEY=VALUE`"
    )
    assert "horse" not in error, "it may be a secret"


def test_what_another_program_changed_of_the_state_is_taken_back_without_force(
    job: Path, capsys: Output
) -> None:
    """The configuration that the job has run with counts, not the one in the stream."""
    moved = "stores.totals.changelog"
    with opened() as handle:
        TaskAssignments(handle.stream).write(ConfigInForce(handle.stream).records(CONFIG))
        handle.stream.write_config({**CONFIG, moved: "local.other"}, run_id="run-1", reason="by hand")
    assert main(["config", "set", moved, "local.third"]) == 2
    assert "can not change from unset to 'local.third'" in capsys.readouterr().err
    assert main(["config", "set", "task.commit.ms", "5000"]) == 0
    assert main(["config", "unset", moved]) == 0
    assert moved not in config()
    with opened() as handle:
        assert ConfigInForce(handle.stream).refusals(handle.config()) == []


def test_a_change_to_what_is_set_already_is_no_generation(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "task.commit.ms", "5000"]) == 0
    for _ in range(2):
        assert main(["config", "set", "task.commit.ms", "5000"]) == 0
        assert main(["config", "unset", "no.key.of.mine"]) == 0
    with opened() as handle:
        assert len(handle.config_generations()) == 2
    assert main(["config", "rollback"]) == 0
    assert "task.commit.ms" not in config()


def test_a_rollback_passes_over_generations_that_changed_nothing(job: Path) -> None:
    with opened() as handle:
        set_config(handle, {"task.commit.ms": "5000"}, reason="")
        handle.stream.write_config(handle.config(), run_id="run-2")  # the same file was submitted again
        roll_back_config(handle, None)
        assert handle.config() == CONFIG


def test_a_rollback_passes_over_what_is_not_valid(job: Path) -> None:
    with opened() as handle:
        set_config(handle, {"task.commit.ms": "5000"}, reason="")
        handle.stream.write_config({**handle.config(), "job.container.count": "0"}, run_id="run-2")
        handle.stream.write_config({**handle.config(), "job.container.count": "1"}, run_id="run-3")
        roll_back_config(handle, None)
        assert handle.config() == {**CONFIG, "task.commit.ms": "5000"}


def test_a_rollback_that_has_nothing_to_go_back_to_is_refused(job: Path, capsys: Output) -> None:
    assert main(["config", "rollback"]) == 2
    assert "there is nothing to roll back" in capsys.readouterr().err
    with opened() as handle:
        (only,) = handle.config_generations()
    assert main(["config", "rollback", "--to", str(only.number)]) == 2
    assert f"the configuration is that of generation {only.number}" in capsys.readouterr().err


def test_a_rollback_to_what_compaction_has_left_is_refused_with_the_reason(job: Path, capsys: Output) -> None:
    """The limit of the first configuration is gone; without it the rest would be valid, and was never in force."""
    with opened() as handle:
        set_config(handle, {"task.max.records.per.batch": "100"}, reason="")
        set_config(handle, {"task.max.records.per.batch": "5000"}, reason="")
        handle.coordinator_log.compact()
    before = config()
    assert main(["config", "rollback"]) == 2
    assert "may miss keys: the coordinator stream was compacted since" in capsys.readouterr().err
    assert config() == before
    assert main(["config", "history"]) == 0
    assert "what is left of it" in capsys.readouterr().out


def by_another_program(handle: JobHandle, key: str, value: str, *, at_ms: int, version: int = 1) -> None:
    """As Samza's CoordinatorStreamWriter writes it."""
    written = {
        "host": "10.0.0.9",
        "source": "samza-tool",
        "values": {"value": value},
        "username": "samza",
        "timestamp": at_ms,
    }
    name = json.dumps([version, "set-config", key]).encode()
    handle.coordinator_log.append([Entry(name, json.dumps(written).encode())])


def test_each_change_of_another_program_stands_in_its_own_name(job: Path, capsys: Output) -> None:
    with opened() as handle:
        by_another_program(handle, "cluster-manager.container.retry.count", "77", at_ms=1_000_000)
        by_another_program(handle, "cluster-manager.container.retry.window.ms", "78", at_ms=1_000_001)
        by_another_program(handle, "my.other", "1", at_ms=2_000_000)
        by_another_program(handle, "my.of.version.two", "1", at_ms=2_000_001, version=2)
        set_config(handle, {"my.mine": "1"}, reason="mine only")
    assert main(["config", "history", "-o", "json"]) == 0
    _, retries, other, mine = json.loads(capsys.readouterr().out)
    assert (retries["who"], retries["source"]) == ("samza@10.0.0.9", "samza-tool")
    assert [change["key"].rpartition(".")[2] for change in retries["changes"]] == ["count", "ms"]
    assert [change["key"] for change in other["changes"]] == ["my.other"]
    assert (mine["reason"], [change["key"] for change in mine["changes"]]) == ("mine only", ["my.mine"])
    assert main(["config", "rollback", "--to", str(retries["number"])]) == 0
    left = {key for key in config() if key not in CONFIG}
    assert left == {"cluster-manager.container.retry.count", "cluster-manager.container.retry.window.ms"}


@pytest.mark.parametrize("key", ["job.container.cuont", "outputs.table.formt", "stores.counts.key.sirde"])
def test_what_no_section_of_ours_knows_is_not_written(job: Path, capsys: Output, key: str) -> None:
    before = config()
    assert main(["config", "set", key, "2"]) == 2
    assert f"{key} is not a known key" in capsys.readouterr().err
    assert config() == before


def test_force_writes_what_is_not_known(job: Path) -> None:
    assert main(["config", "set", "job.container.cuont", "2", "--force"]) == 0
    assert config()["job.container.cuont"] == "2"


def test_a_secret_written_out_is_written_with_a_warning(job: Path, capsys: Output) -> None:
    assert main(["config", "set", "other.password", "correct-horse"]) == 0
    shown = capsys.readouterr()
    assert "${env:NAME}" in shown.err
    assert "correct-horse" not in shown.err + shown.out


def test_config_diff_shows_what_submitting_a_file_would_change(job: Path, capsys: Output) -> None:
    file = config_file(job, **{"job.container.count": "2"})
    assert main(["config", "diff", file, "-o", "json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)
    assert (change["key"], change["old"], change["new"]) == ("job.container.count", None, "2")
