"""`python -m grete_workbench.documents.settings` prints docs/configuration.md from the table of keys."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from grete.config import aliases
from grete.config.key import Key
from grete.config.keys import SUBJECTS

_HEAD = """\
# Configuration

<!-- Made by `python -m grete_workbench.documents.settings`; change src/grete/config/key_tables, not this file. -->

A configuration is a flat mapping of names to strings. `grete run --config FILE` reads `.properties`, YAML and TOML;
nested names are joined with dots. Later files win over earlier ones, `--set KEY=VALUE` over files. The whole of it is
checked before anything is written, and every problem is reported at once.

- **Encoding.** A `.properties` file is read by Java's rules: escapes, continuation lines, three separators. One that
  is valid UTF-8 is UTF-8, any other ISO-8859-1, which is what Java assumes. `\\u00e9` means the same to both.
- **Values.** Scalars stay as they are written: `1.10` stays `1.10` and `yes` stays `yes`. A list is its items with
  commas between them. A null is no value; `""` is one.
- **Secrets** are references: `${env:NAME}` and `${file:/path}`. They are resolved only in the process that needs
  them (an application finds the values of its own keys in `context.config`), and stay references in the coordinator
  stream, over HTTP and in logs. Values of names with `password`,
  `secret`, `token`, `credential`, `jaas`, `sas` or a closing `key` in them, and of names under `sensitive.`, are
  shown as `********`.
- **Old names** work. Samza's deprecated names give their value where today's name is not set, with a warning.
- `%s` stands for a name: of a system, a stream, a store, a serde, a rewriter.

What a change touches:

| class | meaning |
|---|---|
| live | applied in place |
| restart-query | the streaming query starts again inside its Spark application |
| restart-container | the Spark application starts again |
| set-once | refused once the job has state: give the job a new `job.id`, or set the key back |
| internal | written by grete |

A key that is in none of the tables is the application's own; its change restarts the containers.
"""

_NAMES = """\
## Names of implementations

Where a key names an implementation, Samza's class names work as well.

| kind | name | Samza's names |
|---|---|---|
"""


def document() -> str:
    """The whole text, ending in a line break."""
    parts = [_HEAD, *(_section(title, table) for title, table in SUBJECTS), _names()]
    return "\n".join(parts)


def _section(title: str, table: Sequence[Key[object]]) -> str:
    used = [_row(key) for key in table if not key.no_effect]
    unused = [
        f"| `{key.name}` | {_default(key)} | {_cell(key.no_effect)} |" for key in table if key.no_effect
    ]
    lines = [f"## {title}", "", "| key | type | default | change | meaning |", "|---|---|---|---|---|", *used]
    if unused:
        lines += ["", "Accepted from Samza's configurations, without effect:", ""]
        lines += ["| key | Samza's default | why |", "|---|---|---|", *unused]
    return "\n".join(lines) + "\n"


def _row(key: Key[object]) -> str:
    meaning = " ".join(_meaning(key))
    return f"| `{key.name}` | {_cell(key.type.name)} | {_default(key)} | {key.change} | {_cell(meaning)} |"


def _meaning(key: Key[object]) -> Iterator[str]:
    yield key.doc
    if key.unit:
        yield f"In {key.unit}."
    if key.is_secret:
        yield "Never shown."
    if key.spellings:
        yield f"Also {_listed(key.spellings)}."
    if key.renamed_from:
        yield f"Deprecated: {_listed(key.renamed_from)}."
    if key.fallbacks:
        yield f"Where it is not set, {_listed(key.fallbacks)} stands in, with a warning."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(key: Key[object]) -> str:
    if key.default_doc:
        return _cell(key.default_doc)
    return f"`{_cell(key.default)}`" if key.default is not None else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _names() -> str:
    rows = [
        f"| {group.removeprefix('grete.').replace('_', ' ')} | `{name}` | {_listed(others)} |"
        for group, names in aliases.ALIASES.items()
        for name, others in names.items()
    ]
    return _NAMES + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
