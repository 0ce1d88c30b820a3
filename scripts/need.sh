#!/usr/bin/env bash
# What the machine itself must bring: Python 3.11 or newer with venv, and Java 17 or newer for Spark. As root on a
# machine with apt what is missing is installed, elsewhere the message says what to do. Then makes the venv.
set -euo pipefail
venv=${1:?usage: need.sh VENV}

install() { # what it is for, then packages
  local purpose=$1
  shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $* ($purpose)"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && apt-get install -y -qq "$@" </dev/null >/dev/null
  else
    echo "$purpose: install $* (Debian: sudo apt-get install $*)" >&2
    exit 1
  fi
}

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-python3.11 python3 python3.12 python3.13}; do
    if command -v "$name" >/dev/null && suits "$name"; then
      echo "$name"
      return
    fi
  done
}

make_venv() {
  local python
  python=$(find_python)
  if [ -z "$python" ]; then
    install "grete needs Python 3.11 or newer" python3 python3-venv
    python=$(find_python)
  fi
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    install "$python lacks the venv module" python3-venv
  fi
  "$python" -m venv "$venv"
}

java_version() {
  "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1
}

# A venv that was cut off in the making, or whose interpreter is gone, is made again.
if ! suits "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  rm -rf "$venv"
  make_venv
fi

version=$(java_version || true)
if [ -z "$version" ]; then
  install "Spark needs Java 17 or newer" openjdk-17-jre-headless
  version=$(java_version)
fi
if [ "$version" -lt 17 ]; then
  echo "Spark 4 needs Java 17 or newer, found Java $version: set JAVA_HOME to one" >&2
  exit 1
fi
