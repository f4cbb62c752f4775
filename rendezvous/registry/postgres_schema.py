"""The tables of a journal in PostgreSQL, all in the schema `rdzv`, and the statements on them.

The row of a run stays when its events are dropped: its epoch must not begin again while a process
may hold an earlier one (docs/standing.md, "Room of old runs").
"""

from __future__ import annotations

from typing import Any

from rendezvous.registry.postgres_trouble import asyncpg
from rendezvous.wire.errors import UsageError

LOCKS = 0x72647A76
"""The first key of our advisory locks, `rdzv`; the second is 0 for the schema, or of a session."""
_VERSION = 2
_CREATE = """
CREATE TABLE rdzv.journal (version int NOT NULL, tenants bigint NOT NULL DEFAULT 0);
CREATE TABLE rdzv.replicas (
  id text COLLATE "C" PRIMARY KEY,
  address text NOT NULL,
  seen timestamptz NOT NULL,
  clock float8 NOT NULL,
  session int NOT NULL,
  drains boolean NOT NULL,
  usage text NOT NULL);
CREATE TABLE rdzv.runs (
  run text COLLATE "C" PRIMARY KEY,
  owner text COLLATE "C",
  epoch bigint NOT NULL,
  clock float8 NOT NULL,
  counted float8,
  since timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX runs_owned ON rdzv.runs (owner) WHERE owner IS NOT NULL;
CREATE TABLE rdzv.events (
  run text COLLATE "C",
  number bigint,
  epoch bigint NOT NULL,
  at float8 NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (run, number));
CREATE TABLE rdzv.tenants (name text COLLATE "C" PRIMARY KEY, body text NOT NULL);
"""
"""A run's time was `clock` when its owner's own clock showed `counted`, and has gone on with that
since; NULL: it stands still."""


async def prepare(connection: Any, place: str) -> None:
    """Make the tables where there are none; raises UsageError where they are not ours."""
    if await connection.fetchval("SHOW synchronous_commit") == "off":
        raise UsageError(
            f"the journal {place} acknowledges what is not on its disk: synchronous_commit is off",
            hint="ALTER ROLE USER SET synchronous_commit TO on, or set it in postgresql.conf",
        )
    async with connection.transaction():
        # Replicas that start at the same time: the second one finds the tables of the first.
        await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", LOCKS)
        if await connection.fetchval("SELECT to_regnamespace('rdzv')") is None:
            await connection.execute("CREATE SCHEMA rdzv")
        if await connection.fetchval(_IS_EMPTY):
            await connection.execute(_CREATE)
            await connection.execute("INSERT INTO rdzv.journal VALUES ($1)", _VERSION)
        else:
            await _check_version(connection, place)
        if not await connection.fetchval(_HAS_VERSIONS):
            await connection.execute(_ADD_VERSIONS)


_IS_EMPTY = "SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('rdzv'))"


async def _check_version(connection: Any, place: str) -> None:
    try:
        version = await connection.fetchval("SELECT version FROM rdzv.journal")
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as exc:
        raise UsageError(
            f"the schema rdzv of {place} is not an rdzv journal",
            hint="give rdzv its own database: createdb NAME",
        ) from exc
    if version != _VERSION:
        raise UsageError(
            f"{place} has layout {version} of the tables; this rdzv has layout {_VERSION}",
            hint="use the version of rdzv that created it, or another database",
        )


_HAS_VERSIONS = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'rdzv.runs'::regclass AND tgname = 'versions')
"""
_ADD_VERSIONS = """
ALTER TABLE rdzv.runs ADD COLUMN version int NOT NULL DEFAULT 0;
ALTER TABLE rdzv.replicas ADD COLUMN reads int NOT NULL DEFAULT 0;
CREATE FUNCTION rdzv.keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE reads int := (SELECT r.reads FROM rdzv.replicas r WHERE r.id = NEW.owner);
BEGIN
  IF NEW.version <> reads THEN
    IF TG_OP = 'UPDATE' AND OLD.owner IS NOT NULL THEN RETURN NULL; END IF;
    NEW.version := reads;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER versions BEFORE INSERT OR UPDATE OF owner ON rdzv.runs FOR EACH ROW
WHEN (NEW.owner IS NOT NULL) EXECUTE FUNCTION rdzv.keep_version();
"""
"""Which version of records a run has, and which one each replica reads and writes. No other replica
gets the run, and the database sees to it: one of an older rdzv knows nothing of versions. Its own
is 0."""


INSERT = """
WITH held AS (
  SELECT r.run, r.epoch
  FROM rdzv.runs r JOIN unnest($2::text[], $3::bigint[]) AS w (run, epoch) USING (run)
  WHERE r.owner = $1 AND r.epoch = w.epoch
  ORDER BY r.run FOR SHARE OF r),
written AS (
  INSERT INTO rdzv.events (run, number, epoch, at, body)
  SELECT held.run, e.number, held.epoch, e.at, e.body
  FROM unnest($4::text[], $5::bigint[], $6::float8[], $7::bytea[]) AS e (run, number, at, body)
  JOIN held USING (run))
SELECT run FROM held
"""
"""By $1, with the epochs of these runs: their events, where they are still its own. Whoever claims
one of them waits for the commit. All lock rows in the order of their names, and meet no deadlock.
"""

CLAIM = """
WITH wanted AS (
  SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[]) AS w (run, owner, epoch)),
