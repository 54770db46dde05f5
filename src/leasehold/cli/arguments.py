"""The options of ``leasehold run``, and a parser for them: click alone takes longer to load than ``run`` may."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold.cli.output import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold.cli.metrics import CommandMetrics
    from leasehold.observe.events import Event

# ---------------------------------------------------------------- options
#
# The options of ``leasehold run``, and those of every command. One table: it is parsed by hand, so that the command
# starts fast, and shown by click in the help and in completions. ``service_arguments`` has those of elect and cron.


class Option:
    """One option. ``value`` is what the help calls its value; empty: it takes none. ``default`` is its value when it is
    absent; ``unset`` describes what happens then, where there is no such value."""

    __slots__ = ("choices", "default", "field", "names", "text", "unset", "value")

    def __init__(
        self, field: str, names: str, value: str, text: str, *choices: str, default: str = "", unset: str = ""
    ) -> None:
        self.field = field
        self.names = names.split()
        self.value = value
        self.text = text
        self.choices = choices
        self.default = default
        self.unset = unset

    @property
    def help(self) -> str:
        """Its text and its default."""
        return described(self.text, self.default or self.unset)


def described(text: str, default: str) -> str:
    """The help of an option: the same form for every default."""
    return f"{text} [default: {default}]" if default else text


def defaults(table: tuple[Option, ...]) -> dict[str, str]:
    """The values of the options that are absent."""
    return {option.field: option.default for option in table if option.default}


COMMON = (
    Option("url", "--url", "URL", "The store, such as redis://host.", unset="LEASEHOLD_URL, else a file of this user"),
    Option("namespace", "--namespace", "TEXT", "A prefix of all names.", unset="LEASEHOLD_NAMESPACE, else none"),
    Option("as_json", "--json", "", "For programs: JSON in place of text."),
)

SHARED_STORE = Option(
    "shared_store", "--shared-store", "",
    "Refuse the embedded store: for crontabs and containers, where a missing URL would go unnoticed. "
    "LEASEHOLD_REQUIRE_SHARED=1 does the same for every command.",
)  # fmt: skip

METRICS = (
    Option("metrics_file", "--metrics-file", "PATH", "Write metrics there, for the textfile collector of "
           "node_exporter: every 15 seconds, and at the end."),
    Option("metrics_port", "--metrics-port", "[HOST:]PORT", "Serve metrics there while it runs, for Prometheus; on "
           "127.0.0.1 unless HOST is given."),
)  # fmt: skip

ON_REVOKE = Option(
    "on_revoke", "--on-revoke", "warn|term", "What to do when an operator asks for the lease, with `leasehold revoke`: "
    "say so and go on, or end the command with SIGTERM.", "warn", "term", default="warn",
)  # fmt: skip

RUN = (
    Option("ttl", "--ttl", "DURATION", "How long the lease lasts when this process is gone; until then it is renewed.",
           default="30s"),
    Option("wait", "--wait", "DURATION", "How long to wait for it.", unset="for ever"),
    Option("no_wait", "-n --no-wait", "", "One try: do not wait."),
    Option("at_least", "--at-least", "DURATION", "Keep others out for that long, even when the command ends earlier.",
           unset="as long as it runs"),
    Option("shared", "--shared", "", "Beside other runs with --shared, as readers; never beside one without it."),
    Option("limit", "--limit", "N", "Beside others, up to N at a time.", unset="alone"),
    Option("on_lost", "--on-lost", "term|kill|warn", "What to do with the command when the lease is lost.",
           "term", "kill", "warn", default="term"),
    ON_REVOKE,
    Option("busy_code", "-E --busy-code", "CODE", "Exit with this when it is busy.", default=str(ExitCode.BUSY)),
    Option("skip_ok", "--skip-ok", "", "Busy is fine: exit with 0 and print nothing."),
    SHARED_STORE,
    *METRICS,
    *COMMON,
)  # fmt: skip


# ---------------------------------------------------------------- requests


class Usage(Exception):
    """The arguments make no sense. The message says why."""


class RunRequest:
    """One ``leasehold run``."""

    table: tuple[Option, ...] = RUN

    def __init__(self, given: dict[str, str], name: str, command: list[str]) -> None:
        given = self._complete(given)
        self.name = name
        self.command = command
        self.url = given.get("url")
        self.namespace = given.get("namespace")
        self.as_json = "as_json" in given
        self.shared_store = True if "shared_store" in given else None  # None: as the environment says
        self.ttl = duration(given["ttl"])
        lengths = {key: duration(given[key]) for key in ("wait", "at_least") if key in given}
        self.wait = 0.0 if "no_wait" in given else lengths.get("wait")
        self.at_least = lengths.get("at_least")
        self.shared = "shared" in given
        self.limit = number(given["limit"]) if "limit" in given else None
        self.on_lost = given["on_lost"]
        self.on_revoke = given["on_revoke"]
        self.skip_ok = "skip_ok" in given
        self.busy_code = 0 if self.skip_ok else _code(given["busy_code"])
        self.metrics_file = given.get("metrics_file")
        self.metrics_port = _address(given["metrics_port"]) if "metrics_port" in given else None
        self.metrics: CommandMetrics | None = None  # once they are open

    @property
    def observers(self) -> list[Callable[[Event], object]]:
        """The observers of its coordinators."""
        return [] if self.metrics is None else [self.metrics.observer]

    def _complete(self, given: dict[str, str]) -> dict[str, str]:
        """The values with the defaults of this command, and those of ``run`` for options that it lacks."""
        return {**defaults(RUN), **defaults(self.table), **given}


# ---------------------------------------------------------------- the parser


def quick(words: list[str]) -> RunRequest | None:
    """A plain ``leasehold [options] run ...``. None: another command, or an error, which click reports better."""
    try:
        return parse(words)
    except Usage:
        return None


def parse(words: list[str]) -> RunRequest | None:
    """The same, but a wrong ``run`` raises ``Usage``."""
    given, rest = options(words, COMMON) if "run" in words else ({}, [])
    return parse_run(rest[1:], given) if rest[:1] == ["run"] else None


def parse_run(words: list[str], given: dict[str, str]) -> RunRequest:
    """All that follows ``run``: one name, with options before and behind it, then ``--`` and the command."""
    given, name, command = parts(words, given, RUN, "what to lock")
    for one, other, why in (
        ("wait", "no_wait", "-n does not wait: leave out --wait"),
        ("busy_code", "skip_ok", "--skip-ok exits with 0 when it is busy: leave out -E"),
        ("shared", "limit", "--shared is for any number of readers, --limit for N of a kind: leave out one of them"),
    ):
        if one in given and other in given:
            raise Usage(why)
    return RunRequest(given, name, command)


def parts(
    words: list[str], given: dict[str, str], table: Iterable[Option], what: str
) -> tuple[dict[str, str], str, list[str]]:
    """Options, the name, and the command."""
    given, rest = options(words, table, given)
    if not rest or rest[0] == "--":
        raise Usage(f"it needs the NAME of {what}")
    given, command = options(rest[1:], table, given)
    if command[:1] != ["--"]:
        raise Usage("write -- before the command" if command else "it needs -- and the command to run")
    if len(command) == 1:
        raise Usage("there is no command behind --")
    return given, rest[0], command[1:]


def options(
    words: list[str], table: Iterable[Option], before: dict[str, str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """The options with which the words begin, added to those given before; and the rest of the words."""
    known = {name: option for option in table for name in option.names}
    given = dict(before or {})
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word, equals, value = _split(rest.pop(0))
        option = known.get(word)
        if option is None:
            raise Usage(f"no such option: {word}")
        if option.value and not equals:
            if not rest or rest[0] == "--":
                raise Usage(f"{word} needs a value")
            value = rest.pop(0)
        elif equals and not option.value:
            if word.startswith("--"):
                raise Usage(f"{word} takes no value")
            rest.insert(0, f"-{value}")  # -nE3 is -n -E3
            value = ""
        if option.choices and value not in option.choices:
            raise Usage(f"{word} is one of {', '.join(option.choices)}, not {value!r}")
        given[option.field] = value
    return given, rest


def _split(word: str) -> tuple[str, str, str]:
    """An option, and the value that may stand in the same word: ``--wait=10s``, ``-E3``."""
    if word.startswith("--"):
        return word.partition("=")
    return word[:2], word[2:], word[2:]


def duration(text: str) -> str | float:
    """A duration for the library. A bare number is seconds, as with sleep(1), timeout(1) and flock(1)."""
    try:
        return float(text)
    except ValueError:
        return text


def number(text: str, option: str = "--limit") -> int:
    if not (text.isascii() and text.isdigit()):
        raise Usage(f"{option} takes a number such as 3, not {text!r}")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    """``[HOST:]PORT``; an IPv6 address stands in brackets, or as it is."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise Usage(f"--metrics-port takes a port such as 9109, or HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 255):
        raise Usage(f"-E takes a number from 0 to 255, not {text!r}")
    return int(text)
