"""A URL of etcd: ``etcd://[user:password@]host[:port],host[:port],.../prefix?option=value``.

Errors say in one sentence what is wrong, and never show what may be a part of a password.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping
from urllib.parse import unquote

from leasehold._core.light_typing import NamedTuple
from leasehold.errors import InvalidRequest

PORT = 2379
PREFIX = "leasehold"
SCHEMES = ("etcd", "etcds")
OPTIONS = ("tls", "ca", "cert", "key")
SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
PARTS = ("r", "w", "g", "n")  # of the keys under a prefix: see keys.py
EXAMPLE = "write etcd://host1,host2:2379/prefix"
NOT_ENCODED = "percent-encode the special characters of the user and the password: @ is %40, / is %2F, ? is %3F"


class Endpoint(NamedTuple):
    """Where one member listens for clients."""

    host: str
    port: int = PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Target(NamedTuple):
    """The members, the login there, and under which keys our records are kept."""

    endpoints: tuple[Endpoint, ...]
    prefix: str = PREFIX
    user: str = ""
    password: str = ""
    tls: Mapping[str, str] | None = None  # the files: ca, cert, key

    def __repr__(self) -> str:
        return f"<{self.server}>"  # never the password

    @property
    def server(self) -> str:
        """As errors name it."""
        return f"etcd at {','.join(map(str, self.endpoints))}"

    @property
    def url(self) -> str:
        """Where it is, without login and options."""
        return f"etcd{'s' if self.tls is not None else ''}://{','.join(map(str, self.endpoints))}/{self.prefix}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Certificates are always checked. Raises InvalidRequest for files that cannot be used."""
        if self.tls is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls.get("ca"))
            if "cert" in self.tls:
                context.load_cert_chain(self.tls["cert"], self.tls.get("key"))
        except OSError as error:  # ssl.SSLError is one
            raise InvalidRequest(f"the files of ca=, cert= and key= cannot be used: {error}") from error
        return context


def from_url(url: str) -> Target:
    """Raises InvalidRequest."""
    _check_text(url)
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES or not rest:
        raise InvalidRequest(f"that is no URL of etcd: {EXAMPLE}")
    if "#" in rest:
        raise InvalidRequest("the URL has a '#': percent-encode it as %23")
    front, _, query = rest.partition("?")
    authority, _, path = front.partition("/")
    login, _, hosts = authority.rpartition("@")
    if "@" in path or "@" in login or "@" in query:
        raise InvalidRequest(NOT_ENCODED)
    user, colon, password = login.partition(":")
    if bool(user) != bool(password) or (colon and not user):
        raise InvalidRequest("the URL has a user without a password, or a password without a user: give both")
    target = Target(
        endpoints=tuple(_endpoint(one) for one in hosts.split(",")),
        prefix=_prefix(path),
        user=unquote(user),
        password=unquote(password),
        tls=_tls(scheme, _options(query)),
    )
    if len(set(target.endpoints)) != len(target.endpoints):
        raise InvalidRequest("the URL names the same host and port twice")
    target.tls_context()
    return target


def _check_text(url: str) -> None:
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the URL has characters that cannot be sent as UTF-8") from None
    if any(char <= " " or char == "\x7f" for char in url):
        raise InvalidRequest("the URL has a space or a control character: percent-encode it")


def _endpoint(text: str) -> Endpoint:
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidRequest(f"an IPv6 address stands in brackets, such as [::1]:{PORT}")
        if not port:
            port = f":{PORT}"
        port = port[1:]
    elif ":" in text:
        host, _, port = text.partition(":")
    else:
        port = str(PORT)
    if not host or any(char in host for char in "%\\"):
        raise InvalidRequest(f"the URL has a host without a name: {EXAMPLE}")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise InvalidRequest(f"a port is a number from 1 to 65535; if that is a part of a password, {NOT_ENCODED}")
    return Endpoint(host, int(port))


def _prefix(path: str) -> str:
    if not path:
        return PREFIX
    text = unquote(path.removesuffix("/"))
    if any(not part or part in (".", "..") for part in text.split("/")):
        raise InvalidRequest("the prefix in the URL has an empty part, '.' or '..' between its slashes")
    if text.rpartition("/")[2] in PARTS:
        raise InvalidRequest("the prefix in the URL ends in r, w, g or n: another store may keep its keys there")
    if "\ufffd" in text or any(char < " " or char == "\x7f" for char in text):
        raise InvalidRequest("the prefix in the URL has characters that are no text")
    return text


def _options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split("&") if query else []:
        name, _, value = pair.partition("=")
        if name not in OPTIONS:
            like = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f": did you mean {like[0]}?" if like else f": there are {', '.join(OPTIONS)}"
            raise InvalidRequest(f"a URL of etcd has no option {name[:40]!r}{hint}")
        if name in found:
            raise InvalidRequest(f"the URL has the option {name} twice")
        if not value:
            raise InvalidRequest(f"the option {name} of the URL has no value")
        found[name] = unquote(value)
    return found


def _tls(scheme: str, options: dict[str, str]) -> Mapping[str, str] | None:
    wanted = options.pop("tls", "1" if scheme == "etcds" else "0")
    if wanted not in SWITCH:
        raise InvalidRequest(f"tls= is 1 or 0, not {wanted[:40]!r}")
    if not SWITCH[wanted]:
        if scheme == "etcds":
            raise InvalidRequest("etcds:// is TLS, and tls=0 is none: leave one of them out")
        if options:
            raise InvalidRequest("ca=, cert= and key= are for TLS: write etcds://, or add tls=1")
        return None
    if "key" in options and "cert" not in options:
        raise InvalidRequest("key= belongs to a certificate: add cert=")
    return options
