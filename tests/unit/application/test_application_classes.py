"""Classes of the application that a configuration names beside its task: who has them, and what they are asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete import registry
from grete.config.rewriters import apply_rewriters
from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.errors import ApplicationError, ConfigError, JobError
from grete.grouping.ssp import ssp_grouper
from grete.model.ids import SystemStreamPartition
from grete.systems.local.system import Message
from grete.testing.job import JobUnderTest

CLASSES = """
import logging
import os
import grete

class Task(grete.StreamTask):
    @classmethod
    def describe(cls, config):
        return grete.Description(
            inputs={"local.in": grete.Serdes(key="string", message="point")},
            outputs=["local.out"],
            stores={"seen": grete.Serdes(message="integer")},
            serdes={"point": Point},
        )

    def init(self, context):
        self.seen = context.store("seen")

    def process(self, envelope, collector, coordinator):
        count = (self.seen.get(envelope.key) or 0) + 1
        self.seen.put(envelope.key, count)
        same = type(envelope.message) is Coordinates
        collector.send("local.out", b"%d %d %d" % (count, same, os.getpid()), key=envelope.key.encode())

class Coordinates(tuple):
    pass

class Point(grete.Serde):
    def to_bytes(self, value):
        return b"%d,%d" % value

    def from_bytes(self, data):
        return Coordinates(map(int, data.split(b",")))

class Texts(grete.Serde):
    def to_bytes(self, value):
        return value

    def from_bytes(self, data):
        return data

class Telling(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", "text")

class Late(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", b"v", timestamp_ms=1.5)

class Rewriter:
    def rewrite(self, name, config):
        logging.getLogger("told.quiet").warning("rewriting")
        logging.getLogger("told.other").warning("rewriting")
        return {**config, "rewritten.by": f"{name} {os.getpid()}"}

class ByStream:
    def group(self, ssps, config):
        assert type(ssps) is frozenset
        made = {}
        for ssp in ssps:
            made.setdefault(f"{config['my.prefix']}{ssp.stream}", []).append(ssp)
        return made

class Forgetful:
    def group(self, ssps, config):
        return {"one": list(ssps)[1:]}

class Leaving:
    def rewrite(self, name, config):
        raise SystemExit(3)

class Broken:
    def rewrite(self, name, config):
        raise LookupError("no such place")

    def group(self, ssps, config):
        raise LookupError("no such place")
"""
FACTORY = "job.systemstreampartition.grouper.factory"
Configure = Callable[..., dict[str, str]]


@pytest.fixture(params=["false", "true"], ids=["one-environment", "its-own-process"])
def switch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """A configuration whose application is in a folder of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "told.py").write_text(CLASSES)
    monkeypatch.delitem(sys.modules, "told", raising=False)

    def configure(switch: str, more: Mapping[str, str]) -> dict[str, str]:
        base = {"job.name": "a", "task.class": "told:Task", "job.application.path": str(tmp_path)}
        return {**base, "job.split.deployment.enabled": switch, **more}

    return configure


@contextmanager
def installed(folder: Path, points: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """A distribution with these entry points, by group and name, in the framework's environment."""
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in of.items()) for group, of in points.items()]
    info = folder / "plugin-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(lines))
    registry.known_plugins.cache_clear()
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        registry.known_plugins.cache_clear()


def is_here(pid: int) -> bool:
    return pid == os.getpid()


# --- rewriters ---

REWRITER = {"job.config.rewriters": "mine", "task.inputs": "local.in"}
REWRITER_CLASS = "job.config.rewriter.mine.class"


def test_a_rewriter_of_the_application_is_loaded_where_the_application_is(
    configure: Configure, switch: str
) -> None:
    written = apply_rewriters(configure(switch, {**REWRITER, REWRITER_CLASS: "told:Rewriter"}))
    name, pid = written["rewritten.by"].split()
    assert name == "mine"
    assert is_here(int(pid)) == ("told" in sys.modules) == (switch == "false")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (
            "told:Broken",
            r"rewriter\.mine\.class='told:Broken' failed at .*told\.py, line \d+: .*no such place",
        ),
        ("told:Leaving", r"'told:Leaving' failed at .*told\.py, line \d+: SystemExit\(3\)"),
        ("told:Nobody", "module 'told' has no 'Nobody'"),
        ("nowhere:Rewriter", "no module 'nowhere'"),
        ("told:Point", r"has no method rewrite\(name, config\)"),
    ],
)
def test_one_that_cannot_rewrite_is_named(configure: Configure, switch: str, named: str, said: str) -> None:
    with pytest.raises((ConfigError, ApplicationError), match=said):
        apply_rewriters(configure(switch, {**REWRITER, REWRITER_CLASS: named}))


