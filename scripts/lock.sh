#!/usr/bin/env bash
# Writes requirements/*.txt from requirements/*.in, and the package-lock.json of scripts/azurite and scripts/browser: names, versions and hashes,
# never the address of a registry, so that the locks hold wherever packages come from. `--check` only looks whether
# they keep to that.
set -euo pipefail
cd "$(dirname "$0")/../requirements"

check() {
  if grep -n '://' ../scripts/*/package-lock.json; then
    echo "a package-lock.json must not name a registry or a location" >&2
    exit 1
  fi
  if grep -nE '://|^ *-(i|f) |--(index-url|extra-index-url|find-links|trusted-host)' -- *.in *.txt ../examples/flights/carriers.*; then
    echo "requirements/ and examples/ must not name a registry or a location" >&2
    exit 1
  fi
  local name
  for name in *.in; do
    while read -r package; do
      grep -qiE "^${package//[_-]/[_-]}==" dev.txt || {
        echo "requirements/dev.txt lacks $package of requirements/$name; run make lock" >&2
        exit 1
      }
    done < <(sed -n 's/^\([A-Za-z0-9][A-Za-z0-9_.-]*[A-Za-z0-9]\).*/\1/p' "$name")
  done
}

lock() { # from what is asked for, into a lock; with options of one's own
  "$tools/bin/pip-compile" --quiet --generate-hashes --strip-extras --no-header \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host "${@:3}" --output-file "$2" "$1" </dev/null
}

if [ "${1:-}" != --check ]; then
  tools=../.cache/lock
  test -x "$tools/bin/pip-compile" || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet pip-tools
  }
  for name in build dev; do
    lock "$name.in" "$name.txt" --allow-unsafe
  done
  lock ../examples/flights/carriers.in ../examples/flights/carriers.lock --no-annotate
  lock ../scripts/packages/audit.in ../scripts/packages/audit.txt --no-annotate --allow-unsafe
  lock runtime.in runtime.txt --no-annotate --allow-unsafe --constraint dev.txt # what an image and the list of a release have
  lock ../scripts/packages/dist.in ../scripts/packages/dist.txt --no-annotate --allow-unsafe
  lock ../scripts/packages/site.in ../scripts/packages/site.txt --allow-unsafe
  for name in application kerberos; do
    lock "../scripts/packages/$name.in" "../scripts/packages/$name.txt" --no-annotate
  done
  for name in connect connect-4.1.2 connect-4.2.0; do
    lock "../scripts/packages/$name.in" "../scripts/packages/$name.txt" --no-annotate \
      --unsafe-package numpy --unsafe-package pandas --unsafe-package pyarrow --unsafe-package python-dateutil \
      --unsafe-package pytz --unsafe-package six --unsafe-package tzdata
  done
  for name in azurite browser; do (
    cd "../scripts/$name"
    npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund \
      --loglevel error </dev/null
    node -e 'const fs = require("fs"), lock = JSON.parse(fs.readFileSync("package-lock.json"));
      for (const each of Object.values(lock.packages)) ["funding", "license", "deprecated"].map(key => delete each[key]);
      fs.writeFileSync("package-lock.json", JSON.stringify(lock, null, 2) + "\n")'
  ); done
fi
check
