"""ZooKeeper: members and leader, ticks, the length of sessions, connections, its clock, rights.

Members are asked by "four-letter words" on the port for clients. ZooKeeper allows only ``srvr`` unless
``4lw.commands.whitelist`` names more: what the others would tell is then a note.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from leasehold.doctor import rights
from leasehold.doctor.clocks import Reading, compare
from leasehold.doctor.members import Away, fix, login_refused, together
from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.stores.zookeeper.connection import with_tls
from leasehold.stores.zookeeper.target import TLS_NAMES, Target

SECONDS = 3.0
OLDEST = (3, 5)
USUAL_TICK = 2000  # ms
SLOW = 100  # ms, on average, for a request
FULL = 0.9
LIMITED = "4lw.commands.whitelist={}"
WORDS = ("srvr", "conf", "mntr")


class Facts(NamedTuple):
    """What one member says. None: the word is not on its list."""

    place: str
    srvr: dict[str, str] | None
    conf: dict[str, str] | None
    mntr: dict[str, str] | None

    @property
    def mode(self) -> str:
        return (self.srvr or {}).get("mode") or (self.mntr or {}).get("zk_server_state", "")


def examine(server: Any) -> list[Finding]:
    """``server``: that of the store, which has connected by now if it can."""
    target: Target = server._session._target
    hosts = target.hosts.split(",")
    answers = together(hosts, lambda host: _facts(host, target))
    gone = [(host, one) for host, one in zip(hosts, answers, strict=True) if isinstance(one, Away)]
    present = [one for one in answers if isinstance(one, Facts)]
    found = [*_members(hosts, present, gone), *_session(server, target, present), *_permissions(target)]
    for one in present:
        found += [finding.at(one.place) for finding in (*_version(one), *_ticks(one), *_load(one))]
    return found + _clocks(server, len(hosts))


# ---------------------------------------------------------------- questions


def _facts(host: str, target: Target) -> Facts:
    srvr, conf, mntr = [_word(host, target, word) for word in WORDS]
    return Facts(
        host,
        None if srvr is None else {key.lower(): value for key, value in _split(srvr, ":").items()},
        None if conf is None else _split(conf, "="),
        None if mntr is None else _split(mntr, "\t"),
    )


def _word(host: str, target: Target, word: str) -> str | None:
    """The reply to one word, or None where it is not allowed. Raises Away."""
    name, _, port = host.rpartition(":")
    give_up = time.monotonic() + SECONDS
    try:
        with _connected(name.strip("[]"), int(port), target) as line:
            line.sendall(word.encode())
            reply = _all(line, give_up)
    except (BrokenPipeError, ConnectionResetError):
        reply = ""
    except OSError as error:
        raise Away(" ".join(str(error.strerror or error).split())) from error
    if not reply:
        raise Away("it closes a new connection at once: perhaps this host has all that maxClientCnxns allows")
    return None if "is not in the whitelist" in reply else reply


def _connected(name: str, port: int, target: Target) -> socket.socket:
    if not target.tls:
        return socket.create_connection((name, port), SECONDS)
    settings = {**dict.fromkeys(TLS_NAMES), "verify_certs": True, **target.tls}
    line = with_tls(socket.socket(), name, **settings)
    line.settimeout(SECONDS)
    line.connect((name, port))
    return line


def _all(line: socket.socket, give_up: float) -> str:
    text = b""
    while chunk := line.recv(65536):
        text += chunk
        if time.monotonic() > give_up:
            raise TimeoutError("it does not answer in time")
    return text.decode("utf-8", "replace")


def _split(text: str, separator: str) -> dict[str, str]:
    pairs = [line.partition(separator) for line in text.splitlines() if separator in line]
    return {key.strip(): value.strip() for key, _, value in pairs}


# ---------------------------------------------------------------- the ensemble


def _members(hosts: Sequence[str], present: Sequence[Facts], gone: Sequence[tuple[str, Away]]) -> list[Finding]:
    majority = len(present) > len(hosts) // 2
    make = warning if majority else problem
    found = [
        make(
            "members" if majority else "reachable",
            f"a member {'refuses the login' if login_refused(error) else 'cannot be reached'}: {error}",
            "A majority of the members decides: without one nothing is granted",
            fix(error, "Start it, or correct the URL"),
        ).at(host)
        for host, error in gone
    ]
    modes = [one.mode for one in present]
    found += [_idle(one) for one in present if not one.mode]
    if "standalone" in modes:
        found.append(
            warning(
                "members",
                "it is a single server",
                "When it is gone, nothing can be leased, and its disk is the only copy",
                "Run three or five members",
            )
        )
    elif modes and "leader" not in modes and not gone:
        found.append(
            note(
                "members",
                "none of the members of the URL leads",
                "The leader is not named there",
                "Name all members in the URL",
            )
        )
    elif "leader" in modes and not gone:
        found.append(ok("members", f"{len(present)} members answer, one of them leads"))
    return found


def _idle(one: Facts) -> Finding:
    if one.srvr is None:
        return unseen("members", "its role", "The word srvr is not allowed", LIMITED.format("srvr")).at(one.place)
    return problem(
        "members",
        "it serves no requests now",
        "It is cut off from a majority, or starts",
        "Start the members that are missing, and look at the network between them",
    ).at(one.place)


def _session(server: Any, target: Target, present: Sequence[Facts]) -> list[Finding]:
    """What the server has granted: kazoo keeps what was asked for."""
    if not server._session.connected:
        return []
    asked, granted = target.session_seconds, server.session_seconds
    text = f"a session lasts {granted:g} s"
    if granted <= asked:
        return (
            [ok("session", text)]
            if granted == asked
            else [
                note(
                    "session",
                    f"{text}, and {asked:g} s were asked for",
                    "The server allows no more (maxSessionTimeout)",
                )
            ]
        )
    return [
        warning(
            "session",
            f"{text}, and {asked:g} s were asked for",
            "The server allows no less (minSessionTimeout, two "
            "ticks): a waiter that is killed keeps its place for so long; leases do not depend on it",
            f"Set minSessionTimeout={asked * 1000:.0f}, or a shorter tickTime",
        )
    ]


def _permissions(target: Target) -> list[Finding]:
    login = target.auth[0][1].partition(":")[0] if target.auth else ""
    lines = "; ".join(rights.zookeeper_lines(target.chroot, login or "app"))
    if target.acl == "creator":
        return [ok("permissions", f"the nodes are for the login {login or 'of SASL'} alone", "", lines)]
    return [
        note(
            "permissions",
            "the nodes are open: everybody who reaches the server may change leases",
            "With a login in the URL they are for it alone. To make the chroot for that login beforehand, an "
            "administrator types this in zkCli.sh",
            lines,
        )
    ]


def _clocks(server: Any, members: int) -> list[Finding]:
    if not server._session._wall_us:
        return [unseen("clock", "its clock", "It has not confirmed a write")]
    # It was read from the time of a write, in whole milliseconds, some of which it took to arrive.
    found = compare({"the leader": Reading(server.wall_us() / 1e6 - time.time(), 0.05)}, "")
    if members > 1:
        found.append(unseen("clock", "the clocks of the other members", "Only the leader's is in what it writes"))
    return found


# ---------------------------------------------------------------- one member


def _version(one: Facts) -> list[Finding]:
    text = (one.srvr or {}).get("zookeeper version") or (one.mntr or {}).get("zk_version", "")
    found = re.match(r"(\d+)\.(\d+)[.\d]*", text)
    if found is None:
        return [unseen("version", "its version", "The words srvr and mntr are not allowed", LIMITED.format("srvr"))]
    if (int(found[1]), int(found[2])) < OLDEST:
        return [problem("version", f"it is ZooKeeper {found[0]}", "Leases need 3.5 or newer", "Upgrade it")]
    return [ok("version", f"ZooKeeper {found[0]}, {one.mode or 'not serving'}")]


def _ticks(one: Facts) -> list[Finding]:
    if one.conf is None:
        return [
            unseen(
                "ticks",
                "tickTime and the limits of sessions",
                "The word conf is not allowed",
                LIMITED.format("srvr,conf,mntr"),
            )
        ]
    tick, least, most = [int(one.conf.get(name, 0)) for name in ("tickTime", "minSessionTimeout", "maxSessionTimeout")]
    text = f"tickTime is {tick} ms, a session lasts from {least / 1000:g} to {most / 1000:g} s"
    if tick <= USUAL_TICK:
        return [ok("ticks", text)]
    return [
        warning(
            "ticks",
            text,
            "A session lasts two ticks at least: waiters that are killed keep their places so long, "
            "and a leader that is gone is noticed later",
            f"Set tickTime={USUAL_TICK} or less",
        )
    ]


def _load(one: Facts) -> list[Finding]:
    found = [*_latency(one), *_connections(one)]
    followers, synced = [(one.mntr or {}).get(f"zk_{name}") for name in ("followers", "synced_followers")]
    if followers and synced and float(synced) < float(followers):
        found.append(
            warning(
                "replicas",
                f"{float(synced):.0f} of {float(followers):.0f} followers are in step",
                "One that is behind does not help a majority",
                "Look at its log and its disk",
            )
        )
    return found


def _latency(one: Facts) -> list[Finding]:
    measured = (one.srvr or {}).get("latency min/avg/max", "")
    parts = measured.split("/")
    if len(parts) != 3:
        return []
    if float(parts[1]) <= SLOW:
        return [ok("latency of requests", f"a request took {parts[1]} ms on average, {parts[2]} at most")]
    return [
        warning(
            "latency of requests",
            f"a request took {parts[1]} ms on average",
            "Each grant waits for the disks of a majority",
            "Give its log (dataLogDir) a disk of its own",
        )
    ]


def _connections(one: Facts) -> list[Finding]:
    """``maxClientCnxns`` is for each address of a client; only the whole is known."""
    most = int((one.conf or {}).get("maxClientCnxns", 0))
    now = (one.srvr or {}).get("connections", "")
    if not most or not now.isdigit():
        return []
    if int(now) <= FULL * most:
        return [ok("connections", f"{now} connections are open, of {most} for each host")]
    return [
        warning(
            "connections",
            f"{now} connections are open, and each host may have {most} (maxClientCnxns)",
            "Each process has one; when none is left, it cannot connect",
            "Raise maxClientCnxns",
        )
    ]