held AS (
  SELECT r.run, CASE WHEN r.owner = $1 THEN $5 ELSE p.clock END AS counted
  FROM rdzv.runs r JOIN wanted w USING (run) LEFT JOIN rdzv.replicas p ON p.id = r.owner
  WHERE r.owner IS NOT DISTINCT FROM w.owner AND r.epoch = w.epoch
    AND (r.owner IS NULL OR r.version = $6)
  ORDER BY r.run FOR UPDATE OF r),
claimed AS (
  UPDATE rdzv.runs r
  SET owner = $1, epoch = r.epoch + 1, counted = $5,
    clock = CASE
      WHEN r.owner IS NULL THEN $5
      ELSE r.clock + coalesce(greatest(held.counted - r.counted, 0), 0) END,
    since = CASE WHEN r.owner IS NULL THEN clock_timestamp() ELSE r.since END, version = $6
  FROM held WHERE r.run = held.run
  RETURNING r.run, r.epoch, r.clock),
made AS (
  INSERT INTO rdzv.runs (run, owner, epoch, clock, counted, version)
  SELECT run, $1, 1, $5, $5, $6 FROM wanted WHERE epoch = 0 ORDER BY run
  ON CONFLICT (run) DO NOTHING
  RETURNING run, epoch, clock)
SELECT * FROM claimed UNION ALL SELECT * FROM made
"""
"""By $1, whose clock shows $5, and which reads version $6 of records. The time of a run that was
another one's goes on from where that was heard of last."""

SET_OWNER = """
UPDATE rdzv.runs
SET owner = $4, clock = clock + coalesce(greatest($5 - counted, 0), 0), counted = NULL
WHERE run = $1 AND owner = $2 AND epoch = $3 RETURNING true
"""
STOP_CLOCKS = """
WITH held AS (SELECT run FROM rdzv.runs WHERE owner = $1 ORDER BY run FOR UPDATE)
UPDATE rdzv.runs r SET clock = clock + coalesce(greatest($2 - counted, 0), 0), counted = NULL
FROM held WHERE r.run = held.run
"""
DELETE = "DELETE FROM rdzv.events WHERE run = $1"
OWNER = "SELECT run, owner, epoch, version FROM rdzv.runs WHERE run = $1"
READ = "SELECT run, number, at, body FROM rdzv.events WHERE run = $1 ORDER BY number"
RUNS = """
SELECT run FROM rdzv.runs r WHERE EXISTS (SELECT FROM rdzv.events e WHERE e.run = r.run)
ORDER BY since, run
"""

SESSION = "SELECT pg_try_advisory_lock($1, $2)"
BEAT = """
INSERT INTO rdzv.replicas (id, address, seen, session, clock, drains, usage, reads)
VALUES ($1, $2, clock_timestamp(), $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET address = excluded.address, seen = excluded.seen,
  session = excluded.session, clock = excluded.clock, drains = excluded.drains,
  usage = excluded.usage
RETURNING extract(epoch FROM seen)::float8, (SELECT tenants FROM rdzv.journal)
"""
MEMBERS = """
SELECT id, address, extract(epoch FROM seen)::float8 AS beat, session, drains, usage, reads,
  session IN (
    SELECT objid::bigint FROM pg_locks
    WHERE locktype = 'advisory' AND classid = $1::bigint::oid AND objsubid = 2 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holds
FROM rdzv.replicas ORDER BY id
"""
BURY = """
DELETE FROM rdzv.replicas r USING unnest($1::text[], $2::float8[]) AS g (id, beat)
WHERE r.id = g.id AND extract(epoch FROM r.seen)::float8 = g.beat
  AND NOT EXISTS (SELECT FROM rdzv.runs WHERE owner = r.id)
"""
"""Those that have not been heard again meanwhile, and whose clock no run needs any more."""
OWNED = """
SELECT run, owner, epoch, version FROM rdzv.runs
WHERE owner IS NOT NULL AND (owner = $1 OR owner <> ALL ($2::text[])) ORDER BY run
"""
WAITS_FOR_STANDBY = """
SELECT count(*) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND wait_event = 'SyncRep'
"""
PROBE = "SELECT pg_logical_emit_message(true, 'rdzv', '')"
"""A commit that changes nothing, and is acknowledged as any other."""
PROBE_ROOM = """
INSERT INTO rdzv.events (run, number, epoch, at, body)
SELECT '', $1, 0, 0, decode(string_agg(md5(random()::text), ''), 'hex')
FROM generate_series(1, 1024)
"""
"""16 kB that cannot be compressed: pages of its own. No run has that name."""
LEAVE = "DELETE FROM rdzv.replicas WHERE id = $1"

TENANTS = "SELECT body FROM rdzv.tenants ORDER BY name"
TENANTS_CHANGE = "UPDATE rdzv.journal SET tenants = tenants + 1"
"""Before any change of them: it lets one after the other look and change."""
PUT_TENANT = """
INSERT INTO rdzv.tenants (name, body) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET body = excluded.body
"""
REMOVE_TENANT = "DELETE FROM rdzv.tenants WHERE name = $1 RETURNING true"
