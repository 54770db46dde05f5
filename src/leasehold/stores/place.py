"""Where a process runs, in four characters: a digest of the boot of its machine and of its pid namespace.

The address at which a holder gets its pushes ends with it, and is stored with its grant. So somebody who looks at a
lease knows whether its owner's pid means anything where he is: host names are shared by the containers of a pod, and
pids are given again after a restart. It decides nothing, and no store compares it.
"""

from __future__ import annotations

import os

PROC = "/proc"
CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"  # it is part of a file's name, too
PRIME = 16_777_213  # the largest below 64**4: the remainder depends on every byte


def here(proc: str = PROC) -> str:
    """The place of this process; empty where that cannot be known."""
    return place_of("self", proc)


def place_of(process: int | str, proc: str = PROC) -> str:
    """The place of a process that is visible here; empty when this user may not look, or there is no /proc."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123 - pathlib takes long to load
            boot = file.read(64)
        namespace = os.readlink(f"{proc}/{process}/ns/pid").encode()  # noqa: PTH115 - likewise
    except (OSError, ValueError):
        return ""
    digest = int.from_bytes(boot + namespace, "big") % PRIME  # ``binascii`` and ``hashlib`` would have to be loaded
    return "".join([CHARACTERS[digest >> shift & 63] for shift in (18, 12, 6, 0)])


def is_at(address: str, place: str) -> bool:
    """Whether the holder with this address runs at that place."""
    return place != "" and address.endswith(place)
