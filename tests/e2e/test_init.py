"""A project that `grete init` wrote does what its README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.testing.waiting import patient

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
def test_the_readme_of_a_new_pipeline_works_as_written(tmp_path: Path) -> None:
    """Its test too; without its first line, which installs what this environment has."""
    folder = tmp_path / "rooms"
    assert main(["init", str(folder), "--kind", "pipeline", "--system", "local"]) == 0
    [block] = re.findall(r"```bash\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    install, _, script = block.partition("\n")
    assert install == "pip install -e '.[test]'"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GRETE_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        timeout=patient(280),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    alarms = re.findall(r'"key":"(\w+)","value":{"celsius":([\d.]+)}', done.stdout)
    assert sorted(alarms) == [("boiler", "96.0"), ("boiler", "99.1"), ("pump", "93.2")], done.stdout
