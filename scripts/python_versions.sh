#!/usr/bin/env bash
# usage: scripts/python_versions.sh [VERSION...]   fast tests and a whole job on other versions of Python than the usual one
# Each that is on the machine (3.12, 3.13, 3.14) gets an environment of its own, with what is locked.
set -euo pipefail
cd "$(dirname "$0")/.."
found=()
for version in "${@:-3.12 3.13 3.14}"; do for one in $version; do
  python=
  for candidate in "python$one" "$HOME"/.pyenv/versions/"$one".*/bin/python; do
    if "$candidate" -c "" 2>/dev/null; then python=$candidate; fi
  done
  if [ -z "$python" ]; then
    echo "Python $one is not on this machine"
    continue
  fi
  environment=.cache/python-$one
  if ! cmp -s requirements/dev.txt "$environment/installed.txt"; then
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --require-hashes -r requirements/build.txt
    "$environment/bin/python" -m pip install --quiet --require-hashes --no-build-isolation -r requirements/dev.txt
    "$environment/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e . -e workbench
    cp requirements/dev.txt "$environment/installed.txt"
  fi
  echo "Python $one"
  PYSPARK_PYTHON=$PWD/$environment/bin/python "$environment/bin/python" -m tests.harness --workers 2 -q \
    tests/unit tests/wire tests/property tests/e2e/test_counter_job.py
  found+=("$one")
done; done
[ ${#found[@]} -gt 0 ] || { echo "none of them is on this machine" >&2; exit 1; }
