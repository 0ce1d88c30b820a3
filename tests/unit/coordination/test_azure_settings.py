from __future__ import annotations

import pytest

from grete.azure.names import escaped, unescaped
from grete.config.redact import redact
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.config.settings.azure import AzureAccount, account_of
from grete.coordination.azure import blob_name
from grete.errors import ConfigError

KEY = "c2VjcmV0LW9mLWEtc3RvcmFnZS1hY2NvdW50"
WITH_KEY = (
    f"DefaultEndpointsProtocol=https;AccountName=flights;AccountKey={KEY};EndpointSuffix=core.windows.net"
)
BASE = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in"}


@pytest.mark.parametrize(
    "name",
    [
        "azure",
        "org.apache.samza.azure.AzureJobCoordinatorFactory",
        "org.apache.samza.AzureJobCoordinatorFactory",
        "org.apache.samza.coordinator.AzureJobCoordinatorFactory",
    ],
)
def test_every_spelling_of_samzas_factory_elects_in_azure(name: str) -> None:
    """Three are in the wild (S3-13), and a changed key is all that a job needs besides its account (S3-14)."""
    config = {**BASE, "job.coordinator.factory": name, "azure.storage.connect": WITH_KEY}
    assert Settings.of(config).coordinator.election == "azure"
    assert check(config).errors == ()


@pytest.mark.parametrize(
    "more",
    [
        {"job.coordinator.factory": "azure"},
        {"task.checkpoint.factory": "org.apache.samza.checkpoint.azure.AzureCheckpointManagerFactory"},
        {"job.coordinator.factory": "azure", "azure.storage.connect": " "},
    ],
)
def test_a_missing_account_is_reported_in_samzas_words_with_the_way_out(more: dict[str, str]) -> None:
    [error] = check({**BASE, **more}).errors
    assert error.startswith("Missing azure.storage.connect config! Set it to the connection string")
    with pytest.raises(ConfigError, match=r"Missing azure\.storage\.connect config!"):
        _ = Settings.of(more).azure.account


@pytest.mark.parametrize(
    ("connect", "account"),
    [
        (
            WITH_KEY,
            AzureAccount(
                "flights",
                "https://flights.blob.core.windows.net",
                "https://flights.table.core.windows.net",
                KEY,
            ),
        ),
        (
            "BlobEndpoint=https://b.example/;TableEndpoint=https://t.example/;SharedAccessSignature=?sv=1&sig=a%3D",
            AzureAccount("", "https://b.example/", "https://t.example/", signature="sv=1&sig=a%3D"),
        ),
        (
            "AccountName=flights;EndpointSuffix=core.chinacloudapi.cn",
            AzureAccount(
                "flights",
                "https://flights.blob.core.chinacloudapi.cn",
                "https://flights.table.core.chinacloudapi.cn",
            ),
        ),
    ],
)
def test_a_connection_string_is_read(connect: str, account: AzureAccount) -> None:
    assert account_of(connect) == account


def test_the_emulators_account_has_a_name_of_its_own() -> None:
    account = account_of("UseDevelopmentStorage=true")
    assert (account.name, account.blob_endpoint) == (
        "devstoreaccount1",
        "http://127.0.0.1:10000/devstoreaccount1",
    )
    assert account.key


@pytest.mark.parametrize("connect", ["flights", "AccountKey=" + KEY, "BlobEndpoint=https://b.example/"])
def test_what_is_no_connection_string_is_refused_without_its_secret(connect: str) -> None:
    config = {**BASE, "job.coordinator.factory": "azure", "azure.storage.connect": connect}
    [error] = check(config).errors
    assert "no connection string of a storage account" in error
    assert KEY not in error


def test_the_account_is_never_shown() -> None:
    assert KEY not in str(redact({"azure.storage.connect": WITH_KEY}))
    assert KEY not in repr(account_of(WITH_KEY))


@pytest.mark.parametrize(
    ("ttl_ms", "is_refused"), [("14999", True), ("15000", False), ("60000", False), ("60001", True)]
)
def test_a_lease_that_azure_does_not_give_is_refused_before_the_job_starts(
    ttl_ms: str, is_refused: bool
) -> None:
    config = {**BASE, "job.coordinator.factory": "azure", "azure.storage.connect": WITH_KEY}
    errors = check({**config, "job.coordinator.lease.ttl.ms": ttl_ms}).errors
    assert [("leases of blobs in Azure Storage last from 15 to 60 s" in error) for error in errors] == [
        True
    ] * is_refused


def test_names_stay_apart_where_samzas_become_one() -> None:
    """`a-b` and `ab`: Samza removes what is no letter and no digit (S3-15)."""
    texts = ["a-b", "ab", "a/b", "a=2Fb", "ä", "a b", "", "a.b", "A-B", "a\\b#?%\n"]
    assert len({escaped(text) for text in texts}) == len(texts)
    assert [unescaped(escaped(text)) for text in texts] == texts
    assert blob_name("job/a-b-1") == "leadership/job/a-b-1"
    assert len({blob_name(f"job/{text}") for text in texts}) == len(texts)
