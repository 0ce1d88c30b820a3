#!/usr/bin/env bash
# usage: scripts/image.sh [NAME]   the image of packaging/image, by buildah, podman or docker, whichever is there
# The wheels are those of requirements/runtime.txt, by their hashes. BASE names another image of Debian to begin with.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
name=${1:-grete}
wheels=.cache/wheels
if ! cmp -s requirements/runtime.txt "$wheels/complete"; then
  rm -rf "$wheels"
  .venv/bin/python -m pip wheel --quiet --require-hashes --no-build-isolation -r requirements/runtime.txt -w "$wheels"
  cp requirements/runtime.txt "$wheels/complete"
fi
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp packaging/image/* "$context"
mkdir "$context/wheels"
ln "$wheels"/*.whl "$context/wheels/" 2>/dev/null || cp "$wheels"/*.whl "$context/wheels/"
built_from_the_commit "$context/wheels" wheel
epoch=$(git log -1 --format=%ct)
base=(${BASE:+--build-arg "BASE=$BASE"})
if command -v buildah >/dev/null; then
  # the same commit and packages of Debian's give the same layers
  buildah build --quiet --timestamp "$epoch" "${base[@]}" --tag "$name" "$context"
else
  "$(command -v podman || command -v docker)" build --quiet "${base[@]}" --tag "$name" "$context"
fi
