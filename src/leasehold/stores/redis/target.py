"""The address of a server and the login there: from a URL, or from the settings of a client."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import InvalidRequest

PORT = 6379
SENTINEL_PORT = 26379
CONNECT_TIMEOUT = 5.0
PING_AFTER = 20.0  # seconds of silence: a firewall drops a connection without notice
TLS = ("rediss", "valkeys")
SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_min_version",
    "ssl_password",
)
OPTIONS = (
    "client_name",
    "db",
    "health_check_interval",
    "max_connections",
    "password",
    "protocol",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
    "username",
    *TLS_OPTIONS,
)
# What else redis-py and valkey-py take in a URL, and why it means nothing here.
_READS = "replies are read by Leasehold alone"
_REPEATS = "what was not sent is sent again, and nothing else is ever repeated by itself"
_CHECKS = "certificates cannot be checked in this way here"
MEANINGLESS = {
    "decode_responses": _READS,
    "encoding": _READS,
    "encoding_errors": _READS,
    "legacy_responses": _READS,
    "socket_read_size": _READS,
    "lib_name": "the server gets client_name, and no other",
    "lib_version": "the server gets client_name, and no other",
    "retry_on_error": _REPEATS,
    "retry_on_timeout": _REPEATS,
    "socket_keepalive_options": "TCP keepalive is always on, with its own settings",
    "ssl_exclude_verify_flags": _CHECKS,
    "ssl_include_verify_flags": _CHECKS,
    "ssl_ocsp_context": _CHECKS,
    "ssl_ocsp_expected_cert": _CHECKS,
    "ssl_validate_ocsp": _CHECKS,
    "ssl_validate_ocsp_stapled": _CHECKS,
    "timeout": "no call waits for a free connection; socket_connect_timeout and socket_timeout limit one",
}
VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}

Credentials = Callable[[], tuple[str, ...]]


class Target(NamedTuple):
    """One server, one database, one user."""

    host: str = "localhost"
    port: int = PORT
    path: str = ""  # of a unix socket
    db: int = 0
    username: str = ""
    password: str = ""
    credentials: Credentials | None = None  # called at each connect, for passwords that change
    tls: dict[str, Any] | None = None
    client_name: str = ""
    connect_timeout: float = CONNECT_TIMEOUT
    resp: int = 3
    reply_timeout: float = math.inf  # for one reply; each call has its own limit besides
    max_connections: int | None = None  # of threads and event loops; the watchdog's comes on top
    ping_after: float = PING_AFTER  # seconds of silence after which a connection is tried before it is used

    def __str__(self) -> str:
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    @property
    def server(self) -> str:
        """As errors name it."""
        return f"Redis at {self}"

    @property
    def url(self) -> str:
        """Where it is, without login and options."""
        if self.path:
            return f"unix://{self.path}?db={self.db}"
        return f"{'redis' if self.tls is None else 'rediss'}://{self}/{self.db}"

    def __repr__(self) -> str:
        return f"<{self} db={self.db}>"  # never the password

    def checked(self) -> Target:
        """Bad TLS settings are found before anything is sent."""
        if self.tls is not None:
            try:
                self.tls_context()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise InvalidRequest(f"the TLS settings cannot be used: {error}") from error
        return self

    def login(self) -> tuple[str, str]:
        """User and password, or two empty texts."""
        if self.credentials is None:
            return (self.username or ("default" if self.password else ""), self.password)
        given = [str(part or "") for part in self.credentials()]
        return (given[0] or "default", given[1]) if len(given) > 1 else ("default", given[0])

    def tls_context(self) -> ssl.SSLContext | None:
        """As the ``ssl_*`` options describe it. Certificates are checked unless an option turns that off."""
        if self.tls is None:
            return None
        options = self.tls
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"),
                                             cadata=options.get("ssl_ca_data"))  # fmt: skip
        verify = _verify(options.get("ssl_cert_reqs"))
        context.check_hostname = verify is not ssl.CERT_NONE and _yes(options.get("ssl_check_hostname", True))
        context.verify_mode = verify
        if options.get("ssl_min_version"):
            context.minimum_version = _version(options["ssl_min_version"])
        if options.get("ssl_ciphers"):
            context.set_ciphers(options["ssl_ciphers"])
        if options.get("ssl_certfile") or options.get("ssl_keyfile"):
            certificate = options.get("ssl_certfile") or options["ssl_keyfile"]
            context.load_cert_chain(certificate, options.get("ssl_keyfile"), options.get("ssl_password"))
        return context


def from_url(url: str, shown: str = "", example: str = "") -> Target:
    """``scheme://[[user]:password@]host[:port][/db][?option=value&...]``, or ``unix://[...@]/path[?...]``. Errors say
    what is wrong, and never show the password. ``shown`` and ``example``: the scheme that the user wrote, and a URL
    with it, where this URL is one node of several."""
    scheme = url.partition("://")[0]
    shown, example = shown or scheme, example or f"{scheme}://host:6379/0"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidRequest(f"the {shown} URL has a bad host or port: write {example}") from None
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"the {shown} URL holds what is no text: percent-encode it") from None
    if parts.fragment:
        raise InvalidRequest(f"the {shown} URL has a '#': percent-encode it as %23")
    if host and (any(char in host for char in ", ") or ("%" in host and ":" not in host)):
        raise InvalidRequest(
            f"the {shown} URL {'names one host, without spaces' if shown == scheme else 'has a bad host'}: {example}"
        )
    options = _options(shown, parts.query)
    secure = scheme in TLS
    if not secure and any(name in TLS_OPTIONS for name in options):
        raise InvalidRequest(f"ssl_* options need {_secure_form(shown)}")
    path, db = "", options.get("db", "0")
    if scheme == "unix":
        path = unquote(parts.path)
        if path.endswith("/") or not path or "\0" in path or (host and host != "localhost"):
            raise InvalidRequest("a unix URL has three slashes and a path: unix:///run/redis/redis.sock?db=0")
    elif parts.path.strip("/"):
        if "db" in options:
            raise InvalidRequest(f"the {shown} URL names the database twice: in its path and as an option")
        db = parts.path.strip("/")
    return Target(
        host=host or "localhost",
        port=PORT if port is None else _port(shown, port),
        path=path,
        db=_number(db, "the database number", 0),
        username=unquote(parts.username or "") or options.get("username", ""),
        password=unquote(parts.password or "") or options.get("password", ""),
        tls={name: value for name, value in options.items() if name in TLS_OPTIONS} if secure else None,
        client_name=_name(options.get("client_name", "")),
        connect_timeout=_seconds(options, "socket_connect_timeout", CONNECT_TIMEOUT),
        resp=_resp(options.get("protocol", "3")),
        reply_timeout=_seconds(options, "socket_timeout", math.inf),
        max_connections=_number(options["max_connections"], "max_connections", 1)
        if "max_connections" in options
        else None,
        ping_after=_interval(options.get("health_check_interval")),
    ).checked()


# ---------------------------------------------------------------- Sentinel

SENTINEL_OPTIONS = ("username", "password", "ssl", *TLS_OPTIONS)  # with "sentinel_" before each


class Sentinels(NamedTuple):
    """The Sentinels that name the primary of a service, and how to connect to either."""

    targets: tuple[Target, ...]
    service: str  # empty: the only one that they watch
    primary: Target  # its host and port are those that the Sentinels name
    force_host: str = ""  # in place of the one that they name
    least_others: int = 0  # what a Sentinel says counts only if it knows so many others

    @property
    def url(self) -> str:
        """Where it is, without login and options."""
        scheme = "redis" if self.primary.tls is None else "rediss"
        return f"{scheme}+sentinel://{','.join(map(str, self.targets))}/{self.service}/{self.primary.db}"

    def __repr__(self) -> str:
        return f"<{self.service} of {', '.join(map(str, self.targets))}>"  # never a password


def from_sentinel_url(url: str) -> Sentinels:
    """``redis+sentinel://[[user]:password@]host[:port],host[:port],.../service[/db][?option=value&...]``. Login,
    database and options are those of the servers; the options ``sentinel_...`` are the login and TLS of the Sentinels.
    Without them the Sentinels use TLS as the servers do, and no password."""
    scheme, _, rest = url.partition("://")
    example = f"{scheme}://host1,host2,host3/service/0"
    if "#" in rest:
        raise InvalidRequest(f"the {scheme} URL has a '#': percent-encode it as %23")
    front, _, query = rest.partition("?")
    authority, _, path = front.partition("/")
    login, at, hosts = authority.rpartition("@")
    service, _, db = path.partition("/")
    service = unquote(service)
    if not service or any(not 33 <= ord(char) <= 126 or char in "@/" for char in service) or "/" in db.rstrip("/"):
        raise InvalidRequest(f"the {scheme} URL names the service behind the hosts: {example}")
    pairs = query.split("&") if query else []
    own = _sentinel_options(scheme, [pair for pair in pairs if pair.startswith("sentinel_")])
    others = [pair for pair in pairs if not pair.startswith("sentinel_")]
    for name in [unquote_plus(pair.partition("=")[0]) for pair in others]:
        if name not in OPTIONS:
            raise InvalidRequest(_unknown(scheme, name, query))
    options = f"{'?' * bool(others)}{'&'.join(others)}"
    primary = from_url(f"{scheme.partition('+')[0]}://{login}{at}localhost/{db}{options}", scheme, example)
    targets = [_sentinel_address(host, example) for host in hosts.split(",")]
    settings = Target(
        username=own.get("username", ""),
        password=own.get("password", ""),
        tls=_sentinel_tls(own, primary.tls),
        connect_timeout=primary.connect_timeout,
    ).checked()
    return Sentinels(tuple([settings._replace(host=host, port=port) for host, port in targets]), service, primary)


def _sentinel_options(scheme: str, pairs: list[str]) -> dict[str, str]:
    """Without "sentinel_" before their names. A name is not shown: it may be a part of a password."""
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.removeprefix("sentinel_").partition("=")
        if name not in SENTINEL_OPTIONS or not equals:
            known = ", ".join(f"sentinel_{one}" for one in SENTINEL_OPTIONS)
            raise InvalidRequest(f"the {scheme} URL has an unknown option for the Sentinels; there are: {known}")
        if name in options:
            raise InvalidRequest(f"the {scheme} URL has the option sentinel_{name} twice")
        options[name] = unquote_plus(value)
    return options


def _sentinel_tls(own: dict[str, str], of_servers: dict[str, Any] | None) -> dict[str, Any] | None:
    settings = {name: value for name, value in own.items() if name in TLS_OPTIONS}
    if not _yes(own.get("ssl", of_servers is not None)):
        if settings:
            raise InvalidRequest("sentinel_ssl_* options need sentinel_ssl=true, or rediss+sentinel://")
        return None
    return {**(of_servers or {}), **settings}


def _sentinel_address(text: str, example: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", SENTINEL_PORT if parts.port is None else parts.port
    except ValueError:
        host, port = "", 0
    if not port or not host or any(char in host for char in "% @") or text != text.strip():
        raise InvalidRequest(f"the URL of Sentinels has a bad host or port: write {example}")
    return host, port


def _options(scheme: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise InvalidRequest(f"the options of the {scheme} URL must be name=value, joined by '&'") from None
    options: dict[str, str] = {}
    for name, value in pairs:
        if name not in OPTIONS:
            raise InvalidRequest(_unknown(scheme, name, query))
        if name in options:
            raise InvalidRequest(f"the {scheme} URL has the option {name} twice")
        options[name] = value
    if not _yes(options.get("socket_keepalive", True)):
        raise InvalidRequest(f"the {scheme} URL turns socket_keepalive off: it is always on here")
    return options


def _unknown(scheme: str, name: str, query: str) -> str:
    """Why an option is refused. Where a password was not percent-encoded, the name of the option may be a part of it: a
    bare '?' leaves an '@' behind it, and a bare '&' stands behind ``password=``. Such a name is not shown."""
    if name in MEANINGLESS:
        return f"the {scheme} URL has the option {name}, which means nothing here: {MEANINGLESS[name]}. Leave it out"
    known = f"there are: {', '.join(OPTIONS)}"
    if "@" in query or "password" in query.lower():
        return (
            f"the {scheme} URL has an unknown option, which is not shown because it may be a part of the password "
            f"(there, write %3F for '?' and %26 for '&'); {known}"
        )
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), OPTIONS, 1)
    return (
        f"the {scheme} URL has an unknown option {name[:40]!r}{f': did you mean {close[0]}?' if close else ';'} {known}"
    )


def _secure_form(scheme: str) -> str:
    """How a URL of this kind asks for TLS."""
    kind = "".join(scheme.partition("+")[1:])
    return "tls=true" if scheme == "redlock" else f"rediss{kind}:// or valkeys{kind}://"


def _port(scheme: str, port: int) -> int:
    if port == 0:
        raise InvalidRequest(f"the {scheme} URL has port 0")
    return port


def _number(text: str, what: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < least:
        raise InvalidRequest(f"{what} of a Redis URL must be a whole number{' above 0' if least else ''}")
    return int(text)


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    if name not in options:
        return default
    try:
        seconds = float(options[name])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise InvalidRequest(f"{name} must be a number of seconds above 0")
    return seconds


def _interval(text: str | None) -> float:
    """As in redis-py, 0 is never."""
    if text is None:
        return PING_AFTER
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise InvalidRequest("health_check_interval must be a number of seconds, or 0 for never")
    return seconds or math.inf


def _resp(text: str) -> int:
    if text not in ("2", "3"):
        raise InvalidRequest("protocol must be 2 or 3")
    return int(text)


def _name(text: str) -> str:
    if any(not 33 <= ord(char) <= 126 for char in text):
        raise InvalidRequest("client_name must have no spaces or control characters")
    return text


def _yes(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() not in ("0", "false", "no", "")


def _verify(value: Any) -> ssl.VerifyMode:
    if value is None:
        return ssl.CERT_REQUIRED
    if isinstance(value, ssl.VerifyMode):
        return value
    known = VERIFY.get(str(value).lower().removeprefix("cert_"))  # Celery writes CERT_REQUIRED
    if known is None:
        raise InvalidRequest(f"ssl_cert_reqs must be one of {', '.join(VERIFY)}")
    return known


def _version(value: Any) -> ssl.TLSVersion:
    if isinstance(value, ssl.TLSVersion):
        return value
    numbers = {str(int(version)): version for version in VERSIONS.values()}  # redis-py takes these
    known = VERSIONS.get(str(value).lower()) or numbers.get(str(value))
    if known is None:
        raise InvalidRequest(f"ssl_min_version must be one of {', '.join(VERSIONS)}")
    return known
