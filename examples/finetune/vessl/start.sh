#!/bin/sh
# What train.py needs goes into the image's own Python, and torch stays as the image has it; rdzv
# then starts beside it, in an environment of its own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
pins=$(mktemp)
python3 -c 'import torch; print("torch==" + torch.__version__)' > "$pins"
python3 -m pip install --quiet --disable-pip-version-check -c "$pins" -r "$here/../requirements.txt"
command -v rdzv > /dev/null || sh -c "$INSTALL"
exec rdzv "$@"
