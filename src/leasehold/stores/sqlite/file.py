"""Opening the database: where it may lie, what it must be, which machine it belongs to.

Nothing is changed in a file before it is known to be ours, and this process never opens the file except through SQLite:
closing any other descriptor of it would drop every lock that the process has on it.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from leasehold.errors import StoreUnavailable, Unsupported
from leasehold.stores.sqlite import failures
from leasehold.stores.sqlite.database import Database
from leasehold.stores.sqlite.failures import TryAgain, unavailable
from leasehold.stores.sqlite.stdlib import sqlite3, suppress
from leasehold.stores.state_text import parse, text

# ---------------------------------------------------------------- machine
#
# Which kernel this is, and whether a path lies on a file system that other machines may share.
#
# The store's times count from the kernel's boot, and its exclusion rests on locks of one kernel. Both end where
# another machine begins, so the file must not be reachable from there.


BOOT_ID = "/proc/sys/kernel/random/boot_id"
MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
MOUNTS = "/proc/self/mountinfo"

# Also behind FUSE. A guest's share of its host's folder is a network for this purpose: the host has another kernel.
_NETWORKS = """
    9p acfs afp afs beegfs ceph cephfs cifs coda curlftpfs davfs davfs2 gcsfuse gfs gfs2 glusterfs goofys gpfs
    grpcfuse juicefs lustre mfs moosefs mount-s3 ncpfs nfs nfs4 ocfs2 orangefs osxfs prl_fs pvfs2 rclone s3fs
    seaweedfs smb2 smb3 smbfs smbnetfs sshfs vboxsf virtiofs vmhgfs vmhgfs-fuse weed
