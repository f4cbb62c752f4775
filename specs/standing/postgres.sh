#!/bin/sh
# A PostgreSQL server of docker-compose.yml, called NAME. Whichever of them is the primary, the others
# follow it, and one of these must have each commit.
#
#   postgres.sh primary NAME      be it; the first time, with files of its own
#   postgres.sh standby NAME      be it; the first time, with a copy of the primary's files
#   postgres.sh promote NAME      take the place of a primary that is lost
#   postgres.sh seed NAME         replace the files of a former primary by a copy of the primary's
set -eu
export PGDATA=/var/lib/postgresql/rdzv PGPASSFILE=/tmp/pgpass
if [ "$(id -u)" -eq 0 ]; then # who alone can read the host's file; PostgreSQL refuses to run as root
  install -o postgres -m 600 /run/secrets/pgpass "$PGPASSFILE"
  exec setpriv --reuid=postgres --regid=postgres --clear-groups sh "$0" "$@"
fi
role=$1 name=$2 servers='db1 db2 db3'
others=$(for one in $servers; do [ "$one" = "$name" ] || echo "$one"; done)

fail() {
  echo "postgres.sh: $*" >&2
  exit 1
}

# How to reach whoever is the primary among these servers.
primary_of() {
  echo "host=$(echo "$@" | tr ' ' ,) user=standby application_name=$name connect_timeout=3" \
    "passfile=$PGPASSFILE target_session_attrs=read-write"
}

ask() {
  psql --no-psqlrc --quiet --tuples-only --no-align --field-separator=' ' "$@" 2> /tmp/why
}

# How far the log of a server goes, as words that sort as logs do; nothing where it does not answer.
log_of() {
  found=$(ask "host=$1 user=standby dbname=postgres replication=true connect_timeout=3" \
    --command=IDENTIFY_SYSTEM) || return 0
  echo "$found" | while read -r _ timeline end _; do
    printf '%08X.%08X%08X\n' "$timeline" "0x${end%/*}" "0x${end#*/}"
  done
}

# Whether one of these is the primary.
have_primary() {
  ask "$(primary_of "$@") dbname=postgres replication=true" --command=IDENTIFY_SYSTEM > /dev/null
}

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
  pg_basebackup --pgdata="$PGDATA.new" --checkpoint=fast --dbname="$(primary_of $others)"
  touch "$PGDATA.new/standby.signal"
}

# A commit was acknowledged once one standby had it: the one with the longer log has all of them.
promote() {
  [ -e "$PGDATA/standby.signal" ] || fail "$name is not a standby"
  ! have_primary $servers || fail "a primary still answers: end it first"
  own=$(log_of localhost) silent=0
  for one in $others; do
    its=$(log_of "$one")
    if [ -z "$its" ]; then
      silent=$((silent + 1))
    elif [ "$(printf '%s\n%s\n' "$own" "$its" | sort | tail -n 1)" != "$own" ]; then
      fail "$one has commits that $name lacks: promote $one instead"
    fi
  done
  [ $silent -lt 2 ] || fail "no other server answers, and $name may lack commits: start the other" \
    "standby first. If that is lost as well: pg_ctl promote --pgdata $PGDATA"
  pg_ctl promote --pgdata "$PGDATA"
}

seed() {
  rm -rf "$PGDATA.new"
  make_standby
  rm -rf "$PGDATA"
  mv "$PGDATA.new" "$PGDATA"
}

case $role in
  promote | seed)
    "$role"
    exit
    ;;
esac
if [ ! -d "$PGDATA" ]; then
  rm -rf "$PGDATA.new"
  "make_$role"
  mv "$PGDATA.new" "$PGDATA"
elif [ ! -e "$PGDATA/standby.signal" ] && have_primary $others; then
  fail "another server has become the primary: docker compose run --rm --no-deps $name seed $name"
fi
# The same line for all: a server never follows itself, and a primary follows nobody.
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp -c wal_keep_size=256MB \
  -c primary_conninfo="$(primary_of $servers)" -c wal_receiver_timeout=10s \
  -c wal_retrieve_retry_interval=1s -c synchronous_standby_names='ANY 1 (db1, db2, db3)'
