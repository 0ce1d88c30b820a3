"""An application's view of its configuration: secrets, where the configuration has references to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import cloudpickle

from grete import StreamTask
from grete.application.resolved_config import ResolvedConfig
from grete.config.application_config import ApplicationConfig
from grete.diagnostics.streams import redactor_of
from grete.errors import ConfigError
from grete.testing.job import JobUnderTest


class Asking(StreamTask):
    """Sends what its configuration says."""

    def init(self, context):  # type: ignore[no-untyped-def]
        self.config = context.config

    def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        collector.send("local.out", self.config.get(envelope.message, "nothing"))


def test_a_task_finds_the_secrets_that_its_keys_refer_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    monkeypatch.setenv("GRETE_TEST_PASSWORD", "hunter2hunter2")
    config = {
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "systems.local.samza.msg.serde": "string",
        "shop.password": "${env:GRETE_TEST_PASSWORD}",
        "shop.url": f"https://ann:${{file:{tmp_path / 'token'}}}@shop",
        "shop.name": "plain",
    }
    with JobUnderTest(Asking, config) as job:
        for key in ("shop.password", "shop.url", "shop.name", "shop.nothing"):
            job.send("local.in", key)
        job.run()
        assert job.messages("local.out") == [
            "hunter2hunter2", "https://ann:from-a-file@shop", "plain", "nothing",
        ]  # fmt: skip
        assert job.coordinator_stream().config()["shop.password"] == "${env:GRETE_TEST_PASSWORD}"


def test_a_file_that_is_rotated_is_read_again(tmp_path: Path) -> None:
    config = ApplicationConfig({"my.token": f"${{file:{tmp_path / 'token'}}}"})
    for token in ("first", "second"):
        (tmp_path / "token").write_text(token)
        assert config["my.token"] == token


def test_a_reference_to_nothing_names_the_key_when_it_is_asked_for() -> None:
    config = ApplicationConfig({"my.token": "${env:GRETE_NOT_SET}", "my.name": "x"})
    assert (config["my.name"], "my.token" in config, len(config)) == ("x", True, 2)
    with pytest.raises(ConfigError, match=r"my\.token: cannot resolve \$\{env:GRETE_NOT_SET\}"):
        config["my.token"]
    with pytest.raises(KeyError):
        config["my.other"]


def test_how_to_get_into_brokers_is_not_the_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRETE_TEST_PASSWORD", "hunter2hunter2")
    keys = ("systems.kafka.producer.sasl.jaas.config", "spark.hadoop.password", "task.class")
    config = ApplicationConfig(dict.fromkeys(keys, "${env:GRETE_TEST_PASSWORD}"))
    assert set(config.values()) == {"${env:GRETE_TEST_PASSWORD}"}


def test_a_configuration_does_not_show_its_secrets_and_logs_know_what_references_stand_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRETE_TEST_PASSWORD", "hunter2hunter2")
    config = {"shop.place": "${env:GRETE_TEST_PASSWORD}", "shop.password": "plainplain"}
    shown = repr(ApplicationConfig(config))
    assert "hunter2" not in shown
    assert "plainplain" not in shown
    assert "hunter2" not in redactor_of(config).everything("it said hunter2hunter2")


def test_a_function_that_is_sent_elsewhere_may_have_it_and_not_the_one_of_an_application_apart() -> None:
    sent = cloudpickle.loads(cloudpickle.dumps(ApplicationConfig({"words.one": "1"})))
    assert dict(sent) == {"words.one": "1"}
    with pytest.raises(TypeError, match="let `build` read the values that a function needs"):
        cloudpickle.dumps(ResolvedConfig({"words.one": "1"}, lambda key, value: value))
