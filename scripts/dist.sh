#!/usr/bin/env bash
# usage: scripts/dist.sh [FOLDER]   what a release is, into the folder (dist): wheel, source, what it brings, digests
# All is of the commit: the same one gives the same bytes, whenever and wherever it is built.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$(realpath -m "${1:-dist}")
tools=.cache/dist runtime=.cache/runtime

environment() { # folder, lock, options of pip
  cmp -s "$2" "$1/installed.txt" && return
  rm -rf "$1"
  .venv/bin/python -m venv --without-pip "$1"
  .venv/bin/python -m pip --python "$1/bin/python" install --quiet --require-hashes -r "${@:2}"
  cp "$2" "$1/installed.txt"
}

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git -c tar.umask=0022 archive HEAD | tar -x -C "$source"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$into"
mkdir -p "$into"
python=$PWD/.venv/bin/python
(cd "$source" && "$python" -m hatchling build -t sdist -t wheel -d "$into" >/dev/null)

environment "$tools" scripts/packages/dist.txt
environment "$runtime" requirements/runtime.txt
"$python" -m pip --python "$runtime/bin/python" install --quiet --no-deps --force-reinstall "$into"/grete-*.whl
version=$("$runtime/bin/python" -c 'import grete; print(grete.__version__)')
"$tools/bin/cyclonedx-py" environment "$runtime/bin/python" --pyproject "$source/pyproject.toml" --output-reproducible \
  --output-format JSON --output-file "$into/grete-$version.cdx.json"
(cd "$into" && sha256sum grete-* >SHA256SUMS)
cat "$into/SHA256SUMS"
