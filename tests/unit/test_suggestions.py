"""Names that are not there: the nearest one that is, in every error that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.rewound_job import three_batches

from grete.cli.main import COMMANDS, main
from grete.clock import SystemClock
from grete.config.rules.validate import check, validate
from grete.errors import ConfigError, StreamNotFound
from grete.metadata.job_index import claim_stream
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.suggestions import did_you_mean, nearest, or_one_of
from grete.systems.local.system import LocalSystem
from grete.testing.job import JobUnderTest

GOOD = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in"}


def test_the_nearest_name_is_found_whatever_its_case_and_none_is_made_up() -> None:
    known = ["status", "stop", "stream"]
    assert nearest("STATSU", known) == "status"
    assert nearest("zebra", known) is None
    assert did_you_mean("statsu", known) == "; did you mean status?"
    assert did_you_mean("status", known) == "", "what is there was meant"
    assert did_you_mean("zebra", known) == did_you_mean("x", []) == ""


def test_what_there_is_is_named_where_nothing_is_near() -> None:
    tasks = [f"Partition {number}" for number in range(12)]
    assert or_one_of("partiton 3", tasks) == "; did you mean Partition 3?"
    assert or_one_of("Partition 70", tasks).endswith("Partition 7 and 2 more"), "another number is no slip"
    assert or_one_of("7", ["0", "1"]) == "; it has 0, 1"
    assert or_one_of("7", []) == "; it has none"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("statsu", "there is no command 'statsu'; did you mean status?"),
        ("zebra", "there is no command 'zebra'; grete --help lists them"),
        ("checkpoint-tol.sh", "did you mean checkpoint-tool.sh?"),
        ("zebra.sh", "there is no command 'zebra.sh'; grete --help lists them"),
        ("stream dmup", "there is no command 'dmup'; did you mean dump?"),
        ("leader zebra", "there is no command 'zebra'; there are "),
        ("status -o jsn", "did you mean json?"),
        ("package build aplication", "did you mean application?"),
        ("run --untill-drained", "did you mean --until-drained?"),
        ("config set --reson=x a b", "did you mean --reason?"),
    ],
)
def test_words_of_the_command_line_are_suggested(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(words.split())
    except SystemExit as end:
        code = end.code
    assert code == 2
    said = capsys.readouterr().err
    assert meant in said
    assert len(said.splitlines()[-1]) < 120, "no list of all that there are"


@pytest.mark.parametrize("command", [command for command in COMMANDS if len(command) > 2])
def test_each_command_is_suggested_for_a_slip_in_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command[:-1] + "#"])
    assert end.value.code == 2
    assert f"did you mean {command}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        ("config get --job test task.imputs", 2, "did you mean task.inputs?"),
        ("config set --job test task.imputs local.x", 2, "did you mean task.inputs?"),
        ("checkpoint rewind --job test --task partition1 --to oldest", 1, "did you mean Partition 1?"),
        ("startpoint set --job test --ssp local.ni.0 --to oldest", 1, "did you mean local.in.0?"),
        ("stream dump local.inn", 1, "did you mean in?"),
        ("stream tail loacl.in", 1, "did you mean local?"),
    ],
)
def test_names_of_what_a_home_has_are_suggested(
    words: str, code: int, meant: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with three_batches(home):
        assert main(words.split()) == code
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("words", ["status", "job delete", "run", "logs", "config history"])
@pytest.mark.parametrize("slip", ["ordres", "Orders", "order"])
def test_a_job_is_suggested(words: str, slip: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"job.name": "orders", "task.inputs": "local.in"}
    with open_job(JobId("orders"), must_exist=False) as handle:
        claim_stream(handle.coordinator_log._file, JobId("orders"))  # type: ignore[attr-defined] # as `grete run` does
        handle.stream.write_config(config, run_id="run-1")
    assert main([*words.split(), "--job", slip]) == 1
    assert f"there is no job {slip} in {home}; did you mean orders?" in capsys.readouterr().err


def test_a_field_of_a_line_is_suggested(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = home / "lines"
    lines.write_text('{"sensor": "a", "celsius": 3}\n')
    assert main(["stream", "create", "local.in"]) == 0
    words = ["stream", "append", "local.in", "--key-field", "sensr", "--from-file", str(lines)]
    assert main(words) == 2
    assert "did you mean sensor?" in capsys.readouterr().err


def test_a_stream_that_is_not_there_is_suggested_to_programs_as_well(tmp_path: Path) -> None:
    system = LocalSystem(tmp_path, SystemClock())
    system.create_stream(StreamSpec("orders", 1))
    with pytest.raises(StreamNotFound, match=r"did you mean orders\?"):
        system.partition_count("order")
    system.close()


def test_a_store_that_is_not_there_is_suggested() -> None:
    def read(envelope: object, collector: object, coordinator: object) -> None: ...

    config = {"task.inputs": "local.in", "stores.counts.factory": "grete.store.sqlite"}
    with JobUnderTest(read, config) as job, pytest.raises(ConfigError, match=r"did you mean counts\?"):
        job.store("count", "Partition 0")


@pytest.mark.parametrize(
    ("slip", "missing", "meant"),
    [
        ("task.imputs", "task.inputs", "task.inputs"),
        ("taks.inputs", "task.inputs", "task.inputs"),
        ("job.nmae", "job.name", "job.name"),
        ("jobs.name", "job.name", "job.name"),
        ("task.clas", "task.class", "task.class"),
    ],
)
def test_a_key_that_is_not_known_is_named_where_a_required_one_is_missing(
    slip: str, missing: str, meant: str
) -> None:
    config = {key: value for key, value in GOOD.items() if key != missing} | {slip: GOOD[missing]}
    with pytest.raises(ConfigError) as refused:
        validate(config)
    assert f"{slip} is not a known key; did you mean {meant}?" in refused.value.problems


@pytest.mark.parametrize("key", ["tenants.name", "task-force.size", "myapp.inputs", "taxes.inputs"])
def test_sections_of_an_applications_own_are_no_slips(key: str) -> None:
    assert not [one for one in check({**GOOD, key: "x"}).warnings if key in one]


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("task.inputs", "loacl.in", "did you mean local?"),
        ("job.launcher", "proces", "did you mean process?"),
        ("streams.in.samza.msg.serde", "strin", "did you mean string?"),
        ("systems.k.samza.factory", "kafak", "did you mean kafka?"),
        ("stores.s.factory", "grete.store.sqlit", "did you mean grete.store.sqlite?"),
        ("task.log4j.system", "loacl", "did you mean local?"),
    ],
)
def test_values_that_name_something_are_suggested(key: str, value: str, meant: str) -> None:
    assert [one for one in check({**GOOD, key: value}).errors if meant in one]
