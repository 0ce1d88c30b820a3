"""The archive of Spark's classes is there whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_place_that_cannot_be_written_is_named_before_spark_starts(tmp_path: Path) -> None:
    place = tmp_path / "file" / "spark.jsa"
    place.parent.write_text("no folder")
    done = subprocess.run(
        [sys.executable, "-m", "grete.spark.class_archive", str(place)],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},  # no Java
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{place} was not written: ")
    assert "Traceback" not in done.stderr
