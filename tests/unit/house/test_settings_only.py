"""A question about configuration has one answer: outside `grete.config` nothing looks a key up by its text, and
settings are made where a configuration enters a process, which are the modules in `BORDERS`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

import grete
import grete.config.settings
from grete.config.keys import KEYS, find_key
from grete.config.settings.section import NamedSection, Section

PACKAGE = Path(grete.__file__).parent
WHOLE = ("config", "migration")
"""Their subject is configurations themselves: grete's, and those of other programs."""
NAMES = {"config", "_config", "configuration", "raw", "effective"}
SECTIONS = {key.name.partition(".")[0] for key in KEYS} - {"spark"}
"""Names that begin with `spark.` are Spark's too, which is asked for them where it is configured."""
CLASSES = {"Settings"} | {one.__name__ for kind in (Section, NamedSection) for one in kind.__subclasses__()}
"""`Settings`, and its sections."""
OBJECTS = {"settings", "_settings", "given", "_given"}
"""What settings are called: their class is had from each of them, too."""
TEXT_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"}
EXCEPTIONS = {
    "application/resolved_config.py": "gives the application its configuration as a mapping",
    "application/serdes.py": "names a key in an error, in processes that have no grete.config",
    "cli/config_command.py": "prints whichever key it is asked for",
    "kafka/probe.py": "a topic's settings at the brokers",
    "systems/kafka/probe.py": "a topic's settings at the brokers",
    "cli/migrate_command.py": "shows keys of a configuration that is not grete's yet",
    "cli/options.py": "words of Samza's command line, which say where the configuration is",
    "cli/samza_scripts.py": "words of Samza's command line, which say where the configuration is",
    "deploy/resource_manager.py": "Hadoop's own settings in yarn-site.xml",
    "kafka/login.py": "passes on a client's keys by the client's names",
    "kafka/log_topic.py": "a topic's settings at the brokers",
    "metadata/config_history.py": "is where configurations are kept, key by key",
    "metadata/coordinator_stream.py": "is where configurations are kept, key by key",
    "spark/dry_run.py": "compares settings of a session one by one",
    "testing/counting.py": "is an application, which gets its configuration as a mapping",
    "wire/job_coordinator_metadata.py": "encodes configurations, key by key",
    "wire/job_model_json.py": "encodes configurations, key by key",
}
BORDERS = {
    "assembly/submission.py": "what is submitted, and what an attempt of a deployment adds by where it is",
    "cli/checkpoint_command.py": "the files of --config, rewritten",
    "cli/config_command.py": "the files that a stream is compared with",
    "cli/doctor_command.py": "the files of --config, rewritten and not yet in today's words",
    "cli/options.py": "the files of --config",
    "container/assignment.py": "the coordinator's document",
    "container/main_loop.py": "the coordinator's system, from a container's environment",
    "coordinator/job_model.py": "groupers have the containers as processor.list, in their configuration alone",
    "deploy/attempt.py": "the file of a deployment",
    "deploy/container_attempt.py": "the file of a deployment",
    "deploy/deployment.py": "the files of a deployment, with the launcher that it has",
    "embedded/processor.py": "the mapping that a program gives",
    "metadata/config_history.py": "a generation in the coordinator stream",
    "metadata/config_in_force.py": "records of the coordinator stream",
    "metadata/coordinator_stream.py": "the configuration in the coordinator stream",
    "metadata/job_index.py": "the note of where a job was submitted",
    "notebook.py": "the file that is submitted",
    "operations/elasticity.py": "the configuration that is about to be written",
    "operations/job_election.py": "the stream's, with this machine's way to the API server",
    "spark/dry_run.py": "Spark's master is this machine while a plan is made",
    "spark/pipeline/planned_source.py": "an option of a stream of Spark's",
    "spark/pipeline/serdes.py": "what a worker of Spark's gets, hashable and without the secrets of others",
    "spark/session/driver.py": "the spark.* keys for a JVM that reaches files alone",
    "spark/warm_jvm.py": "what its parent process writes",
    "spark/sinks/hub.py": "what a worker of Spark's gets, hashable and without secrets",
    "testing/conformance/grouping.py": "a suite names the settings that it is run with",
    "testing/job_config.py": "the mapping and the files of a test, whose paths stay in the test",
    "testing/job_model.py": "the configuration in a job model",
    "testing/pipeline.py": "the session that all tests share",
}
"""Where text, or a message that was decoded, becomes settings in a process; or others are derived from some."""


def test_outside_config_keys_are_read_through_settings_alone() -> None:
    found = {
        f"{path}: {read}" for path, reads in _found().items() if path not in EXCEPTIONS for read in reads
    }
    assert found == set()


def test_exceptions_that_read_no_key_any_more_leave_the_list() -> None:
    assert set(EXCEPTIONS) - set(_found()) == set()


