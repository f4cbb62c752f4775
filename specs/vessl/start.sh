#!/bin/sh
# Starts rdzv in the image of a VESSL run: `sh start.sh launch ...` or `sh start.sh worker ...`.
# rdzv gets an environment of its own where the image does not hold this very rdzv: ../install.sh.
# A launcher whose image has no command vessl uses VESSL's HTTP API, so nothing else is installed.
set -eu
specs=$(cd "$(dirname "$0")/.." && pwd)
commands=$(sh "$specs/install.sh")
PATH="$PATH:$commands"
if [ "$1" = launch ] && [ "${ROLE:-launcher}" != worker ] && [ "${RDZV_SCHEDULER:-}" = vessl ] &&
  ! command -v vessl > /dev/null; then
  echo "start.sh: this image has no command vessl: using VESSL's HTTP API (vessl-http)" >&2
  export RDZV_SCHEDULER=vessl-http
fi
exec "$commands/rdzv" "$@" # not another that the image may have on its PATH
