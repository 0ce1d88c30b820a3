#!/usr/bin/env bash
# The documentation as a site in build/site: Sphinx in an environment of its own, beside grete's, which it documents.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=.cache/site locked=scripts/packages/site.txt
if ! cmp -s "$locked" "$environment/installed.txt"; then
  rm -rf "$environment"
  .venv/bin/python -m venv "$environment"
  "$environment/bin/python" -m pip install --quiet --require-hashes -r "$locked"
  packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
  printf '%s\n' "$PWD/src" "$PWD/workbench" "$(packages .venv)" >"$(packages "$environment")/grete.pth"
  cp "$locked" "$environment/installed.txt"
fi
exec "$environment/bin/python" docs/site/build.py
