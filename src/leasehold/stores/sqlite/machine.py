"""Which kernel this is, and whether a path lies on a file system that other machines may share.

The store's times count from the kernel's boot, and its exclusion rests on locks of one kernel. Both end where
another machine begins, so the file must not be reachable from there.
"""

from __future__ import annotations

import os

from leasehold.errors import Unsupported

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
    """Of this boot of this kernel. Where there is none to be had, what needs it says what to use in its place."""
    found = _line_of(BOOT_ID)
    if not found:
        if not instead:  # Windows has no fork, and no store that several processes share
            shared = "redis://host" if hasattr(os, "fork") else "it in the Windows Subsystem for Linux"
            instead = f"{shared}, or memory:// in tests"
        raise Unsupported(f"{what} needs Linux, for {BOOT_ID} and /proc/self/fd: on this system use {instead}")
    return found


def machine_id() -> str:
    """Empty where nobody gave the machine one, as in many containers."""
    return next(filter(None, map(_line_of, MACHINE_IDS)), "")


def mount(path: str) -> tuple[str, str]:
    """The mount point that holds an absolute, resolved path, and the type of its file system; empty where the kernel
    hides its mounts. A file can be a mount point, as when a container is given one file in place of its folder."""
    try:
        return find_mount(path, _text_of(MOUNTS))
    except OSError:
        return "", ""


def networked(kind: str) -> bool:
    """May other machines share a file system of this type?"""
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
