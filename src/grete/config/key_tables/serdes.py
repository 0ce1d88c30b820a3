"""Keys of serdes, `serializers.registry.<name>.*`."""

from __future__ import annotations

from grete.config import aliases
from grete.config.key import BOOLEAN, PATH, TEXT, ChangeClass, Key

_QUERY = ChangeClass.RESTART_QUERY
_SERDE = "serializers.registry.%s"

SERDE_CLASS = Key(
    f"{_SERDE}.class",
    TEXT,
    None,
    _QUERY,
    "A serde by name: a built-in one (bytes, string, json, integer, long, double, uuid, avro, "
    "avro-registry), Samza's factory or `module:Class`.",
    aliases=aliases.SERDES,
)
SERDE_SCHEMA = Key(
    f"{_SERDE}.schema",
    TEXT,
    None,
    _QUERY,
    "The schema of a serde `avro` or `avro-registry`: Avro's JSON, or the path of a file that has it. In a "
    "DataFrame pipeline of a serde `json` as well: columns as in Spark's DDL (`id BIGINT, items ARRAY<STRING>`), or "
    "a file.",
    default_doc="for `avro-registry` the newest of its subject",
)
REGISTRY_URL = Key(
    f"{_SERDE}.schema.registry.url",
    TEXT,
    None,
    _QUERY,
    "The schema registry of a serde `avro-registry`, `http(s)://`.",
)
REGISTRY_SUBJECT = Key(
    f"{_SERDE}.subject",
    TEXT,
    None,
    _QUERY,
    "The subject under which the registry has the schemas of a serde `avro-registry`.",
    default_doc="`<stream>-key` or `<stream>-value`",
)
REGISTRY_LOGIN = Key(
    f"{_SERDE}.basic.auth.user.info",
    TEXT,
    None,
    _QUERY,
    "`user:password` for the schema registry; write a reference.",
    is_secret=True,
)
REGISTRY_CA = Key(
    f"{_SERDE}.schema.registry.ssl.ca.location",
    PATH,
    None,
    _QUERY,
    "Certificates (PEM) that the registry's has to be signed by.",
    default_doc="those of the machine",
)
REGISTRY_REGISTERS = Key(
    f"{_SERDE}.auto.register.schemas",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether a schema that is written, and that the registry does not have under the subject, is added there. "
    "Otherwise the job fails and says so.",
)
SERDE_COLUMNS = Key(
    f"{_SERDE}.columns",
    TEXT,
    None,
    _QUERY,
    "The type of what a serde of the application's own reads, for a DataFrame pipeline that has it decoded, as in "
    "Spark's DDL: columns (`id BIGINT, tags ARRAY<STRING>`) of a dict, or one type (`BIGINT`).",
)
SERDE_OTHER = Key(
    f"{_SERDE}.%s", TEXT, None, _QUERY, "Settings of a serde of the application's own.", is_open=True
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
