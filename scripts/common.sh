# Sourced by the scripts of releases and of the site, from the folder above: what more than one of them does.

built_from_the_commit() { # folder, kinds of hatchling's (sdist, wheel): the same commit gives the same bytes
  local source python=$PWD/.venv/bin/python into kind targets=()
  into=$(realpath "$1")
  for kind in "${@:2}"; do targets+=(-t "$kind"); done
  source=$(mktemp -d)
  git -c tar.umask=0022 archive HEAD | tar -x -C "$source"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  (cd "$source" && "$python" -m hatchling build "${targets[@]}" -d "$into" >/dev/null)
  rm -rf "$source"
}

locked_environment() { # folder, lock: made when the lock is another one, and then `is_made` is not empty
  is_made=
  cmp -s "$2" "$1/installed.txt" && return
  rm -rf "$1"
  .venv/bin/python -m venv --without-pip "$1"
  .venv/bin/python -m pip --python "$1/bin/python" install --quiet --require-hashes -r "$2"
  cp "$2" "$1/installed.txt"
  is_made=yes
}
