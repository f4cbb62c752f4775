#!/bin/sh
# Node 0 runs "$@"; the others keep their machines until it has ended.
[ "$NODE_RANK" = 0 ] && exec "$@"
exec sleep infinity
