"""A new project from a job of Apache Samza's: `grete migrate samza`'s answer, and a class to be ported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grete.config.key_tables.job import APPLICATION_PATH, JOB_NAME, TASK_CLASS
from grete.config.properties import format_properties
from grete.errors import ConfigError
from grete.migration.check import Migration, check
from grete.migration.write import written_properties
from grete.projects.render import checked_module, compatible_release, rendered


def samza_project(origin: Path, config: Mapping[str, str]) -> tuple[str, Mapping[str, str], Migration]:
    """The job's name, each file's text by its path in the project, and what was found of the configuration.

    Raises:
        ConfigError: the job has no name, or its class one that Python cannot take.
    """
    migration = check(config)
    name = migration.written.get(JOB_NAME.name)
    if not name:
        raise ConfigError(f"{origin}: it has no {JOB_NAME.name}")
    module, _, class_name = migration.written[TASK_CLASS.name].partition(":")
    checked_module(name, module)
    java = config.get("task.class") or config.get("app.class") or f"the application of {name}"
    words = {
        "name": name,
        "module": module,
        "class_name": class_name,
        "java": java,
        "extras": "spark,kafka" if any(value == "kafka" for value in migration.written.values()) else "spark",
        "release": compatible_release(),
        "what": f"{java}, from Apache Samza. `{module}.py` is to be ported; until then its test only starts the job.",
    }
    files = rendered(
        words,
        {
            "pyproject.toml": "common/pyproject.toml",
            ".gitignore": "common/gitignore",
            "README.md": "samza/README.md",
            f"{module}.py": "samza/application.py",
            f"tests/test_{module}.py": "samza/test.py",
        },
    )
    here = f"\n# Where {module}.py is, beside this file\n{format_properties({APPLICATION_PATH.name: '.'})}"
    files[f"{name}.properties"] = written_properties(migration, origin.name) + here
    return name, files, migration
