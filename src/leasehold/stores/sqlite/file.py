"""Opening the database: where it may lie, what it must be, which machine it belongs to.

Nothing is changed in a file before it is known to be ours, and our process never opens the file except through
SQLite: closing any other descriptor of it would drop every lock that this process has on it.
"""

from __future__ import annotations

import errno
import os

from leasehold.errors import StoreUnavailable
from leasehold.stores.sqlite import failures, machine, ownership
from leasehold.stores.sqlite.database import Database
from leasehold.stores.sqlite.failures import Again, unavailable
from leasehold.stores.sqlite.stdlib import parse, sqlite3, suppress, text

APPLICATION = 1279607123  # "LEAS", as in schema.sql
FORMAT = 1
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-~")
KEPT_MACHINES = 64


def default_path() -> str:
    """The file that is used when nobody names one."""
    state = os.environ.get("XDG_STATE_HOME", "")
    root = os.path.normpath(state) if state.startswith("/") else os.path.expanduser("~/.local/state")
    if not root.startswith("/"):
        machine.boot_id()  # on another system that is the reason
        raise StoreUnavailable("this user has no home folder: set XDG_STATE_HOME, or give a path")
    return os.path.join(root, "leasehold", "leasehold.db")


def open_database(path: str, boot: str) -> Database:
    """Raises StoreUnavailable that says what is wrong, or Again when somebody else is in the way just now."""
    try:
        real = prepare(path)
        before = os.stat(real)
        connection = connect(real)
    except StoreUnavailable:  # an OSError too, and already in our words
        raise
    except (OSError, sqlite3.Error) as error:
        if failures.foreign(error):
            raise
        raise why(path, error) from error
    try:
        _check(path, connection)
        ownership.check_files(real)  # again: SQLite has made its log, or has found one that came after our look
        _claim_for_this_machine(path, connection, boot)
        database = Database(path, connection, boot, before)
        if database.moved():
            raise Again(failures.REPLACED)
    except (sqlite3.Error, OSError, ValueError) as error:
        connection.close()
        if isinstance(error, StoreUnavailable) or failures.foreign(error):
            raise
        raise why(path, error) from error
    except BaseException:
        connection.close()
        raise
    return database


def why(path: str, error: Exception) -> Exception:
    """What to raise for an error of opening: Again when another try may succeed."""
    if failures.passing(error):
        return Again(failures.LOCKED)
    absent = isinstance(error, FileNotFoundError) or failures.name_of(error).startswith("SQLITE_CANTOPEN")
    if absent and not failures.examine(path) and not os.path.exists(path):  # deleted since it was made
        return Again(failures.REPLACED)
    return failures.refusal(path, error)


def prepare(path: str) -> str:
    """An empty file with mode 0600 stands at ``path``, or an existing one that is left as it is. Returns where
    it really lies."""
    real = ownership.resolve(path)
    default = False
    with suppress(StoreUnavailable):  # no home, no default
        default = os.path.dirname(path) == os.path.dirname(default_path())
    if default:
        make_folders(os.path.dirname(real))
        ownership.check_state_folder(real)
    if not os.path.isdir(os.path.dirname(real)) or os.path.isdir(real):
        raise unavailable(path, failures.examine(real))
    point, kind = machine.mount(real)
    if machine.networked(kind):
        raise unavailable(
            path,
            f"lies on a network file system ({kind}), where locks and clocks of several machines meet. "
            "Choose a local path; to coordinate several machines, use a store with a server",
        )
    if point == real:
        raise unavailable(
            path,
            "is mounted by itself: what SQLite keeps beside it is not shared with it, so that two processes would not "
            "exclude each other. Mount its folder",
        )
    with suppress(FileExistsError):
        os.mknod(real, 0o600)  # without a descriptor, which would have to be closed again
        ownership.give_to_owner_of_folder(real)
    os.stat(real)
    ownership.check_files(real)
    if not os.access(real, os.R_OK | os.W_OK, effective_ids=True):  # SQLite would open it for reading, without a lock
        raise PermissionError(errno.EACCES, "not readable and writable")
    return real


def make_folders(folder: str) -> None:
    """For this user alone; for the owner of the folder above where root makes them."""
    if not os.path.isdir(folder):
        make_folders(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
            ownership.give_to_owner_of_folder(folder)


def connect(real: str) -> sqlite3.Connection:
    """To a file that is there, by its path without links. Nothing is read or written before it is known which one
    SQLite has opened: whoever may write in its folder could have put a link there since we looked (trap 50)."""
    uri = f"file:{_quoted(real)}?mode=rw"  # never creates: that would ignore the mode
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = bytes  # a path need not be UTF-8
        opened = connection.execute("PRAGMA database_list").fetchone()[2]
        connection.text_factory = str
        if opened != os.fsencode(real):
            raise Again(failures.REPLACED)
    except BaseException:
        connection.close()
        raise
    return connection


def _quoted(path: str) -> str:
    """As a URI has it, byte by byte."""
    return "".join([chr(byte) if chr(byte) in PLAIN else f"%{byte:02X}" for byte in os.fsencode(path)])


def _check(path: str, connection: sqlite3.Connection) -> None:
    """Ours, of a format we know, in WAL mode. An empty database becomes ours."""
    connection.execute("BEGIN")  # one look: another process may be making it ours at this moment
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("COMMIT")
    fresh = not application and not version and not tables
    if not fresh and application != APPLICATION:
        raise unavailable(path, "belongs to another program. Choose another path: nothing was written to it")
    if version > FORMAT:
        raise unavailable(
            path,
            f"has format {version}, which a newer Leasehold wrote; this one knows {FORMAT}. "
            "Upgrade this process, or choose another path",
        )
    if fresh:
        connection.execute("PRAGMA page_size = 2048")  # one row changes in a turn: small pages, small writes
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise unavailable(path, "lies on a file system without shared memory. Choose a local path")
    connection.execute("PRAGMA synchronous = NORMAL")
    if fresh:
        with open(os.path.join(os.path.dirname(__file__), "schema.sql"), encoding="utf-8") as schema:
            connection.executescript(schema.read())


def _machines(written: object) -> list[str]:
    """None where that cannot be read: then the boot id alone decides."""
    try:
        known = parse(written) if isinstance(written, str) else []
    except (ValueError, RecursionError):
        return []
    return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


def _claim_for_this_machine(path: str, connection: sqlite3.Connection, boot: str) -> None:
    """The boot id of the last opening decides. The same one is the same kernel, whatever the machine is called
    (containers), and vouches for this name; another one on a known machine is a reboot."""
    if _claim(path, connection, boot, "BEGIN"):  # a look needs no write lock, which a crowd may keep busy
        return
    _claim(path, connection, boot, "BEGIN IMMEDIATE")


def _claim(path: str, connection: sqlite3.Connection, boot: str, begin: str) -> bool:
    """False: something must be written, and this transaction may only look."""
    connection.execute(begin)
    meta = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('boot', 'machines')"))
    known = _machines(meta.get("machines"))
    ours = machine.machine_id()
    if ours not in known:
        if meta.get("boot", boot) != boot:
            raise failures.other_machine(path)
        known = [*known[-KEPT_MACHINES + 1 :], ours]
    found = {"boot": boot, "machines": text(known)}
    if meta != found and begin != "BEGIN":
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", found.items())
        meta = found
    connection.execute("COMMIT")
    return meta == found
