#!/usr/bin/env bash
# The documentation as a site in build/site: Sphinx in an environment of its own, beside grete's, which it documents.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
environment=.cache/site locked=scripts/packages/site.txt
locked_environment "$environment" "$locked"
if [ -n "$is_made" ]; then
  packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
  printf '%s\n' "$PWD/src" "$PWD/workbench" "$(packages .venv)" >"$(packages "$environment")/grete.pth"
fi
exec "$environment/bin/python" docs/site/build.py
