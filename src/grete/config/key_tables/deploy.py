"""Keys of deployments: where a cluster manager is, and what it gets besides Spark's own settings."""

from __future__ import annotations

from grete.config.key import PATH, TEXT, ChangeClass, Key

_DEPLOY = ChangeClass.RESTART_CONTAINER
_PREFIX = "job.deploy"

ENVIRONMENT = Key(
    f"{_PREFIX}.environment.path",
    TEXT,
    None,
    _DEPLOY,
    "An archive (`.tgz`) with `bin/python`, grete, PySpark and the application's packages, which YARN unpacks on "
    "each node; a path or a URL of Hadoop.",
    default_doc="the interpreter of `grete deploy`, which every node has to have in the same place",
)
YARN_CONF = Key(
    f"{_PREFIX}.yarn.conf.dir",
    PATH,
    None,
    _DEPLOY,
    "Folder of Hadoop's configuration (`core-site.xml`, `yarn-site.xml`) for `grete deploy`.",
    default_doc="`YARN_CONF_DIR`, else `HADOOP_CONF_DIR`",
)
YARN_ADDRESS = Key(
    f"{_PREFIX}.yarn.address",
    TEXT,
    None,
    _DEPLOY,
    "Web services of the ResourceManager, `http://HOST:8088`; several with commas between them.",
    default_doc="what `yarn-site.xml` says",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
