#!/usr/bin/env bash
# What the tests need besides Python and Java, one function a service. The embedded default needs no server; the
# fault tests let system calls fail with strace.
set -euo pipefail

strace_present() {
  command -v strace >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && apt-get install -y -qq strace </dev/null >/dev/null
  else
    echo "the fault tests need strace (Debian: sudo apt-get install strace)" >&2
    exit 1
  fi
}

for service in ${SERVICES:-strace_present}; do
  "$service"
done
