#!/usr/bin/env bash
# usage: scripts/spark_versions.sh [VERSION...]   tests of whole jobs on other versions of Spark than the installed one
# Each pyspark is put before that of the virtual environment, in processes of the tests and in Spark's own. Without
# Kafka: not every version has its connector everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/grete
for version in "${@:-4.0.1 4.1.1 4.3.0}"; do for one in $version; do
  packages=$cache/pyspark-$one
  if [ ! -e "$packages/complete" ]; then
    rm -rf "$packages"
    "$python" -m pip install -q --target "$packages" "pyspark==$one"
    touch "$packages/complete"
  fi
  tests="tests/e2e/test_counter_job.py"
  case $one in 4.0.*|4.1.*) ;; *) tests="$tests tests/e2e/test_dry_run.py tests/e2e/test_spark_progress.py" ;; esac
  echo "Spark $one"
  # shellcheck disable=SC2086 - several files
  PYTHONPATH="$packages${PYTHONPATH:+:$PYTHONPATH}" "$python" -m pytest -q -k "not kafka" $tests
done; done
