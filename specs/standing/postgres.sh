#!/bin/sh
# A PostgreSQL server of docker-compose.yml. The first time it makes its files; then it becomes it.
#
#   postgres.sh primary
#   postgres.sh standby PRIMARY NAME      NAME is what synchronous_standby_names calls it
set -eu
export PGDATA=/var/lib/postgresql/rdzv PGPASSFILE=/tmp/pgpass
if [ "$(id -u)" -eq 0 ]; then # who alone can read the host's file; PostgreSQL refuses to run as root
  install -o postgres -m 600 /run/secrets/pgpass "$PGPASSFILE"
  exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$@"
fi

make_primary() {
  initdb --pgdata="$PGDATA.new" --username=postgres --encoding=UTF8 --no-locale --data-checksums \
    --auth-local=peer --auth-host=scram-sha-256
  printf 'host rdzv rdzv all scram-sha-256\nhost replication standby all scram-sha-256\n' \
    >> "$PGDATA.new/pg_hba.conf"
  password=$(sed 's/.*://' "$PGPASSFILE")
  postgres --single -D "$PGDATA.new" postgres << END
CREATE ROLE standby LOGIN REPLICATION PASSWORD '$password'
CREATE ROLE rdzv LOGIN PASSWORD '$password'
CREATE DATABASE rdzv OWNER rdzv
END
}

make_standby() {
  pg_basebackup --pgdata="$PGDATA.new" --checkpoint=fast --write-recovery-conf \
    --dbname="host=$1 user=standby application_name=$2"
}

if [ ! -d "$PGDATA" ]; then
  rm -rf "$PGDATA.new"
  role=$1
  shift
  "make_$role" "$@"
  mv "$PGDATA.new" "$PGDATA"
fi
# A server never follows itself: the same line for all of them, also after one was promoted.
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp -c wal_keep_size=256MB \
  -c synchronous_standby_names='ANY 1 (db1, db2, db3)'
