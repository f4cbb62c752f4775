#!/bin/sh
# Puts rdzv beside the user's packages: a virtual environment of its own, so that no pin moves.
# Prints the folder to append to PATH; `rdzv` is the only command in it.
#
#   PATH="$PATH:$(sh specs/install.sh)"                   from the checkout that this file lies in
#   PATH="$PATH:$(sh install.sh 'rdzv[launcher]')"        from an index, a wheel or a folder
#
# RDZV_VENV says where to (/opt/rdzv; for others than root ~/.rdzv), RDZV_PYTHON by which Python.
# Several tasks may run it at once. It does nothing where it is done and the source has not changed.
set -eu
# What the user's image sets for the user's own installations: it is not for ours.
unset PYTHONPATH PYTHONHOME PIP_CONSTRAINT PIP_PREFIX PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_USER

source=${1:-$(cd "$(dirname "$0")/.." && pwd)}
what=$source
if [ -d "$source" ]; then what="$source[launcher]"; fi
home=/opt/rdzv
if [ "$(id -u)" -ne 0 ]; then home=$HOME/.rdzv; fi
home=${RDZV_VENV:-$home}
mark=$home/command/rdzv

up_to_date() {
  [ -e "$mark" ] || return 1
  [ -e "$source" ] || return 0
  changed=$(find "$source" \( -name '.?*' -o -name __pycache__ -o -name build -o -name dist \) -prune \
    -o -type f -newer "$mark" -print)
  [ -z "$changed" ]
}

find_python() {
  for python in "${RDZV_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then return; fi
  done
  echo "install.sh: rdzv needs Python 3.11 or later, and finds none here; your program may go on" \
    "with an older one: install a newer one beside it and name it with RDZV_PYTHON" >&2
  exit 1
}

install() {
  find_python
  rm -rf "$home/command"
  if "$python" -m venv --clear "$home/venv" > /dev/null 2>&1; then
    "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$what"
  else # Debian and Ubuntu keep what brings pip into a new environment in python3-venv
    "$python" -m venv --clear --without-pip "$home/venv"
    "$python" -m pip --python "$home/venv/bin/python" install --quiet "$what"
  fi
  mkdir "$home/command"
  ln -s ../venv/bin/rdzv "$mark"
}

mkdir -p "$home"
exec 9> "$home/lock"
if command -v flock > /dev/null; then flock 9; fi
if ! up_to_date; then install >&2; fi
echo "$home/command"
