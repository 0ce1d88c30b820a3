#!/usr/bin/env bash
# What the tests need besides Python and Java. The embedded default needs no server at all; the fault tests inject
# errors into system calls with strace.
set -euo pipefail

if ! command -v strace >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq strace >/dev/null
  else
    echo "the fault tests need strace; on Debian: apt-get install strace" >&2
    exit 1
  fi
fi