"""
NETWORKED = frozenset(_NETWORKS.split())


def boot_id(what: str = "the embedded store", instead: str = "") -> str:
    """The id of this boot of this kernel. On a system that has none, the error names what to use instead."""
    found = _line_of(BOOT_ID)
    if not found:
        if not instead:  # Windows has no fork, and no store that several processes share
            shared = "redis://host" if hasattr(os, "fork") else "it in the Windows Subsystem for Linux"
            instead = f"{shared}, or memory:// in tests"
        raise Unsupported(f"{what} needs Linux, for {BOOT_ID} and /proc/self/fd: on this system use {instead}")
    return found


def machine_id() -> str:
    """Empty where the machine has none, as in many containers."""
    return next(filter(None, map(_line_of, MACHINE_IDS)), "")


def mount(path: str) -> tuple[str, str]:
    """The mount point that holds an absolute, resolved path, and the type of its file system; empty where the kernel
    hides its mounts. A file can be a mount point, as when a container is given one file in place of its folder."""
    try:
        return find_mount(path, _text_of(MOUNTS))
    except OSError:
        return "", ""


def networked(kind: str) -> bool:
    """True when other machines may share a file system of this type."""
    return kind.removeprefix("fuse.") in NETWORKED


def find_mount(path: str, mounts: str) -> tuple[str, str]:
    """The same from the text of mountinfo. The longest mount point wins; of two mounts at one point the later one
    covers the earlier."""
    best, found = "", ""
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        if len(point) >= len(best) and _holds(point, path):
            best, found = point, right.split(" ")[0]
    return best, found


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescape(field: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    plain, *rest = field.split("\\")
    return plain + "".join([_character(one[:3]) + one[3:] for one in rest])


def _character(digits: str) -> str:
    return chr(int(digits, 8)) if len(digits) == 3 and set(digits) <= set("01234567") else "\\" + digits


def _line_of(path: str) -> str:
    try:
        return _text_of(path).strip()
    except OSError:
        return ""


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


# ---------------------------------------------------------------- ownership
#
# Whose files these are: what another user may have placed there is refused, and what root makes is given to its user.
#
# Between a check and a later use, a user who may write in the folder can exchange what lies there. So what is given
# away is held by a descriptor, and given only while it is new and empty.


BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database
MOST_LINKS = 40  # as in the kernel

FOREIGN_LINK = "is a symbolic link of another user, who can lead it anywhere. Give the path that it leads to"
FOREIGN_STEP = (
    "is reached by a symbolic link of another user, in a folder where everybody may make files: it can be led "
    "anywhere. Give the path that it leads to"
)
FOREIGN_FILE = (
    "lies in a folder where everybody may make files, and it, or what SQLite keeps beside it, is another user's. "
    "Choose a folder that only its users can write to"
)
SECOND_NAME = (
    "has a second name, a hard link, or what lies beside it as -wal, -shm or -journal has one. Each name of a database "
    "has a log of its own, so that two processes would not exclude each other. Remove the other name"
)
OF_ROOT = (
    "is not root's, but what lies beside it as -wal, -shm or -journal is: SQLite would give that to the owner of the "
    "database. Look where it comes from, and move it away"
)
NO_FILE = "is no regular file, or what lies beside it as -wal, -shm or -journal is none. Choose another path"
FOREIGN_FOLDER = (
    "lies in the state folder, and that is another user's, or everybody may write there. Make it yours alone, set "
    "XDG_STATE_HOME, or give a path"
)


def resolve(path: str) -> str:
    """The absolute path without links, each of which was checked: resolving them again later might find other links.

    A link at ``path`` must belong to us, to root or to the owner of the file: else it could make us create or change
    any file that we may write. On the way there it may also belong to the owner of the folder that it lies in, unless
    every user may make one there: Linux has the same rule, and not every machine uses it (fs.protected_symlinks)."""
    real, steps, links = "/", path.split("/")[::-1], 0
    doubted: list[tuple[int, str]] = []  # the owner of a link, and the error if that one is not trusted
    while steps:
        place = os.path.normpath(os.path.join(real, steps.pop()))  # `real` has no links in it, so `..` is safe
        found = _status(place)
        if found is None or not stat.S_ISLNK(found.st_mode):
            real = place
            continue
        if not any(steps):
            doubted.append((found.st_uid, FOREIGN_LINK))
        elif _made_by_another(found, os.stat(real)):
            doubted.append((found.st_uid, FOREIGN_STEP))
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(place)
        real = "/" if target.startswith("/") else real
        steps += target.split("/")[::-1]
    file = _status(real)
    for owner, doubt in doubted:
        if owner not in (os.geteuid(), 0) and (file is None or owner != file.st_uid):
            raise unavailable(path, doubt)
    return real


def _made_by_another(found: os.stat_result, folder: os.stat_result) -> bool:
    """True when another user than the folder's owner made it, in a folder where every user may make files, as in
    /tmp."""
    return _open_to_all(folder) and found.st_uid != folder.st_uid


def _open_to_all(folder: os.stat_result) -> bool:
    """True when every user may make files there, and none may remove another's."""
    return bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)


def check_files(real: str) -> None:
    """They must be regular files with one name each. Where every user may make files they must be ours or those of the
    folder's owner: Linux has the same rule, and not every machine uses it (fs.protected_regular). When we are root,
    SQLite gives the files beside the database to the owner of the database: none may be a file of root's that another
    user placed there."""
    folder, database, us = os.stat(os.path.dirname(real)), os.lstat(real), os.geteuid()
    for found in (database, *[_status(real + suffix) for suffix in BESIDE]):
        if found is None:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise unavailable(real, NO_FILE)
        if _open_to_all(folder) and found.st_uid not in (us, folder.st_uid):
            raise unavailable(real, FOREIGN_FILE)
        if found.st_nlink > 1:
            raise unavailable(real, SECOND_NAME)
        given_away = us == 0 and found.st_uid == 0 and database.st_uid != 0
        if given_away and found.st_size > 0:  # an empty one is being made by another process of root's
            raise unavailable(real, OF_ROOT)


