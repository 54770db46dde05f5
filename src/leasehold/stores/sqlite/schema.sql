-- The embedded store's file, format 1. Run once on an empty database; harmless when two processes race.
--
-- resources  one row for each resource that is held or waited for, or was held within a day
--   name     the text form of the resource
--   boot     the kernel's boot id under which `state` was written: its milliseconds count from that boot
--   state    _core.types.State as JSON, tuples as arrays (database.py)
-- meta
--   boot      the boot id under which the file was last opened
--   machines  JSON array: the machine ids that are known to be this one
--   swept     the name up to which old rows were swept
BEGIN IMMEDIATE;
PRAGMA application_id = 1279607123; -- "LEAS"
PRAGMA user_version = 1;
CREATE TABLE IF NOT EXISTS resources (
    name TEXT PRIMARY KEY,
    boot TEXT NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
COMMIT;
