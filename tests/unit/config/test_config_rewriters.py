"""Rewriters are found by name, applied in order, each exactly once."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Mapping

import pytest

from grete.config.rewriters import EnvironmentConfigRewriter, apply_rewriters, input_regexes
from grete.errors import ConfigError
from grete.registry import load_object


class Append:
    """Appends its own name to `log`."""

    def rewrite(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        return {**config, "log": config.get("log", "") + name}


class AddRewriter:
    """Adds the class that the next rewriter needs, and lists one more, which comes too late."""

    def rewrite(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        return {
            **config,
            "job.config.rewriter.b.class": "rewriters_of_a_job:Append",
            "job.config.rewriters": "a,b,c",
        }


class Wrong:
    """Returns a number."""

    def rewrite(self, name: str, config: Mapping[str, str]) -> object:
        return {**config, "n": 3}


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = types.ModuleType("rewriters_of_a_job")
    made.__dict__.update(Append=Append, AddRewriter=AddRewriter, Wrong=Wrong)
    sys.modules[made.__name__] = made
    yield
    del sys.modules[made.__name__]


def listed(*names: str, **classes: str) -> dict[str, str]:
    config = {"job.config.rewriters": ",".join(names)}
    return config | {f"job.config.rewriter.{n}.class": f"rewriters_of_a_job:{c}" for n, c in classes.items()}


def test_rewriters_are_applied_in_the_order_in_which_they_are_listed() -> None:
    assert apply_rewriters(listed("b", " a", b="Append", a="Append"))["log"] == "ba"


def test_a_rewriter_listed_twice_is_applied_once() -> None:
    assert apply_rewriters(listed("a", "a", a="Append"))["log"] == "a"


def test_a_rewriter_sees_what_the_one_before_made() -> None:
    assert apply_rewriters(listed("a", "b", a="AddRewriter"))["log"] == "b"


def test_without_rewriters_nothing_changes() -> None:
    assert apply_rewriters({"a": "1"}) == {"a": "1"}


def test_a_rewriter_without_class_is_an_error_in_samzas_words() -> None:
    with pytest.raises(ConfigError, match=r"Unable to find class config for config rewriter a\."):
        apply_rewriters(listed("a"))


@pytest.mark.parametrize(
    "path", ["nothing", "no_such_module:X", "rewriters_of_a_job:NoSuch", "os:getcwd", ":x"]
)
def test_a_rewriter_that_cannot_be_loaded_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=r"job\.config\.rewriter\.a\.class"):
        apply_rewriters({"job.config.rewriters": "a", "job.config.rewriter.a.class": path})


def test_a_rewriter_must_return_strings() -> None:
    with pytest.raises(ConfigError, match=r"n$"):
        apply_rewriters(listed("a", a="Wrong"))


def test_samzas_class_name_means_the_environment_rewriter() -> None:
    config = {
        "job.config.rewriters": "env",
        "job.config.rewriter.env.class": "org.apache.samza.config.EnvironmentConfigRewriter",
    }
    assert apply_rewriters(config, environment={"SAMZA_JOB_ID": "7"})["job.id"] == "7"


def test_a_variable_cannot_reach_a_key_in_mixed_case() -> None:
    with pytest.raises(ConfigError, match=r"mixed case: foo\.Bar"):
        EnvironmentConfigRewriter({"SAMZA_FOO_BAR": "x"}).rewrite("env", {"foo.Bar": "y"})


REGEX = {
    "job.config.rewriters": "in",
    "job.config.rewriter.in.class": "org.apache.samza.config.RegExTopicGenerator",
    "job.config.rewriter.in.system": "local",
    "job.config.rewriter.in.regex": "flights.*",
    "job.config.rewriter.in.config.samza.offset.default": "oldest",
}


def test_every_stream_that_matches_as_a_whole_becomes_an_input() -> None:
    config = {
        **REGEX,
        "task.inputs": "local.x",
        "systems.local.streams.flights-1.samza.offset.default": "newest",
    }
    result = apply_rewriters(config, list_streams=lambda system, _: ["flights-1", "flights-2", "my-flights"])
    assert result["task.inputs"] == "local.flights-1,local.flights-2,local.x"
    assert result["systems.local.streams.flights-1.samza.offset.default"] == "newest"
    assert result["systems.local.streams.flights-2.samza.offset.default"] == "oldest"


@pytest.mark.parametrize(
    ("regex", "chosen"), [(".*", "local.in"), ("__samza_(j|k)_1_logs", "local.__samza_k_1_logs")]
)
def test_a_regex_chooses_what_jobs_remember_only_when_it_says_so(regex: str, chosen: str) -> None:
    config = {**REGEX, "job.config.rewriter.in.regex": regex, "task.log4j.system": "local"}
    names = ["in", "__grete_fences", "__samza_coordinator_j_1", "__samza_k_1_logs"]
    assert apply_rewriters(config, list_streams=lambda system, _: names)["task.inputs"] == chosen
    [found] = input_regexes(config)
    assert [f"local.{name}" for name in names if found.chooses(name)] == [chosen]


def test_a_regex_rewriter_needs_its_regex_and_someone_who_lists_streams() -> None:
    with pytest.raises(ConfigError, match="list streams"):
        apply_rewriters(REGEX)
    without = {k: v for k, v in REGEX.items() if not k.endswith(".regex")}
    with pytest.raises(ConfigError, match=r"No job\.config\.rewriter\.in\.regex defined"):
        apply_rewriters(without, list_streams=lambda system, _: [])


def test_a_plugin_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"known are a, b\."):
        load_object("grete.none", "os:getcwd", built_in={"a": "m:A", "b": "m:B"}, used_by="k")