@pytest.mark.parametrize(
    "text",
    [
        "config.get(key)",
        "part['job.name']",
        "part.get('job.id', '1')",
        "'job.name' in part",
        "part.pop('job.state.dir', None)",
        "found['stores.counts.changelog']",
        "key.startswith('stores.')",
        "key.startswith(('job.', 'task.'))",
        "key.removeprefix(f'systems.{system}.')",
        "key == 'task.class'",
        "key = f'systems.{name}.samza.factory'",
        "prefix = f'serializers.registry.{name}.'",
        "found['systems.' + name + '.path']",
        "found['systems.%s.path' % name]",
        "found['systems.{}.path'.format(name)]",
        "from grete.config.key_tables.job import JOB_NAME\npart[JOB_NAME.name]",
        "from grete.config.key_tables import job as keys\npart.get(keys.JOB_NAME.name)",
        "NAME = 'job.name'\npart[NAME]",
        "OURS = ('job.', 'task.')\nany(key.startswith(OURS) for key in part)",
        "settings.spark.options.get('spark.driver.memory')",
        "options = settings.spark.options\noptions.get('spark.driver.memory')",
        "'spark.driver.memory' in Settings.of(found).spark.options",
    ],
)
def test_a_look_up_is_found_in_whichever_words(text: str) -> None:
    assert list(_raw_reads(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "raise ConfigError(f'systems.{name}: there is no such system')",
        "changes = {'job.name': name, CONTAINER_COUNT.name: '1'}",
        "settings.job.id",
        "found = {**settings.spark.options}",
        "topic.settings.get('cleanup.policy')",
        "text.split('.')",
        "conf.get('spark.driver.host')",
    ],
)
def test_what_names_a_key_or_asks_something_else_is_no_look_up(text: str) -> None:
    assert not list(_raw_reads(ast.parse(text)))


def test_settings_are_made_at_the_borders_alone() -> None:
    made = {f"{path}: {one}" for path, found in _borders().items() if path not in BORDERS for one in found}
    assert made == set()


def test_borders_that_make_no_settings_any_more_leave_the_list() -> None:
    assert set(BORDERS) - set(_borders()) == set()


def test_nothing_in_config_makes_settings_of_a_mapping_for_others() -> None:
    trees = (ast.parse(path.read_text()) for path in (PACKAGE / "config").rglob("*.py"))
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    made = [one for one in functions if one.returns and "Settings" in ast.unparse(one.returns).split(" | ")]
    assert {one.name for one in made if re.search(r"Mapping|dict", ast.unparse(one.args))} == {"of"}


@pytest.mark.parametrize(
    "text",
    [
        "Settings.of(found)",
        "Settings(found)",
        "Settings(raw=found)",
        "make = Settings.of",
        "S = Settings",
        "found = map(Settings.of, all)",
        "found = made(Settings, raw)",
        "from grete.config.settings import Settings as S\nS.of(found)",
        "from grete.config import settings as s\ns.Settings.of(found)",
        "import grete.config.settings\ngrete.config.settings.Settings.of(found)",
        "from grete.tasks.spec import Settings as S\nmake = S.of",
        "class Mine(Settings): ...",
        "getattr(s, 'Settings').of(found)",
        "settings.of(found)",
        "type(settings)(found)",
        "self._settings.__class__(found)",
        "replace(settings, raw=found)",
        "from grete.config.settings.job import JobSettings\nJobSettings(found).id",
        "from grete.config.settings.job import JobSettings as J\nid_ = J(found).id",
        "from grete.config.settings import job\njob.JobSettings(found)",
        "from grete.config.settings.zookeeper import ZooKeeperSection\nZooKeeperSection(found)",
    ],
)
def test_settings_that_are_made_are_found_in_whichever_words(text: str) -> None:
    assert list(_made(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "def of(settings: Settings, *others: Settings) -> Settings | None: ...",
        "@dataclass\nclass Spec:\n    settings: Settings",
        "Group = Callable[[Iterable[str], Settings], Groups]",
        "place = submitted or Settings()",
        "StreamAddress.of(settings, stream)",
        "self._streams.of(spec)",
        "replace(spec, settings=settings)",
        "from grete.config.settings.job import JobSettings\ndef of(job: JobSettings) -> str: ...",
        "KafkaLogSettings(client)",
    ],
)
def test_what_takes_settings_or_begins_with_none_makes_none(text: str) -> None:
    assert not list(_made(ast.parse(text)))


@cache
def _borders() -> dict[str, list[str]]:
    """The places in each module where settings are made of a mapping."""
    return _by_module(_made, WHOLE)


