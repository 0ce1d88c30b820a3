#!/usr/bin/env bash
# What the machine itself must bring: Python 3.11 or newer with venv, and Java 17 for Spark.
set -euo pipefail

python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || {
  echo "grete needs Python 3.11 or newer with the venv module" >&2
  exit 1
}

if ! command -v java >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null
  else
    echo "grete needs Java 17 or newer for Spark; on Debian: apt-get install openjdk-17-jre-headless" >&2
    exit 1
  fi
fi

version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
if [ "${version:-0}" -lt 17 ]; then
  echo "Spark 4 needs Java 17 or newer, found ${version:-none}; set JAVA_HOME" >&2
  exit 1
fi