def check_state_folder(path: str) -> None:
    """For the default path: only root may use the state folder of another user."""
    found = os.stat(os.path.dirname(path))
    us = os.geteuid()
    if (us != 0 and found.st_uid not in (us, 0)) or found.st_mode & stat.S_IWOTH:
        raise unavailable(path, FOREIGN_FOLDER)


def give_to_owner_of_folder(path: str) -> None:
    """What root makes in a user's folder is given to that user, as SQLite does with the files beside a database: else
    one call by root locks the user out."""
    folder = os.stat(os.path.dirname(path))
    if os.geteuid() == 0 and folder.st_uid != 0:
        give(path, folder.st_uid, folder.st_gid)


def give(path: str, user: int, group: int, mode: int | None = None) -> None:
    """Give away what we have just made. It stays as it is where we may not, or where it is no longer the new one."""
    with suppress(OSError):
        made = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_new(made):
                os.chown(f"/proc/self/fd/{made}", user, group)
                if mode is not None:
                    os.chmod(f"/proc/self/fd/{made}", mode)
        finally:
            os.close(made)


def _is_new(made: int) -> bool:
    found = os.fstat(made)
    if found.st_uid != os.geteuid():
        return False
    if stat.S_ISDIR(found.st_mode):
        return not os.listdir(f"/proc/self/fd/{made}")
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size == 0


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


# ---------------------------------------------------------------- file


APPLICATION = 1279607123  # "LEAS", as in schema.sql
FORMAT = 1
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-~")
KEPT_MACHINES = 64
NEW_SECONDS = 1.0  # a log that was made less long ago may still change hands


def default_path() -> str:
    """The file that is used when no path is given."""
    state = os.environ.get("XDG_STATE_HOME", "")
    root = os.path.normpath(state) if state.startswith("/") else os.path.expanduser("~/.local/state")
    if not root.startswith("/"):
        boot_id()  # raises on another system, where that is the reason
        raise StoreUnavailable("this user has no home folder: set XDG_STATE_HOME, or give a path")
    return os.path.join(root, "leasehold", "leasehold.db")


def open_database(path: str, boot: str) -> Database:
    """Raises StoreUnavailable with what is wrong, or TryAgain when another process is in the way at the moment."""
    try:
        real = prepare(path)
        before = os.stat(real)
        connection = connect(real)
    except StoreUnavailable:  # an OSError too, and already explained
        raise
    except (OSError, sqlite3.Error) as error:
        if failures.foreign(error):
            raise
        raise why(path, error) from error
    try:
        _check(path, connection)
        check_files(real)  # again: SQLite has made its log, or has found one that came after our check
        _claim_for_this_machine(path, connection, boot)
        database = Database(path, connection, boot, before)
        if database.moved():
            raise TryAgain(failures.REPLACED)
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
    """The exception for an error of opening: TryAgain when another try may succeed."""
    if failures.passing(error):
        return TryAgain(failures.LOCKED)
    absent = isinstance(error, FileNotFoundError) or failures.name_of(error).startswith("SQLITE_CANTOPEN")
    if absent and not failures.examine(path):
        if not os.path.exists(path):  # deleted since it was made
            return TryAgain(failures.REPLACED)
        if _has_new_log(path):
            return TryAgain(failures.LOCKED)
    return failures.refusal(path, error)


def _has_new_log(path: str) -> bool:
    """Has another process just made the log? SQLite makes it for one user, and gives it to the group right after."""
    now = time.time()
    for end in ("-wal", "-shm"):
        with suppress(OSError):
            if abs(now - os.stat(path + end).st_ctime) < NEW_SECONDS:
                return True
    return False


