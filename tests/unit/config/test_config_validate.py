"""The whole configuration is checked at once; each message names the key, what is wrong and the way out."""

from __future__ import annotations

import pytest

from grete.config.derived import canonical_keys
from grete.config.rules.validate import check, validate
from grete.errors import ConfigError

GOOD = {"job.name": "j", "task.class": "m:C", "task.inputs": "local.in"}


def errors(**changes: str | None) -> str:
    return "\n".join(check(changed(**changes)).errors)


def changed(**changes: str | None) -> dict[str, str]:
    merged = {**GOOD, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def warnings(**changes: str | None) -> str:
    report = check(changed(**changes))
    assert report.errors == ()
    return "\n".join(report.warnings)


def test_a_small_configuration_is_fine() -> None:
    assert validate(GOOD) == ()


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        validate(
            {"job.name": "a/b", "job.container.count": "0", "task.inputs": "in", "job.elasticity.factor": "0"}
        )
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("job.name", None, "Missing required config: job.name"),
        ("job.name", "a\nb", "only A-Z a-z 0-9"),
        ("job.name", "x" * 201, "at most 200"),
        ("job.id", "", "job.id='': it is empty"),
        ("task.inputs", None, "Missing required config: task.inputs"),
        ("task.inputs", "in", "is not of the form system.stream"),
        ("task.inputs", "kafka.in", "set systems.kafka.samza.factory"),
        ("task.broadcast.inputs", "local.a", "incorrect format in local.a"),
        ("task.broadcast.inputs", "local.a#99999999999", "too large"),
        ("task.outputs", "other.out", "set systems.other.samza.factory"),
        ("task.class", None, "exactly one of task.class"),
        ("app.class", "m:P", "exactly one of task.class"),
        ("task.class", "m.C", "write it as module:Class"),
        ("job.container.count", "0", "from 1 to"),
        ("job.container.count", "two", "write digits only"),
        ("yarn.container.count", "0", "from 1 to"),
        ("job.elasticity.factor", "0", "a partition has 1 to 1000 tasks"),
        ("job.http.port", "70000", "from 0 to 65535"),
        ("job.container.count", "2147483647", "from 1 to 10000"),
        ("job.autosizing.container.count", "2147483647", "from 1 to 10000"),
        ("job.standbytasks.replication.factor", "2147483647", "from 1 to 100"),
        ("job.coordinator.lease.ttl.ms", "9223372036854775807", "at most a day"),
        ("job.http.host", "127.999.1.1", "it is neither the name of a machine nor an address"),
        ("job.http.host", "0.0.0.0", "they need a port that they know: set job.http.port"),  # noqa: S104
        ("job.http.names", "jobs.example,no name", "'no name': it is neither the name of a machine"),
        ("job.http.certificate.key", "key.pem", "set both, or none"),
        ("job.launcher", "cluster", "none of process, spark_submit, thread"),
        ("job.factory.class", "", "no job factory class defined"),
        ("job.factory.class", "org.example.Factory", "it is not known"),
        ("job.systemstreampartition.grouper.factory", "GroupByMoon", "GroupByPartitionFactory"),
        ("task.name.grouper.factory", "GroupByMoon", "GroupByContainerCountFactory"),
        ("task.checkpoint.factory", "nowhere", "grete.checkpoint.log"),
        ("task.checkpoint.factory", "grete.checkpoint.azure-table", "Missing azure.storage.connect config!"),
        (
            "job.coordinator.factory",
            "azure",
            "Missing azure.storage.connect config! Set it to the connection",
        ),
        ("task.checkpoint.factory", "grete.checkpoint.file-system", "task.checkpoint.path"),
        ("task.checkpoint.read.versions", "3", "versions are 1 and 2"),
        ("stores.s.factory", "org.example.Store", "grete.store.sqlite"),
        ("stores.s.changelog", "kafka.s", "set systems.kafka.samza.factory"),
        ("stores.s.msg.serde", "mine", "set serializers.registry.mine.class"),
        ("systems.local.samza.msg.serde", "mine", "set serializers.registry.mine.class"),
        ("systems.k.samza.factory", "org.example.Factory", "is not known"),
        ("systems.local.samza.offset.default", "first", "none of oldest, newest, upcoming"),
        ("streams.s.samza.system", "kafka", "set systems.kafka.samza.factory"),
        ("streams.s.samza.reset.offset", "yes", "neither true nor false"),
        ("task.poison.policy", "dead-letter", "needs task.poison.dead-letter.stream"),
        ("job.config.rewriter.r.regex", "(", "is not a regular expression"),
        ("job.http.port", "${env:PORT}", "a reference stands for a secret"),
        ("job.coordinator.system", "kafka", "set systems.kafka.samza.factory"),
        ("my key\n", "v", "control character"),
        ("mine", "a\x00", "NUL"),
        ("mine", "\ud83d", "half a surrogate pair"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(key: str, value: str | None, says: str) -> None:
    assert says in errors(**{key: value})


def test_a_secret_in_a_wrong_value_is_not_shown() -> None:
    text = errors(**{"systems.k.samza.factory": "password=hunter2secret"})
    assert "hunter2secret" not in text
    assert "********" in text


def test_two_stores_may_not_share_a_changelog() -> None:
    assert "is the changelog of the store" in errors(
        **{"stores.a.changelog": "local.log", "stores.b.changelog": "local.log"}
    )


def test_several_systems_need_a_named_coordinator_system() -> None:
    two = {"systems.a.samza.factory": "local", "systems.b.samza.factory": "local"}
    assert "Missing job.coordinator.system" in errors(**two)
    assert errors(**two, **{"job.coordinator.system": "a"}) == ""


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("yarn.container.count", "3", "yarn.container.count is deprecated; use job.container.count"),
        ("task.checkpoint.replication.factor", "2", "job.coordinator.replication.factor is not set"),
        ("task.checkpoint.segment.bytes", "2", "job.coordinator.segment.bytes is not set"),
        ("job.contaner.count", "3", "did you mean job.container.count?"),
        ("stores.s.chnagelog", "x", "did you mean stores.s.changelog?"),
        ("job.jmx.enabled", "false", "no effect in grete: job.jmx.enabled"),
        ("task.checkpoint.write.versions", "1", "no effect in grete: task.checkpoint.write.versions"),
        ("task.poll.interval.ms", "5", "a share waits for its input"),
        ("systems.local.consumer.sasl.password", "pw", "written out in plain text"),
        ("job.factory.class", "org.apache.samza.job.yarn.YarnJobFactory", "has no launcher here"),
    ],
)
def test_what_only_looks_wrong_is_a_warning(key: str, value: str, says: str) -> None:
    assert says in warnings(**{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("my.url", "jdbc:postgresql://h/db?user=u&password=geheim"),
        ("my.url", "jdbc:postgresql://joe:geheim@h:5432/db"),
        ("my.url", "jdbc:sqlserver://h;user=u;password=geheim;encrypt=true"),
        ("my.url", "jdbc:oracle:thin:scott/geheim@//h:1521/db"),
        ("my.url", "https://user:geheim@host/path"),
        ("my.url", "https://${env:USER}:geheim@host"),
        ("my.url", "mongodb://u:geheim@a:1,b:2/db"),
        ("my.text", '{"password": "geheim"}'),
        ("my.storage", "AccountName=a;AccountKey=geheim=="),
        ("systems.k.consumer.sasl.jaas.config", 'M required username="u" password="geheim";'),
        ("systems.k.consumer.sasl.jaas.config", 'M required username="${env:USER}" password="geheim";'),
        ("systems.k.consumer.sasl.jaas.config", "M required clientId=${env:ID} clientSecret=geheim;"),
    ],
)
def test_a_password_within_a_value_is_a_warning_that_does_not_show_it(key: str, value: str) -> None:
    said = warnings(**{key: value})
    assert f"written out in plain text, and so kept in the coordinator stream: {key}." in said
    assert "geheim" not in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("my.url", "jdbc:postgresql://h/db?user=u&password=${env:PW}"),
        ("my.url", "jdbc:postgresql://h/db?password=${file:/run/secrets/pw}&user=u"),
        ("my.url", "jdbc:oracle:thin:scott/${env:PW}@//h:1521/db"),
        ("my.url", "jdbc:oracle:thin:@//h:1521/db"),
        ("my.url", "https://user:${env:PW}@host"),
        ("my.url", "https://user:${file:/run/pw}@host"),
        ("my.url", "https://${env:LOGIN}@host:443/path"),
        ("my.url", "http://host:8080/path@v2"),
        ("my.url", "abfss://container@account.dfs.core.windows.net/lake"),
        ("my.hosts", "h1:9092,h2:9092"),
        ("spark.kubernetes.container.image", "registry:5000/shop/token:1.2"),
        ("spark.redaction.string.regex", "password=.*"),
        ("systems.k.consumer.sasl.jaas.config", 'M required username="u" password="${env:PW}";'),
        ("systems.k.consumer.sasl.jaas.config", "M required username=u password=${file:/pw} serviceName=k;"),
    ],
)
def test_references_and_logins_without_a_password_are_no_warning(key: str, value: str) -> None:
    assert "plain text" not in warnings(**{key: value})


