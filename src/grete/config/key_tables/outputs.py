"""Keys of a DataFrame pipeline's outputs that are no streams: files, tables, databases."""

from __future__ import annotations

from grete.config.key import LIST, LOCATION, TEXT, ChangeClass, Key

_QUERY = ChangeClass.RESTART_QUERY

OUTPUT_FORMAT = Key(
    "outputs.%s.format",
    TEXT,
    None,
    _QUERY,
    "Where an output of a DataFrame pipeline goes that is no stream: `delta`, `jdbc`, or a file format of Spark's "
    "(`parquet`, `orc`, `json`, `csv`, `avro`, `text`).",
)
OUTPUT_PATH = Key(
    "outputs.%s.path",
    LOCATION,
    None,
    _QUERY,
    "The table's or the files' folder, on any file system that Spark knows. A relative one is below the folder in "
    "which the command was typed.",
)
OUTPUT_PARTITION_BY = Key(
    "outputs.%s.partition.by",
    LIST,
    "",
    _QUERY,
    "Columns by which a new Delta table or files are partitioned.",
)
OUTPUT_KEYS = Key(
    "outputs.%s.keys",
    LIST,
    "",
    _QUERY,
    "Columns of a Delta table or of a database's by which a row takes the place of the one that is there; without "
    "them rows are added.",
)
OUTPUT_ORDER_BY = Key(
    "outputs.%s.order.by",
    TEXT,
    None,
    _QUERY,
    "With `keys`: the column by which the last of several rows of a batch with the same keys counts.",
)
OUTPUT_DELETED_COLUMN = Key(
    "outputs.%s.deleted.column",
    TEXT,
    None,
    _QUERY,
    "With `keys`: the column that is true where the row with these keys is to be deleted. It is not written.",
)
OUTPUT_URL = Key("outputs.%s.url", TEXT, None, _QUERY, "The database, `jdbc:...`; may have references.")
OUTPUT_TABLE = Key("outputs.%s.table", TEXT, None, _QUERY, "The table, which is there already.")
OUTPUT_USER = Key("outputs.%s.user", TEXT, None, _QUERY, "The database's user.")
OUTPUT_PASSWORD = Key(
    "outputs.%s.password", TEXT, None, _QUERY, "The user's password, by reference.", is_secret=True
)
OUTPUT_DRIVER = Key(
    "outputs.%s.driver",
    TEXT,
    None,
    _QUERY,
    "The class of the JDBC driver, whose jar `spark.jars` or `spark.jars.packages` brings.",
    default_doc="PostgreSQL's, for its URLs",
)
OUTPUT_OPTION = Key(
    "outputs.%s.option.%s", TEXT, None, _QUERY, "Options of Spark's writer, by its names.", is_open=True
)

TABLE: tuple[Key[object], ...] = (
    OUTPUT_FORMAT,
    OUTPUT_PATH,
    OUTPUT_PARTITION_BY,
    OUTPUT_KEYS,
    OUTPUT_ORDER_BY,
    OUTPUT_DELETED_COLUMN,
    OUTPUT_URL,
    OUTPUT_TABLE,
    OUTPUT_USER,
    OUTPUT_PASSWORD,
    OUTPUT_DRIVER,
    OUTPUT_OPTION,
)
