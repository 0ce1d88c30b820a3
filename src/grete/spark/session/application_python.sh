#!/bin/sh
# The interpreter of an application's own environment, $GRETE_APPLICATION_PYTHON, for the functions that it brings: of the
# modules that Spark's process finds it has Spark's alone, the application's and the API. Called as Spark calls it,
# -m DAEMON WORKER. See worker_python.py.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    "$SPARK_HOME"/python/lib/*.zip) kept=${kept:+$kept:}$entry ;;
  esac
done
unset IFS
start=${0%/spark/*}/application/start.py
PYTHONPATH=$kept exec "$GRETE_APPLICATION_PYTHON" -P "$start" functions "$GRETE_APPLICATION_PATH" "$3"
