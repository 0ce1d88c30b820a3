#!/bin/sh
# The interpreter of Spark's workers on this machine: that of the driver, $GRETE_WORKER_PYTHON, without the archives that
# Spark puts before its packages. See worker_python.py.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/*.jar) ;;
    *) kept=${kept:+$kept:}$entry ;;
  esac
done
PYTHONPATH=$kept exec "$GRETE_WORKER_PYTHON" "$@"
