"""What ``connect`` was given: a URL with its options, or a client of kazoo's, whose settings are taken over.

    zk://[user:password@]host[:port][,host[:port]...][/chroot][?option=value&...]

acl=        ``creator``: the nodes that we make are for this login alone; ``open``: for everybody. With a login, creator
session=    seconds after which the server forgets a client that is silent, and its waiters
sasl=       ``digest`` (DIGEST-MD5 with user and password) or ``gssapi`` (Kerberos); without it, ZooKeeper's own digest
ca=, cert=, key=   files for TLS; ``tls=yes`` alone trusts the authorities of this machine
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Mapping
from urllib.parse import unquote

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import InvalidRequest

SCHEME = "zk"
PORT = 2181
CHROOT = "/leasehold"
OPTIONS = ("acl", "session", "sasl", "tls", "ca", "cert", "key")
# A waiter that is killed keeps its place until its session is over, so this is short. kazoo gives up a silent member
# after two thirds of it, and has the rest to reach another.
SESSION_SECONDS = 6.0
SHORTEST, LONGEST = 1.0, 60.0
NOT_ENCODED = "percent-encode the special characters of the user and the password: @ is %40, / is %2F, ? is %3F"
HOW = "write zk://host1,host2,host3/chroot"


class Target(NamedTuple):
    """The settings of a store."""

    hosts: str  # with ports, as kazoo takes them
    chroot: str = CHROOT
    session_seconds: float = SESSION_SECONDS
    auth: tuple[tuple[str, str], ...] = ()  # scheme and credential
    sasl: Mapping[str, Any] | None = None
    tls: Mapping[str, Any] = {}  # arguments of kazoo's client
    acl: str = "open"

    @property
    def server(self) -> str:
        return f"ZooKeeper at {self.hosts}"

    @property
    def url(self) -> str:
        """Where it is, without login and options."""
        return f"zk://{self.hosts}{self.chroot}"


def target_of(given: Any) -> Target:
    """For a URL or a KazooClient. Raises InvalidRequest. Nothing is connected."""
    return from_url(given) if isinstance(given, str) else from_client(given)


# ---------------------------------------------------------------- a client


def from_client(client: Any) -> Target:
    """Its hosts, chroot, login, TLS and session length. We connect by ourselves, in a session of our own: theirs is
    neither used nor ended."""
    try:
        hosts = ",".join(_joined(host, port) for host, port in client.hosts)
        sasl = client._connection.sasl_options
        if sasl is not None:
            _check_packages(sasl["mechanism"])
        return Target(
            hosts,
            f"{client.chroot}{CHROOT}" if client.chroot in ("", "/") else client.chroot,
            client._session_timeout / 1000,
            tuple(sorted(client.auth_data)),
            None if sasl is None else dict(sasl),
            {name: getattr(client, name) for name in TLS_NAMES if getattr(client, name)},
            "creator" if client.auth_data or sasl else "open",
        )
    except AttributeError:
        raise InvalidRequest(f"that is no client of ZooKeeper: give a KazooClient or a URL; {HOW}") from None


TLS_NAMES = ("use_ssl", "verify_certs", "check_hostname", "ca", "certfile", "keyfile", "keyfile_password")


# ---------------------------------------------------------------- a URL


def from_url(url: str) -> Target:
    """Raises InvalidRequest, in one sentence that shows no password. Nothing is connected."""
    _check_text(url)
    place, _, query = url.partition("?")
    scheme, separator, rest = place.partition("://")
    if scheme != SCHEME or not separator:
        raise InvalidRequest(f"that is no URL of ZooKeeper: {HOW}")
    if "@" in query and "@" not in rest:
        raise InvalidRequest(NOT_ENCODED)
    authority, slash, path = rest.partition("/")
    if "@" in path or authority.count("@") > 1:
        raise InvalidRequest(NOT_ENCODED)
    userinfo, _, hosts = authority.rpartition("@")
    options = _options(query)
    user, password = _login(userinfo)
    sasl = _sasl(options.get("sasl"), user, password)
    return Target(
        _hosts(hosts),
        _chroot(slash + path),
        _seconds(options.get("session")),
        ((("digest", f"{user}:{password}"),) if user and sasl is None else ()),
        sasl,
        _tls(options),
        _acl(options.get("acl"), bool(user) or sasl is not None),
    )


def _check_text(url: str) -> None:
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the URL has characters that cannot be sent as UTF-8") from None
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in url):
        raise InvalidRequest("the URL has a control character")


def _options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name in found:
            raise InvalidRequest(f"the URL has the option {_shown(name)} twice")
        if name not in OPTIONS:
            like = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f": did you mean {like[0]}?" if like else f"; there are {', '.join(OPTIONS)}"
            raise InvalidRequest(f"a URL of ZooKeeper has no option {_shown(name)}{hint}")
        found[name] = unquote(value)
    return found


def _login(userinfo: str) -> tuple[str, str]:
    user, _, password = userinfo.partition(":")
    if ":" in password:
        raise InvalidRequest(NOT_ENCODED)
    user, password = unquote(user), unquote(password)
    if ":" in user:
        raise InvalidRequest("the name of a user of ZooKeeper has no colon")
    if userinfo and not (user and password):
        raise InvalidRequest("a login has a user and a password: zk://user:password@host")
    return user, password


def _hosts(text: str) -> str:
    if not text:
        raise InvalidRequest(f"the URL names no host: {HOW}")
    return ",".join(_host(one) for one in text.split(","))


def _host(text: str) -> str:
    host, port = text, ""
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")) or ":" not in host:
            raise InvalidRequest("an IPv6 address stands in brackets: zk://[::1]:2181")
        port = port[1:]
    elif ":" in text:
        host, _, port = text.partition(":")
        if ":" in port:
            raise InvalidRequest(
                f"an IPv6 address stands in brackets: zk://[::1]:2181; if it is a login, {NOT_ENCODED}"
            )
    if not host or any(letter in host for letter in " %\\#"):
        raise InvalidRequest(f"a host is missing, or is not one, in the URL: {HOW}")
    if port and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise InvalidRequest(f"a port is a number from 1 to 65535; if that is a part of a password, {NOT_ENCODED}")
    return _joined(host, int(port or PORT))


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _chroot(path: str) -> str:
    if path in ("", "/"):
        return CHROOT
    chroot = unquote(path).rstrip("/")
    parts = chroot.split("/")[1:]
    if not all(parts) or any(part in (".", "..") for part in parts):
        raise InvalidRequest(f"{_shown(chroot)} is no path of ZooKeeper: it is like /apps/leasehold")
    if parts[0] == "zookeeper":
        raise InvalidRequest("/zookeeper belongs to ZooKeeper itself: choose another chroot")
    if any(_forbidden(letter) for letter in chroot):
        raise InvalidRequest(f"{_shown(chroot)} has characters that ZooKeeper forbids in a path")
    return chroot


def _forbidden(letter: str) -> bool:
    code = ord(letter)
    return code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF


def _seconds(text: str | None) -> float:
    if text is None:
        return SESSION_SECONDS
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise InvalidRequest(f"session= is a number of seconds from 1 to 60, not {_shown(text)}")
    return seconds


def _acl(text: str | None, has_login: bool) -> str:
    if text is None:
        return "creator" if has_login else "open"
    if text not in ("creator", "open"):
        raise InvalidRequest(f"acl= is creator or open, not {_shown(text)}")
    return text


def _sasl(text: str | None, user: str, password: str) -> dict[str, Any] | None:
    if text is None:
        return None
    if text not in ("digest", "gssapi"):
        raise InvalidRequest(f"sasl= is digest or gssapi, not {_shown(text)}")
    _check_packages("GSSAPI" if text == "gssapi" else "DIGEST-MD5")
    if text == "gssapi":
        return {"mechanism": "GSSAPI", **({"principal": user} if user else {})}
    if not user:
        raise InvalidRequest("sasl=digest needs a user and a password: zk://user:password@host")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


def _check_packages(mechanism: str) -> None:
    """kazoo would only say that the login has failed."""
    if importlib.util.find_spec("puresasl") is None:
        raise InvalidRequest("a login by SASL needs the package pure-sasl: pip install 'leasehold[zookeeper-sasl]'")
    if mechanism == "GSSAPI" and not any(map(importlib.util.find_spec, ("kerberos", "winkerberos"))):
        raise InvalidRequest("sasl=gssapi needs the package kerberos: pip install 'pure-sasl[gssapi]'")


def _tls(options: Mapping[str, str]) -> dict[str, Any]:
    if options.get("tls", "yes") not in ("yes", "no"):
        raise InvalidRequest(f"tls= is yes or no, not {_shown(options['tls'])}")
    files = {name: options[name] for name in ("ca", "cert", "key") if name in options}
    if options.get("tls") == "no" or not (files or "tls" in options):
        if files:
            raise InvalidRequest("ca=, cert= and key= are for TLS, which tls=no forbids")
        return {}
    for name, file in files.items():
        if not os.access(file, os.R_OK):
            raise InvalidRequest(f"{name}= names a file that cannot be read: {_shown(file)}")
    if "key" in files and "cert" not in files:
        raise InvalidRequest("key= needs cert=, the certificate that it belongs to")
    found: dict[str, Any] = {"use_ssl": True, "check_hostname": True}
    if "ca" in files:
        found["ca"] = files["ca"]
    if "cert" in files:
        found |= {"certfile": files["cert"], "keyfile": files.get("key", files["cert"])}
    return found


def _shown(text: str) -> str:
    return repr(text[:40])
