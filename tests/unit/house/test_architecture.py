"""docs/architecture.md and `.importlinter` say the same, and the linter's contracts leave nothing out."""

from __future__ import annotations

import ast
import re
import sys
from configparser import ConfigParser
from pathlib import Path

import grete

PACKAGE = Path(grete.__file__).parent
ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()
IN_MANY_ROOMS = {
    "apsw": "statements and errors of SQLite files, which grete.sqlite_file alone opens",
    "google_crc32c": "the checksum of a wire format, and of the cases that check it",
    "msgspec": "classes of what is exchanged",
    "orjson": "JSON",
    "pytest": "the test kit is fixtures and suites",
    "yaml": "configurations, kubeconfigs and manifests are YAML",
}


def test_the_drawing_of_layers_is_the_linters() -> None:
    drawing = DOCUMENT.partition("```\n")[2].partition("```")[0]
    drawn = [set(re.findall(r"\bgrete\.(\w+)", line)) for line in drawing.splitlines()]
    assert drawn == [
        {name.strip() for name in line.split("|")} for line in _contracts()["layers"]["layers"].split("\n")
    ]


def test_a_package_that_is_in_no_layer_breaks_the_contract() -> None:
    assert _contracts()["layers"]["exhaustive"] == "true"


def test_contracts_that_the_document_names_are_the_linters() -> None:
    named = {" ".join(name.split()) for name in re.findall(r'\bcontract\s+"([^"]+)"', DOCUMENT)}
    assert named
    assert named <= {contract["name"] for contract in _contracts().values()}


def test_a_library_is_imported_in_the_rooms_that_its_contract_names() -> None:
    protected = {
        name
        for contract in _contracts().values()
        if contract["type"] == "protected"
        for name in contract["protected_modules"].split()
    }
    assert _libraries() - set(IN_MANY_ROOMS) == protected
    assert set(IN_MANY_ROOMS) <= _libraries()


def _contracts() -> dict[str, dict[str, str]]:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    head = "importlinter:contract:"
    return {
        section.removeprefix(head): {key: value.strip() for key, value in parser[section].items()}
        for section in parser.sections()
        if section.startswith(head)
    }


def _libraries() -> set[str]:
    """What is imported that neither Python nor grete brings."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    found |= {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"grete"}