def prepare(path: str) -> str:
    """Make an empty file with mode 0600 at ``path``, unless there is one already. Returns its path without links."""
    real = resolve(path)
    default = False
    with suppress(StoreUnavailable):  # no home, no default
        default = os.path.dirname(path) == os.path.dirname(default_path())
    if default:
        make_folders(os.path.dirname(real))
        check_state_folder(real)
    if not os.path.isdir(os.path.dirname(real)) or os.path.isdir(real):
        raise unavailable(path, failures.examine(real))
    point, kind = mount(real)
    if networked(kind):
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
        give_to_owner_of_folder(real)
    os.stat(real)
    check_files(real)
    if not os.access(real, os.R_OK | os.W_OK, effective_ids=True):  # SQLite would open it for reading, without a lock
        raise PermissionError(errno.EACCES, "not readable and writable")
    return real


def make_folders(folder: str) -> None:
    """For this user alone; where root makes them, for the owner of the folder above."""
    if not os.path.isdir(folder):
        make_folders(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
            give_to_owner_of_folder(folder)


def connect(real: str) -> sqlite3.Connection:
    """Connect to a file that is there, by its path without links. Nothing is read or written before it is known which
    file SQLite has opened: a user who may write in its folder could have put a link there since our check (trap 50)."""
    uri = f"file:{_quoted(real)}?mode=rw"  # never creates: that would ignore the mode
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = bytes  # a path need not be UTF-8
        opened = connection.execute("PRAGMA database_list").fetchone()[2]
        connection.text_factory = str
        if opened != os.fsencode(real):
            raise TryAgain(failures.REPLACED)
    except BaseException:
        connection.close()
        raise
    return connection


def _quoted(path: str) -> str:
    """Percent-encoded for a URI, byte by byte."""
    return "".join([chr(byte) if chr(byte) in PLAIN else f"%{byte:02X}" for byte in os.fsencode(path)])


def _check(path: str, connection: sqlite3.Connection) -> None:
    """It must be ours, of a format that we know, and in WAL mode. An empty database becomes ours."""
    fresh = is_empty(path, connection, APPLICATION, FORMAT, "belongs to another program")
    if fresh:
        connection.execute("PRAGMA page_size = 2048")  # one row changes in a turn: small pages, small writes
    use_wal(path, connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    if fresh:
        with open(os.path.join(os.path.dirname(__file__), "schema.sql"), encoding="utf-8") as schema:
            connection.executescript(schema.read())


def is_empty(path: str, connection: sqlite3.Connection, application: int, newest: int, foreign: str) -> bool:
    """False for a database of this application. Raises for another one, and for a format that is newer than ours."""
    inside = connection.in_transaction
    if not inside:
        connection.execute("BEGIN")  # one transaction: another process may be making it ours at this moment
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not inside:
        connection.execute("COMMIT")
    if not found and not version and not tables:
        return True
    if found != application:
        raise unavailable(path, f"{foreign}. Choose another path: nothing was written to it")
    if version > newest:
        raise unavailable(
            path,
            f"has format {version}, which a newer Leasehold wrote; this one knows {newest}. "
            "Upgrade this process, or choose another path",
        )
    return False


def use_wal(path: str, connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise unavailable(path, "lies on a file system without shared memory. Choose a local path")


def _machines(written: object) -> list[str]:
    """The machines that have used the file; none where that cannot be read: then the boot id alone decides."""
    try:
        known = parse(written) if isinstance(written, str) else []
    except (ValueError, RecursionError):
        return []
    return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


def _claim_for_this_machine(path: str, connection: sqlite3.Connection, boot: str) -> None:
    """The boot id of the last opening decides. The same one is the same kernel, whatever id the machine has
    (containers), and that id is added to the known ones; another boot id on a known machine is a reboot."""
    if _claim(path, connection, boot, "BEGIN"):  # reading needs no write lock, which many processes may keep busy
        return
    _claim(path, connection, boot, "BEGIN IMMEDIATE")


def _claim(path: str, connection: sqlite3.Connection, boot: str, begin: str) -> bool:
    """False: something must be written, and this transaction may only read."""
    connection.execute(begin)
    meta = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('boot', 'machines')"))
    known = _machines(meta.get("machines"))
    ours = machine_id()
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
