"""Configurations come from .properties, YAML and TOML, and say file and line when they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config.load import config_path, load, load_file, parse_overrides
from grete.config.settings import Settings
from grete.errors import ConfigError


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_file(path)
    return str(caught.value)


def test_yaml_scalars_stay_as_they_are_written(tmp_path: Path) -> None:
    text = "job:\n  name: flights\nv: 1.10\no: 010\ny: yes\nt: True\nd: 2020-01-01\n"
    text += "n: ~\ne: ''\nl: [a, 1]\nq: 'null'\n"
    assert load_file(written(tmp_path, "job.yaml", text)) == {
        "job.name": "flights",
        "v": "1.10",
        "o": "010",
        "y": "yes",
        "t": "true",
        "d": "2020-01-01",
        "e": "",
        "l": "a,1",
        "q": "null",
    }


def test_toml_is_flattened_like_yaml(tmp_path: Path) -> None:
    text = 'v = 1.10\nb = true\nl = [1, "a"]\n[job]\nname = "flights"\nbig = 1_000\n'
    assert load_file(written(tmp_path, "job.toml", text)) == {
        "v": "1.10",
        "b": "true",
        "l": "1,a",
        "job.name": "flights",
        "job.big": "1000",
    }


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "a: 1\nb: x\na: 2\n", "line 3: a is given twice"),
        ("a.yaml", "a: {b: 1}\na.b: 2\n", "line 2: a.b is given twice"),
        ("a.yaml", "a: b: c\n", "line 1"),
        ("a.yaml", "- a\n", "line 1: a configuration maps names to values"),
        ("a.yaml", "a:\n  - b: 1\n", "line 2: a is neither a scalar nor a list of scalars"),
        ("a.yaml", "a: ['b,c']\n", "line 1: an item of the list a holds a comma"),
        ("a.yaml", "x: !!python/object/apply:os.system [ls]\n", "line 1: x has the tag"),
        ("a.yaml", "<<: {a: 1}\n", "line 1: a name is plain text"),
        ("a.yaml", "a: \xe9".encode("latin-1"), "line 1: not UTF-8 text"),
        ("a.yaml", "[" * 100_000, "line 1: nested more than 100 deep"),
        ("a.yaml", "a: &x {b: *x}\n", "contains itself"),
        ("a.toml", "a = 1\na = 2\n", "line 2"),
        ("a.toml", "a = [{b = 1}]\n", "a is a list of lists or tables"),
        ("a.toml", ".".join("a" * 5000) + " = 1\n", "is not TOML"),
        ("a.properties", "x=1\n\nk=\\u12\n", "line 3: Malformed"),
        ("a.ini", "a=1", "must end in .properties, .yaml, .yml, .toml"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str | bytes, says: str
) -> None:
    assert says in refusal(written(tmp_path, name, text))


def test_an_alias_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    levels = [f"a0: &a0 {{{', '.join(f'k{i}: v' for i in range(10))}}}"]
    levels += [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(10))}}}" for n in range(1, 7)]
    assert "more than 1000000 names" in refusal(written(tmp_path, "a.yaml", "\n".join(levels)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none.yaml") in refusal(tmp_path / "none.yaml")


def test_properties_are_utf_8_when_they_can_be_and_latin_1_otherwise(tmp_path: Path) -> None:
    assert load_file(written(tmp_path, "a.properties", "k=é\n"))["k"] == "é"
    assert load_file(written(tmp_path, "b.properties", "k=é\n".encode("latin-1")))["k"] == "é"
    assert load_file(written(tmp_path, "c.properties", "k=\\u00e9\n"))["k"] == "é"


def test_file_urls_and_paths_name_the_same_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a b.properties", "k=v\n")
    assert config_path(path.as_uri()) == config_path(str(path)) == path
    assert config_path(f"file:{path}") == path
    with pytest.raises(ConfigError, match="file:///path"):
        config_path("https://example.org/a.properties")


def test_later_files_win_over_earlier_ones_and_overrides_over_both(tmp_path: Path) -> None:
    first = written(tmp_path, "a.properties", "a=1\nb=1\nc=1\n")
    second = written(tmp_path, "b.yaml", "b: 2\nc: 2\n")
    overrides = parse_overrides(["c=3", "d=x=y", "e="])
    assert load([str(first), str(second)], overrides) == {"a": "1", "b": "2", "c": "3", "d": "x=y", "e": ""}


def test_every_malformed_override_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_overrides(["a=1", "b", "=c"])
    assert len(caught.value.problems) == 2


def test_an_application_path_is_relative_to_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.properties", "job.application.path=src\n")
    assert load_file(path)["job.application.path"] == str(tmp_path.resolve() / "src")


def test_a_later_file_takes_the_application_path_back_with_an_empty_one(tmp_path: Path) -> None:
    files = [written(tmp_path, "a.properties", "job.application.path=src\n")]
    files.append(written(tmp_path, "b.properties", "job.application.path=\n"))
    loaded = load([str(file) for file in files], {})
    assert Settings.of(loaded).job.application_path is None


def test_ten_thousand_keys_and_five_megabytes_survive(tmp_path: Path) -> None:
    config = {f"my.key{i}": "v" * 520 for i in range(10_000)}
    lines = "".join(f"{key}={value}\n" for key, value in config.items())
    assert load_file(written(tmp_path, "a.properties", lines)) == config
    assert load_file(written(tmp_path, "a.yaml", lines.replace("=", ": "))) == config
