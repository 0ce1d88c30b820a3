"""What `grete doctor` shows of a job whose leaders are elected over a journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.toys import SYSTEM_KEY

from grete.config.settings import Settings
from grete.finding import Finding


def findings(settings: Settings) -> Iterator[Finding]:
    folder = Path(settings.raw[SYSTEM_KEY])
    yield Finding("journal", folder.is_dir(), str(folder), f"set {SYSTEM_KEY} to a folder that is there")
