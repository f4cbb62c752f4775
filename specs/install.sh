#!/bin/sh
# Puts rdzv beside the user's packages: a virtual environment of its own, so that no pin moves.
# Prints the folder to append to PATH; `rdzv` is the only command in it.
#
#   PATH="$PATH:$(sh specs/install.sh)"                   from the checkout that this file lies in
#   PATH="$PATH:$(sh install.sh rdzv-0.1.0-py3-none-any.whl)"    from a wheel file, or a folder
#
# RDZV_VENV says where to (/opt/rdzv; for others than root ~/.rdzv), RDZV_PYTHON by which Python,
# RDZV_EXTRAS with which extras, RDZV_CONSTRAINTS with a file of pip's constraints.
# Several tasks may run it at once. An rdzv that is there, or on PATH, and has the source's code and
# worker specs is taken as it is: an image that holds one needs no package index.
set -eu
# What the user's image sets for the user's own installations: it is not for ours.
unset PYTHONPATH PYTHONHOME PIP_CONSTRAINT PIP_PREFIX PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_USER

source=${1:-$(cd "$(dirname "$0")/.." && pwd)}
what=$source
if [ -e "$source" ]; then what="$source[${RDZV_EXTRAS:-launcher}]"; fi
home=${RDZV_VENV:-}
if [ -z "$home" ] && [ "$(id -u)" -eq 0 ]; then home=/opt/rdzv; fi
home=${home:-${HOME:?is not set: name a folder for rdzv with RDZV_VENV}/.rdzv}
mark=$home/command/rdzv

# Of the code in a checkout, an installation or a wheel, and of the specs that the launcher reads.
digest() (
  if [ -f "$1" ]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    "${RDZV_PYTHON:-python3}" -m zipfile -e "$1" "$unpacked" 2> /dev/null || exit 0
    cd "$unpacked"
  else
    cd "$1" 2> /dev/null || exit 0
  fi
  [ ! -d rdzv/_app ] || cd rdzv/_app
  [ -f rdzv_command.py ] || exit 0
  code=$(find rdzv_command.py rendezvous worker launcher features -name '*.py' -o -name '*.toml')
  {
    echo "$code" | LC_ALL=C sort | xargs sha256sum
    cd specs
    find . -name 'worker*' | LC_ALL=C sort | xargs sha256sum
  } | sha256sum
)

# Whether this command is of the source, with the launcher's packages where they are asked for.
fits() {
  said=$("$1" --version 2> /dev/null) || return 1
  case $said in *" from "*"'s packages)") ;; *) return 1 ;; esac
  case $what:$said in *"[launcher"*", a worker's packages)") return 1 ;; esac
  if [ ! -e "$source" ]; then # what pip is to look for; without ==, any version will do
    case $source in *==*) [ "rdzv ${source##*==}" = "${said%% from *}" ] ;; *) true ;; esac
    return
  fi
  folder=${said#* from }
  found=$(digest "${folder% (*}")
  [ -n "$found" ] && [ "$found" = "$(digest "$source")" ]
}

find_python() {
  for python in "${RDZV_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 python3.10; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null; then return; fi
  done
  echo "install.sh: rdzv needs Python 3.10 or later, and found none here; your program can" \
    "continue to use an older one: install a newer one as well, and name it with RDZV_PYTHON" >&2
  exit 1
}

install() {
  rm -rf "$home/command"
  set -- ${RDZV_CONSTRAINTS:+--constraint "$RDZV_CONSTRAINTS"}
  if "$python" -m venv --clear "$home/venv" > /dev/null 2>&1; then
    "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" "$what"
  else # Debian and Ubuntu keep what brings pip into a new environment in python3-venv
    "$python" -m venv --clear --without-pip "$home/venv"
    "$python" -m pip --python "$home/venv/bin/python" install --quiet "$@" "$what"
  fi
  mkdir "$home/command"
  ln -s ../venv/bin/rdzv "$mark"
}

explain() {
  echo "install.sh: rdzv could not be installed from $source: make a package index reachable, or" \
    "install this rdzv in the image with its install.sh; ${other:-there is no rdzv here}" >&2
}

mkdir -p "$home"
exec 9> "$home/lock"
if command -v flock > /dev/null; then flock 9; fi
other=
for rdzv in "$mark" "$(command -v rdzv || true)"; do
  [ -x "$rdzv" ] || continue
  if fits "$rdzv"; then
    dirname "$rdzv"
    exit
  fi
  other="the rdzv at $rdzv has different code or worker specs, or lacks the launcher's packages"
done
[ -z "$other" ] || echo "install.sh: installing $source in $home: $other" >&2
find_python
trap explain EXIT
install >&2
trap - EXIT
echo "$home/command"
