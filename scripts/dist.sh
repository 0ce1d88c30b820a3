#!/usr/bin/env bash
# usage: scripts/dist.sh [FOLDER]   what a release is, into the folder (dist): wheel, source, what it brings, digests
# All is of the commit: the same one gives the same bytes, whenever and wherever it is built.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
into=$(realpath -m "${1:-dist}")
tools=.cache/dist runtime=.cache/runtime

rm -rf "$into"
mkdir -p "$into"
built_from_the_commit "$into" sdist wheel

locked_environment "$tools" scripts/packages/dist.txt
locked_environment "$runtime" requirements/runtime.txt
.venv/bin/python -m pip --python "$runtime/bin/python" install --quiet --no-deps --force-reinstall "$into"/grete-*.whl
version=$("$runtime/bin/python" -c 'import grete; print(grete.__version__)')
"$tools/bin/cyclonedx-py" environment "$runtime/bin/python" --pyproject <(git show HEAD:pyproject.toml) \
  --gather-license-texts --output-reproducible --output-format JSON --output-file "$into/grete-$version.cdx.json"
provenance=$("$tools/bin/python" scripts/provenance.py "$into" "$version" "$(git rev-parse HEAD)")
echo "$provenance" >"$into/grete-$version.provenance.json"
(cd "$into" && sha256sum grete-* >SHA256SUMS)
cat "$into/SHA256SUMS"