def test_keys_that_only_stream_tasks_follow_are_named_for_a_pipeline() -> None:
    keys = {"task.poison.policy": "fail", "task.window.ms": "5", "stores.s.factory": "grete.store.sqlite"}
    said = (
        "no effect on a DataFrame pipeline (app.class): stores.s.factory, task.poison.policy, task.window.ms;"
    )
    assert said in warnings(**{"task.class": None, "app.class": "my:App", **keys})
    assert "app.class" not in warnings(**keys)
    decoded = {"systems.local.default.stream.pipeline.columns": "decoded"}
    said = warnings(**{"task.class": None, "app.class": "my:App", **keys, **decoded})
    assert "(app.class): stores.s.factory, task.window.ms;" in said, "records may be no JSON"


def test_keys_of_the_application_and_of_spark_are_not_checked() -> None:
    assert warnings(**{"my.threshold": "3", "spark.sql.shuffle.partitions": "4", "taskforce": "x"}) == ""


def test_a_deprecated_key_gives_its_value_where_todays_is_not_set() -> None:
    assert canonical_keys({"yarn.container.count": "3"})["job.container.count"] == "3"
    both = {"yarn.container.count": "3", "job.container.count": "5"}
    assert canonical_keys(both)["job.container.count"] == "5"


def test_coordinator_keys_fall_back_to_the_checkpoints() -> None:
    old = {"task.checkpoint.replication.factor": "2", "task.checkpoint.segment.bytes": "7"}
    words = canonical_keys(old)
    assert words["job.coordinator.replication.factor"] == "2"
    assert words["job.coordinator.segment.bytes"] == "7"


