#!/bin/sh
# Starts rdzv in the image of a VESSL run: `sh start.sh launch ...` or `sh start.sh worker ...`.
# rdzv gets an environment of its own (../install.sh), and so does the command vessl where the image
# has none and the launcher needs it: both have pins that are none of the user's business.
set -eu
specs=$(cd "$(dirname "$0")/.." && pwd)
commands=$(sh "$specs/install.sh")
PATH="$PATH:$commands"

install_vessl() {
  for python in python3 python3.12 python3.11 python3.10 python3.9; do
    if "$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))' 2> /dev/null; then
      echo "start.sh: installing vessl 0.1.199 for $python in $1" >&2
      "$python" -m venv --clear "$1/venv" > /dev/null
      "$1/venv/bin/python" -m pip install --quiet --disable-pip-version-check vessl==0.1.199 >&2
      mkdir -p "$1/command"
      ln -sf ../venv/bin/vessl "$1/command/vessl"
      return
    fi
  done
  echo "start.sh: the command vessl needs Python 3.9 to 3.12, and this image has none: set" \
    "RDZV_SCHEDULER: vessl-http in the launcher's spec, which needs no command" >&2
  exit 1
}

if [ "$1" = launch ] && [ "${ROLE:-launcher}" != worker ] && [ "${RDZV_SCHEDULER:-}" = vessl ] &&
  ! command -v vessl > /dev/null; then
  home=${RDZV_VESSL_VENV:-/opt/rdzv-vessl}
  [ -e "$home/command/vessl" ] || install_vessl "$home"
  PATH="$PATH:$home/command"
fi
exec rdzv "$@"
