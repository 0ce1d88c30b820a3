"""Invariants of every configuration: nothing is lost in a file, in a diff, or between null and empty."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from grete.config.derived import canonical_keys
from grete.config.java_values import double_text, parse_double
from grete.config.keys import KEYS
from grete.config.properties import format_properties, parse_properties
from grete.config.redact import redact
from grete.config.rules.changes import diff
from grete.config.rules.validate import check
from grete.config.structured import parse_toml, parse_yaml
from grete.errors import ConfigError
from grete_workbench.vectors.map_config import MapConfig

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
anything = st.text(st.sampled_from("ab \t\f=:\\\\#!u0041n\n\ré\"'{}[],&*-<>|%@"), max_size=40)
some_key = st.sampled_from([k.name.replace("%s", "x") for k in KEYS]) | texts
configs = st.dictionaries(some_key, texts, max_size=8)


@given(configs)
def test_properties_that_are_written_are_read_back(config: dict[str, str]) -> None:
    text = format_properties(config)
    assert text.isascii()
    assert parse_properties(text, origin="file") == config


@given(anything)
def test_any_text_is_properties_unless_an_escape_is_malformed(text: str) -> None:
    if "\\u" in text:
        with suppress(ConfigError):
            parse_properties(text, origin="file")
    else:
        parse_properties(text, origin="file")


@given(anything)
def test_any_text_is_yaml_and_toml_or_a_config_error(text: str) -> None:
    for parse in (parse_yaml, parse_toml):
        try:
            result = parse(text, origin="file")
        except ConfigError:
            continue
        assert all(isinstance(k, str) and isinstance(v, str) for k, v in result.items())


@given(st.dictionaries(texts, st.none() | texts, max_size=8))
def test_null_is_missing_and_empty_is_a_value(layer: dict[str, str | None]) -> None:
    assert dict(MapConfig(layer)) == {k: v for k, v in layer.items() if v is not None}


@given(configs, configs)
def test_a_diff_applied_to_the_old_gives_the_new(old: dict[str, str], new: dict[str, str]) -> None:
    changes = diff(old, new)
    applied = {**old, **{change.key: change.new for change in changes}}
    assert {key: value for key, value in applied.items() if value is not None} == new
    assert all(old.get(change.key) == change.old for change in changes)
    assert {change.key for change in changes} == {k for k in {*old, *new} if old.get(k) != new.get(k)}


@example({"task.poison.dead-letter.stream": "0"})
@example({"task.inputs": "."})
@example({"stores.a.changelog": "."})
@given(configs)
def test_any_configuration_is_checked_redacted_and_put_into_current_words(config: dict[str, str]) -> None:
    assert check(config).errors
    assert redact(config).keys() == config.keys()
    words = canonical_keys(config)
    assert words.items() >= {k: v for k, v in config.items() if k != "job.container.count"}.items()
    assert canonical_keys(words) == words


@given(st.floats(allow_nan=False))
def test_a_double_survives_its_text(value: float) -> None:
    assert parse_double(double_text(value)) == value