def test_the_coordinator_system_in_force_is_written_out() -> None:
    assert canonical_keys({})["job.coordinator.system"] == "local"
    assert canonical_keys({"systems.k.samza.factory": "local"})["job.coordinator.system"] == "k"
    assert canonical_keys({"job.default.system": "d"})["job.coordinator.system"] == "d"
    two = {"systems.a.samza.factory": "x", "systems.b.samza.factory": "x"}
    assert "job.coordinator.system" not in canonical_keys(two)


def test_samzas_job_factory_names_the_launcher() -> None:
    config = {"job.factory.class": "org.apache.samza.job.local.ThreadJobFactory"}
    assert canonical_keys(config)["job.launcher"] == "thread"


def test_current_words_are_stable() -> None:
    once = canonical_keys({"yarn.container.count": "3", "systems.k.samza.factory": "local"})
    assert canonical_keys(once) == once


def test_ten_thousand_keys_of_the_application_are_checked_without_comparing_each_to_the_table() -> None:
    config = changed(**{f"job.mine{i}": "x" for i in range(10_000)})
    assert check(config).errors == ()


ON_KAFKA = {
    "systems.kafka.samza.factory": "kafka",
    "systems.kafka.producer.bootstrap.servers": "b:9092",
    "job.coordinator.system": "kafka",
}
GROUP = "task.checkpoint.consumer.group"


@pytest.mark.parametrize("group", ["words", "$Default", "team:words/1", "g" * 249])
def test_a_job_on_kafka_may_show_itself_in_a_consumer_group(group: str) -> None:
    assert errors(**ON_KAFKA, **{"task.inputs": "kafka.in", GROUP: group}) == ""