def _made(tree: ast.Module) -> Iterator[str]:
    """Whatever may make settings, or a section of them, of a mapping: all but types, and the settings of nothing."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in CLASSES
    } | {"Settings"}
    harmless = set(_harmless(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in names and node not in harmless:
                yield name
            case ast.Attribute(attr=name) if name in CLASSES and node not in harmless:
                yield name
            case ast.Attribute(value=value, attr="of" | "__class__") if _last_name(value) in OBJECTS:
                yield ast.unparse(node)
            case ast.Call(func=ast.Name(id="type"), args=[value]) if _last_name(value) in OBJECTS:
                yield ast.unparse(node)
            case ast.Call(func=func, keywords=keywords) if _last_name(func) == "replace":
                yield from (ast.unparse(node) for one in keywords if one.arg == "raw")
            case ast.Constant(value="Settings" | "Settings.of"):
                yield ast.unparse(node)


def _harmless(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, types between brackets, and calls without arguments."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.AnnAssign(annotation=ast.expr() as type_)
                | ast.arg(annotation=ast.expr() as type_)
                | ast.FunctionDef(returns=ast.expr() as type_)
            ):
                yield from ast.walk(type_)
            case ast.Subscript(slice=ast.Name() as type_):
                yield type_
            case ast.Subscript(slice=ast.Tuple(elts=parts)) | ast.List(elts=parts):
                yield from (part for part in parts if isinstance(part, ast.Name))
            case ast.Call(func=func, args=[], keywords=[]):
                yield func


@cache
def _found() -> dict[str, list[str]]:
    """The look-ups of each module that has any."""
    return _by_module(_raw_reads, WHOLE)


def _by_module(look: Callable[[ast.Module], Iterator[str]], without: Sequence[str]) -> dict[str, list[str]]:
    """What is found in each module in which anything is, by its path in the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        there = [] if relative.parts[0] in without else list(look(ast.parse(path.read_text())))
        if there:
            found[relative.as_posix()] = there
    return found


def _raw_reads(tree: ast.Module) -> Iterator[str]:
    """Look-ups in a configuration, whatever the key; in any mapping by a key of the table, or by the text of one.

    And whatever takes keys apart by their text, or puts one together.
    """
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("grete.config.key_tables")
        for alias in node.names
    } | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "grete.config"
        for alias in node.names
        if alias.name == "key_tables"
    }
    constants, options = _constants(tree), _names_of_spark_options(tree)
    for node in ast.walk(tree):
        for mapping, key in _look_ups(node):
            is_options = _is_spark_options(mapping) or _last_name(mapping) in options
            if is_options or _last_name(mapping) in NAMES or _is_of_table(key, imported):
                yield ast.unparse(node)
        if any(_is_key(text) for part in _compared(node) for text in _texts(part, constants)):
            yield ast.unparse(node)


def _look_ups(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(mapping, key) of `mapping.get(key)`, `mapping[key]` that is read, and `key in mapping`."""
    match node:
        case ast.Call(func=ast.Attribute(value=mapping, attr="get"), args=[key, *_]):
            yield mapping, key
        case ast.Subscript(value=mapping, slice=key, ctx=ast.Load()):
            yield mapping, key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]):
            yield mapping, key


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions whose text is looked up or compared with keys, and texts that are put together."""
    yield from (key for _, key in _look_ups(node))
    match node:
        case ast.Call(func=ast.Attribute(attr="pop"), args=[key, *_]):
            yield key
        case ast.Call(func=ast.Attribute(attr=method), args=[part, *_]) if method in TEXT_METHODS:
            yield part
        case ast.Compare(left=one, ops=[ast.Eq() | ast.NotEq()], comparators=[other]):
            yield from (one, other)
        case ast.JoinedStr():
            yield node


def _texts(node: ast.expr, constants: Mapping[str, set[str]]) -> set[str]:
    """The texts that an expression may be, with an `x` for each part that is not known."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name(id=name):
            return constants.get(name, set())
        case ast.JoinedStr(values=parts):
            return {"".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in parts)}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            heads, tails = _texts(left, constants) or {"x"}, _texts(right, constants) or {"x"}
            return {head + tail for head in heads for tail in tails}
        case ast.BinOp(left=form, op=ast.Mod()):
            return {text.replace("%s", "x") for text in _texts(form, constants)}
        case ast.Call(func=ast.Attribute(value=form, attr="format")):
            return {text.replace("{}", "x") for text in _texts(form, constants)}
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return {text for part in parts for text in _texts(part, constants)}
    return set()


def _is_key(text: str) -> bool:
    """Whether it is a key that grete knows, or how some of one section begin."""
    first, dot, _ = text.partition(".")
    if not dot or first not in SECTIONS or any(letter.isspace() for letter in text):
        return False
    return text.endswith(".") or find_key(text) is not None


def _constants(tree: ast.Module) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = _texts(value, found)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = _texts(value, found)
    return found


def _names_of_spark_options(tree: ast.Module) -> set[str]:
    assigned = (
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_spark_options(node.value)
    )
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _is_spark_options(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Attribute(attr="spark"), attr="options"):
            return True
    return False


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_of_table(key: ast.expr, imported: set[str]) -> bool:
    """Whether the key is `KEY.name` or `KEY.named(...)` of an imported key, or of an imported table."""
    match key:
        case ast.Call(func=ast.Attribute(value=of, attr="named")) | ast.Attribute(value=of, attr="name"):
            return any(isinstance(name, ast.Name) and name.id in imported for name in ast.walk(of))
    return False