def test_a_class_logs_as_much_as_the_applications_file_says(
    configure: Configure, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure("true", {**REWRITER, REWRITER_CLASS: "told:Rewriter"})
    apply_rewriters(config)
    (tmp_path / "logging.toml").write_text('[loggers]\n"told.quiet" = "ERROR"\n')
    apply_rewriters(config)
    of_told = [record.name for record in caplog.records if record.name.startswith("told")]
    assert of_told == ["told.quiet", "told.other", "told.other"]


# --- the order in which a name is resolved ---


def test_a_name_is_ours_before_it_is_a_plug_ins_and_a_plug_ins_before_it_is_the_applications(
    configure: Configure, tmp_path: Path
) -> None:
    """The same name in all three: each is found when those before it do not have it."""
    config = Settings.of(configure("true", {FACTORY: "told:ByStream", "my.prefix": "of "}))
    ssps = [SystemStreamPartition("local", stream, 0) for stream in ("a", "b")]
    framework = tmp_path / "framework"
    framework.mkdir()
    (framework / "told_plugin.py").write_text(
        "def by_kind(ssps, settings):\n    return {'from a plug-in': tuple(ssps)}\n"
    )
    with installed(framework, {"grete.ssp_groupers": {"told:ByStream": "told_plugin:by_kind"}}):
        assert list(ssp_grouper(config)(ssps, config)) == ["from a plug-in"]
        assert "told" not in sys.modules
    assert set(ssp_grouper(config)(ssps, config)) == {"of a", "of b"}
    with installed(framework, {"grete.ssp_groupers": {"GroupByPartitionFactory": "told_plugin:by_kind"}}):
        ours = Settings.of({"task.inputs": "local.a"})
        assert list(ssp_grouper(ours)(ssps, ours)) == ["Partition 0"]
    nowhere = Settings.of(configure("true", {FACTORY: "nowhere:ByStream"}))
    with pytest.raises(ConfigError, match=r"no module 'nowhere'.*job\.application\.path"):
        ssp_grouper(nowhere)(ssps, nowhere)


def test_an_installed_plug_in_is_imported_when_it_is_named_and_not_before(tmp_path: Path) -> None:
    """A job need not have the packages of plug-ins that it does not use."""
    (tmp_path / "heavy.py").write_text("import no_such_client\n")
    with installed(tmp_path, {"grete.ssp_groupers": {"heavy": "heavy:group"}}):
        validate({"job.name": "a", "task.class": "my:Task", "task.inputs": "local.in"})
        ours = Settings.of({})
        assert ssp_grouper(ours)
        with pytest.raises(ConfigError, match="no_such_client"):
            ssp_grouper(Settings.of({FACTORY: "heavy"}))


@pytest.mark.parametrize(
    "key",
    [
        "systems.mine.samza.factory",
        "job.coordinator.factory",
        "job.launcher",
        "task.checkpoint.factory",
        "task.name.grouper.factory",
        "stores.counts.factory",
    ],
)
def test_what_runs_in_the_frameworks_processes_cannot_be_a_class_of_the_application(key: str) -> None:
    config = {"job.name": "a", "task.class": "my:Task", "task.inputs": "local.in", key: "told:Own"}
    with pytest.raises(ConfigError, match=rf"{key}.*told:Own"):
        validate(config)


def test_a_plug_in_that_should_be_the_applications_is_refused_with_the_way_out() -> None:
    config = {"job.name": "a", "task.class": "my:Task", "task.inputs": "local.in"}
    said = r"cannot be one.*never load the application.*entry point of the group 'grete\.systems'"
    with pytest.raises(ConfigError, match=said):
        validate({**config, "systems.mine.samza.factory": "told:WrappedKafka"})


# --- groupers ---


def test_a_grouper_of_the_application_makes_the_tasks(configure: Configure, switch: str) -> None:
    more = {
        FACTORY: "told:ByStream",
        "my.prefix": "of ",
        "task.inputs": "local.in,local.more",
        "task.broadcast.inputs": "local.all#0",
    }
    config = Settings.of(configure(switch, more))
    validate(config.raw)
    ssps = [SystemStreamPartition("local", name, number) for name in ("in", "more") for number in (0, 1)]
    shared = SystemStreamPartition("local", "all", 0)
    groups = ssp_grouper(config)([*ssps, shared], config)
    assert {task: set(of_task) for task, of_task in groups.items()} == {
        "of in": {*ssps[:2], shared},
        "of more": {*ssps[2:], shared},
    }
    assert ("told" in sys.modules) == (switch == "false")


def test_one_that_leaves_a_partition_out_is_refused(configure: Configure, switch: str) -> None:
    config = Settings.of(configure(switch, {FACTORY: "told:Forgetful"}))
    ssps = [SystemStreamPartition("local", "in", number) for number in (0, 1)]
    with pytest.raises(ConfigError, match=rf"{FACTORY}='told:Forgetful' has to put each .* local\.in\.[01]"):
        ssp_grouper(config)(ssps, config)


# --- descriptions ---


def test_a_task_describes_what_it_reads_writes_and_keeps(configure: Configure, switch: str) -> None:
    written = apply_rewriters(configure(switch, {"systems.local.samza.factory": "local"}))
    added = written.keys() - configure(switch, {"systems.local.samza.factory": "local"}).keys()
    assert {key: written[key] for key in added} == {
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "systems.local.streams.in.samza.key.serde": "string",
        "systems.local.streams.in.samza.msg.serde": "point",
        "stores.seen.factory": "grete.store.sqlite",
        "stores.seen.msg.serde": "integer",
        "serializers.registry.point.class": "told:Point",
    }
    assert ("told" in sys.modules) == (switch == "false")
    validate(written)


def test_what_the_configuration_says_itself_wins_and_inputs_that_it_names_are_all_that_is_asked_for(
    configure: Configure,
) -> None:
    given = {"stores.seen.msg.serde": "long", "streams.in.samza.msg.serde": "json"}
    written = Settings.of(
        apply_rewriters(configure("true", {"systems.local.samza.factory": "local", **given}))
    )
    assert written.store("seen").msg_serde == "long"
    named = apply_rewriters(configure("true", {"task.inputs": "local.other"}))
    assert "task.outputs" not in named


def test_a_described_job_gets_objects_of_the_classes_that_its_task_has(
    configure: Configure, switch: str
) -> None:
    job = JobUnderTest(config=configure(switch, {"systems.local.samza.offset.default": "oldest"})).start()
    job._system.append("in", [Message(b"k", b"3,4", 1)] * 2)
    job.run()
    sent = [message.split() for message in job.messages("local.out")]
    assert [one[:2] for one in sent] == [[b"1", b"1"], [b"2", b"1"]]
    assert [is_here(int(one[2])) for one in sent] == [switch == "false"] * 2
    job.close()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        pytest.param(
            {
                "task.class": "told:Telling",
                "streams.out.samza.msg.serde": "texts",
                "serializers.registry.texts.class": "told:Texts",
            },
            r"the serde of local\.out made str of a message: 'text'.*gives bytes or None",
            id="a serde that makes no bytes",
        ),
        pytest.param(
            {"task.class": "told:Late"},
            r"timestamp_ms=1\.5 of a record to local\.out is no whole number",
            id="a time that is no number of milliseconds",
        ),
    ],
)
def test_what_cannot_be_sent_is_named_with_who_made_it(
    configure: Configure, switch: str, own: Mapping[str, str], said: str
) -> None:
    streams = {"task.inputs": "local.in", "task.outputs": "local.out"}
    given = {**streams, "systems.local.samza.offset.default": "oldest", **own}
    job = JobUnderTest(config=configure(switch, given)).start()
    job._system.append("in", [Message(b"k", b"v", 1)])
    with pytest.raises(JobError, match=said):  # of a time the message is known, and named
        job.run()
    job.close()


@pytest.mark.parametrize(
    ("describe", "said"),
    [
        ("return None", "describe returned NoneType, not a grete.Description"),
        ("return grete.Description(inputs=['nodot'])", "describe names the stream 'nodot'"),
        ("return grete.Description(inputs=['a.b'], serdes={'x': str})", "as the serde 'x'; give a class"),
        ("raise LookupError('no such place')", "no such place"),
    ],
)
def test_a_description_that_is_none_is_refused(
    configure: Configure, tmp_path: Path, describe: str, said: str
) -> None:
    text = f"""
import grete

class Task(grete.StreamTask):
    @classmethod
    def describe(cls, config):
        {describe}

    def process(self, envelope, collector, coordinator):
        pass
"""
    (tmp_path / "told.py").write_text(text)
    with pytest.raises((ConfigError, ApplicationError), match=said):
        apply_rewriters(configure("true", {}))


def test_a_task_that_describes_nothing_is_told_what_is_missing(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(CLASSES.replace("def describe", "def described"))
    with pytest.raises(ConfigError, match=r"Missing required config: task\.inputs.*describe"):
        validate(apply_rewriters(configure("true", {})))