@pytest.mark.parametrize("group", ["", "two words", "g" * 250, "gruppe-ä", "tab\there"])
def test_a_consumer_group_has_a_name_that_tools_can_show(group: str) -> None:
    found = errors(**ON_KAFKA, **{"task.inputs": "kafka.in", GROUP: group})
    assert "no blanks, and at most 249 characters; write such a name, or remove the key" in found


def test_a_consumer_group_without_an_input_on_kafka_is_refused() -> None:
    found = errors(**ON_KAFKA, **{"task.inputs": "local.in", GROUP: "words"})
    assert "no input of this job is on Kafka (its inputs are of the system local)" in found
    broadcast = {"task.inputs": "kafka.in", "task.broadcast.inputs": "kafka.b#0", GROUP: "words"}
    assert errors(**ON_KAFKA, **broadcast) == ""


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"task.inputs": "kafka.in,other.in"}, "task.inputs names the systems kafka, other"),
        ({"task.broadcast.inputs": "other.b#0"}, "task.inputs names the systems kafka, other"),
        ({"task.outputs": "kafka.out,other.out"}, ""),
        ({"task.outputs": "missing.out"}, "systems.missing.samza.factory"),
        ({"task.poison.dead-letter.stream": "other.dead"}, "task.poison.dead-letter.stream names other.dead"),
        ({"task.checkpoint.system": "other"}, "task.checkpoint.system is on system 'other'"),
        ({"stores.s.changelog": "other.s"}, "stores.s.changelog is on system 'other'"),
        (
            {"job.changelog.system": "other", "stores.s.changelog": "s"},
            "stores.s.changelog is on system 'other'",
        ),
        ({"task.checkpoint.system": "same", "stores.s.changelog": "same.s"}, ""),
        ({"task.checkpoint.system": "other", "task.checkpoint.factory": "grete.checkpoint.file-system"}, ""),
    ],
)
def test_what_commits_together_is_in_one_system(named: dict[str, str], problem: str) -> None:
    """Else it would begin from scratch, or fail when its containers start. One cluster may have two names."""
    systems = {
        f"systems.{name}.{key}": value
        for name, brokers in (("kafka", "b:9092"), ("same", "b:9092"), ("other", "o:9092"))
        for key, value in (("samza.factory", "kafka"), ("producer.bootstrap.servers", brokers))
    }
    base = {**ON_KAFKA, **systems, "task.inputs": "kafka.in", "stores.s.factory": "grete.store.sqlite"}
    files = {"task.checkpoint.path": "/var/lib/checkpoints"} if "task.checkpoint.factory" in named else {}
    found = errors(**{**base, **files, **named})
    assert (problem in found) if problem else (found == "")


UNKNOWN = "not known, so only the application can read it: "


def test_an_unknown_key_is_reported_also_beside_the_right_one() -> None:
    warnings = check(
        {**GOOD, "task.foo": "1", "job.container.count": "1", "job.containr.count": "9"}
    ).warnings
    assert "job.containr.count is not a known key; did you mean job.container.count?" in warnings
    assert f"{UNKNOWN}task.foo" in warnings


def test_keys_of_the_applications_own_are_not_reported() -> None:
    config = {**GOOD, "shop.name": "x", "streams.in.shop": "y", "systems.local.shop": "z"}
    assert not [warning for warning in check(config).warnings if "shop" in warning]


def test_a_regex_that_matches_nothing_is_reported_rather_than_a_missing_key() -> None:
    config = {key: value for key, value in GOOD.items() if key != "task.inputs"}
    regex = {
        "job.config.rewriters": "inputs",
        "job.config.rewriter.inputs.class": "regex-input",
        "job.config.rewriter.inputs.system": "local",
        "job.config.rewriter.inputs.regex": "orders-.*",
    }
    [error] = check({**config, **regex, "task.inputs": ""}).errors
    assert "the regex 'orders-.*' matches no stream of 'local'" in error
    [error] = check(config).errors
    assert error.startswith("Missing required config: task.inputs")


def test_dead_letters_that_the_job_would_read_again_are_refused() -> None:
    letters = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": GOOD["task.inputs"]}
    [error] = check({**GOOD, **letters}).errors
    assert "is an input and the stream of dead letters" in error
