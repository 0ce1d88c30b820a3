"""No secret is shown: not by its key, not by its form, not by its value in another text."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.config.redact import (
    MASK,
    Redactor,
    is_secret_key,
    redact,
    redact_forms,
    redact_value,
    writes_out_secret,
)
from grete.config.secrets import has_reference, resolve_secrets
from grete.errors import ConfigError


@pytest.mark.parametrize(
    "key",
    [
        "sensitive.anything",
        "Sensitive.anything",
        "azure.storage.connect",
        "systems.k.consumer.sasl.jaas.config",
        "systems.k.consumer.ssl.keystore.password",
        "systems.eh.streams.s.eventhubs.sas.token",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key",
        "my.apiKey",
        "my.api_key",
        "my.client-secret",
        "my.credentials",
        "systems.eh.connectionString",
    ],
)
def test_these_keys_are_secret(key: str) -> None:
    assert is_secret_key(key)
    assert redact_value(key, "hunter2secret") == MASK


@pytest.mark.parametrize(
    "key",
    [
        "job.name",
        "streams.s.samza.key.serde",
        "systems.k.samza.key.serde",
        "systems.k.default.stream.samza.key.serde",
        "stores.token.changelog",
        "stores.password.key.serde",
        "systems.k.producer.key.serializer",
        "spark.sql.partition.key",
        "job.http.auth",
        "my.monkey",
        "task.inputs",
    ],
)
def test_these_keys_are_not(key: str) -> None:
    assert not is_secret_key(key)


def test_a_reference_is_shown() -> None:
    assert redact_value("my.password", "${env:PW}") == "${env:PW}"
    assert redact_value("my.password", "${env:}") == "${env:}", "to nothing, which is to be seen"
    assert redact_value("my.password", "x${env:PW}") == MASK


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:postgresql://joe:pw@db:5432/x", f"jdbc:postgresql://{MASK}@db:5432/x"),
        ("jdbc:oracle:thin:scott/tiger@//db:1521/x", f"jdbc:oracle:thin:{MASK}@//db:1521/x"),
        ("jdbc:oracle:thin:scott/ti@ger@//db:1521/x", f"jdbc:oracle:thin:{MASK}@//db:1521/x"),
        ("https://host/path@v2", "https://host/path@v2"),
        ("AccountName=a;AccountKey=Zm9v+/8=;End=1", f"AccountName=a;AccountKey={MASK};End=1"),
        ('required username="u" password="p w";', f'required username="u" password={MASK};'),
        ("?sv=1&sig=abc%2F&se=2", f"?sv=1&sig={MASK}&se=2"),
        ("Authorization: Bearer abc.def-1", f"Authorization: Bearer {MASK}"),
        ("password=${env:PW}", "password=${env:PW}"),
    ],
)
def test_secrets_are_masked_by_their_form(text: str, shown: str) -> None:
    assert redact_forms(text) == shown


def test_a_secret_value_is_masked_inside_other_values_and_texts() -> None:
    config = {
        "my.password": "hunter2secret",
        "my.url": "http://h/?p=hunter2secret",
        "a": "true",
        "sensitive.b": "true",
    }
    shown = redact(config)
    assert shown == {"my.password": MASK, "my.url": f"http://h/?p={MASK}", "a": "true", "sensitive.b": MASK}
    assert Redactor.of(config).everything("cannot log in with hunter2secret") == f"cannot log in with {MASK}"


def test_a_redactor_learns_what_a_reference_was_resolved_to() -> None:
    redactor = Redactor()
    redactor.learn([resolve_secrets("${env:PW}", {"PW": "hunter2secret"})])
    assert redactor.text("got hunter2secret") == f"got {MASK}"


def test_masking_a_megabyte_takes_no_quadratic_time() -> None:
    many = ("a" * 2_000_000, "://" * 500_000, "password=" * 200_000, 'password="' * 200_000)
    for text in (*many, "://a:" * 300_000, "jdbc:oracle:thin:a/" * 100_000):
        assert redact_forms(text) is not None
        assert writes_out_secret("my.text", text) in (True, False)


def test_references_are_resolved_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    value = f"u=${{env:U}};p=${{file:{file}}}"
    assert has_reference(value)
    assert resolve_secrets(value, {"U": "joe"}) == "u=joe;p=s3cret"
    assert resolve_secrets("${env:A}", {"A": "${env:B}"}) == "${env:B}"
    assert resolve_secrets("${GRETE_HOME}/local") == "${GRETE_HOME}/local"


def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NOT_THERE"):
        resolve_secrets("${env:NOT_THERE}", {})
    with pytest.raises(ConfigError, match="none"):
        resolve_secrets(f"${{file:{tmp_path}/none}}")
    large = tmp_path / "large"
    large.write_bytes(b"x" * 70_000)
    with pytest.raises(ConfigError, match="larger than"):
        resolve_secrets(f"${{file:{large}}}")


@pytest.mark.parametrize(
    ("value", "is_shown"),
    [
        ('M required username="ann" password="${env:P}";', True),
        ("M required username=ann password=${file:/p};", True),
        ('M required username="${env:U}" password="${env:P}";', True),
        ('M required username="ann" password="x${env:P}";', False),
        ('M required username="${env:U}" password="hunter2secret";', False),
        ('M required username="ann" password="${env:P}" clientSecret="hunter2secret";', False),
        ('M required username="ann";', False),
    ],
)
def test_a_login_whose_secrets_are_references_is_shown(value: str, is_shown: bool) -> None:
    """Containers get it so, in their environment; nothing of a login that is written out."""
    shown = redact_value("systems.k.producer.sasl.jaas.config", value)
    assert shown == (value if is_shown else MASK)
