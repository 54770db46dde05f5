"""The options of the commands, and a parser for them: click alone takes longer to load than ``leasehold run`` may."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.cli.output import ExitCode

# ---------------------------------------------------------------- options
#
# The options of ``leasehold run``, ``elect`` and ``cron``, and those of every command. One table: it is parsed by
# hand where a command must start fast, and shown by click in the help and in completions.


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
    Option("busy_code", "-E --busy-code", "CODE", "Exit with this when it is busy.", default=str(ExitCode.BUSY)),
    Option("skip_ok", "--skip-ok", "", "Busy is fine: exit with 0 and print nothing."),
    *COMMON,
)  # fmt: skip

ELECT = (
    Option("ttl", "--ttl", "DURATION", "How long a term lasts when this process is gone; until then it is renewed.",
           default="10s"),
    Option("wait", "--wait", "DURATION", "How long to stand for each term.", unset="for ever"),
    Option("value", "--value", "JSON|TEXT", "What others can read while we lead, such as an address."),
    Option("health", "--health", "COMMAND", "A shell command, run every third of the ttl while we lead. When it fails "
           "too often in a row, step down."),
    Option("health_start_period", "--health-start-period", "DURATION", "How long the command may take to become "
           "healthy: failures do not count until then, or until the first success.", default="30s"),
    Option("health_retries", "--health-retries", "N", "How many failures in a row are too many.", default="3"),
    Option("once", "--once", "", "Lead one term: when it is lost, exit instead of standing again."),
    *COMMON,
)  # fmt: skip

CRON = (
    Option("timezone", "--timezone", "ZONE", "The time zone of EXPRESSION, such as Europe/Amsterdam.", default="UTC"),
    Option("missed", "--missed", "skip|once|all", "Ticks that no host ran: skip them, one run for all, or one run "
           "each.", "skip", "once", "all", default="skip"),
    Option("overlap", "--overlap", "skip|wait", "A tick that comes during a run: skip it, or run it afterwards.",
           "skip", "wait", default="skip"),
    Option("grace", "--grace", "DURATION", "How late a tick may begin before it is missed.",
           unset="1m, at least two ttls"),
    Option("at_least", "--at-least", "DURATION", "Keep others out for that long, even when a run ends earlier.",
           unset="as long as it runs"),
    Option("at_most", "--at-most", "DURATION", "A run that takes longer is stopped: its lease is lost.",
           unset="any length"),
    Option("ttl", "--ttl", "DURATION", "How long the lease lasts when this process is gone; until then it is renewed.",
           default="30s"),
    Option("on_lost", "--on-lost", "term|kill|warn", "What to do with the command when the lease is lost.",
           "term", "kill", "warn", default="term"),
    Option("runs", "--runs", "N", "End after N runs on this host, with the exit code of the last.", unset="no end"),
    Option("history", "--history", "NAME", "Print the last runs of NAME, and run nothing."),
    Option("limit", "--limit", "N", "With --history: how many.", default="20"),
    Option("upcoming", "--next", "N", "Print the next N ticks of EXPRESSION, and run nothing."),
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
        self.ttl = duration(given["ttl"])
        lengths = {key: duration(given[key]) for key in ("wait", "at_least") if key in given}
        self.wait = 0.0 if "no_wait" in given else lengths.get("wait")
        self.at_least = lengths.get("at_least")
        self.shared = "shared" in given
        self.limit = _number(given["limit"]) if "limit" in given else None
        self.on_lost = given["on_lost"]
        self.skip_ok = "skip_ok" in given
        self.busy_code = 0 if self.skip_ok else _code(given["busy_code"])

    def _complete(self, given: dict[str, str]) -> dict[str, str]:
        """The values with the defaults of this command, and those of ``run`` for options that it lacks."""
        return {**defaults(RUN), **defaults(self.table), **given}


class ElectRequest(RunRequest):
    """One ``leasehold elect``."""

    table = ELECT

    def __init__(self, given: dict[str, str], name: str, command: list[str]) -> None:
        super().__init__(given, name, command)
        self.value = _json_or_text(given.get("value"))
        self.health = given.get("health")
        for key, option in (("health_start_period", "--health-start-period"), ("health_retries", "--health-retries")):
            if key in given and self.health is None:
                raise Usage(f"{option} is about --health: give the command to check with")
        given = self._complete(given)
        self.health_start_period = duration(given["health_start_period"])
        self.health_retries = _number(given["health_retries"], "--health-retries")
        self.once = "once" in given


class CronRequest(RunRequest):
    """One ``leasehold cron``."""

    table = CRON

    def __init__(self, given: dict[str, str], expression: str, name: str, command: list[str]) -> None:
        super().__init__(given, name, command)
        given = self._complete(given)
        self.expression = expression
        self.timezone = given["timezone"]
        self.missed = given["missed"]
        self.overlap = given["overlap"]
        lengths = {key: duration(given[key]) for key in ("grace", "at_most") if key in given}
        self.grace, self.at_most = lengths.get("grace"), lengths.get("at_most")
        self.runs = _number(given["runs"], "--runs") if "runs" in given else None
        self.history = "history" in given
        self.upcoming = _number(given["upcoming"], "--next") if "upcoming" in given else None


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
    given, name, command = _parts(words, given, RUN, "what to lock")
    for one, other, why in (
        ("wait", "no_wait", "-n does not wait: leave out --wait"),
        ("busy_code", "skip_ok", "--skip-ok exits with 0 when it is busy: leave out -E"),
        ("shared", "limit", "--shared is for any number of readers, --limit for N of a kind: leave out one of them"),
    ):
        if one in given and other in given:
            raise Usage(why)
    return RunRequest(given, name, command)


def parse_elect(words: list[str], given: dict[str, str]) -> ElectRequest:
    """All that follows ``elect``, in the same way."""
    return ElectRequest(*_parts(words, given, ELECT, "the election"))


def parse_cron(words: list[str], given: dict[str, str]) -> CronRequest:
    """All that follows ``cron``: an expression, a name and a command; or ``--history``, or ``--next``."""
    given, rest = options(words, CRON, given)
    if "history" in given:
        if rest or "upcoming" in given:
            raise Usage("--history NAME runs nothing: leave out the rest")
        return CronRequest(given, "", given["history"], [])
    if not rest or rest[0] == "--":
        raise Usage("it needs the EXPRESSION that says when, such as '0 3 * * *'")
    expression = rest[0]
    given, rest = options(rest[1:], CRON, given)
    if "history" in given:
        raise Usage("--history NAME runs nothing: leave out the rest")
    if "upcoming" in given and not rest:
        return CronRequest(given, expression, "", [])
    if " " not in expression.strip() and not expression.startswith("@"):
        raise Usage("the EXPRESSION is one word for the shell: quote it, as in leasehold cron '0 3 * * *' NAME -- ...")
    if "upcoming" in given:
        raise Usage("--next N EXPRESSION runs nothing: leave out the rest")
    given, name, command = _parts(rest, given, CRON, "the cron")
    return CronRequest(given, expression, name, command)


def _parts(
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


def _json_or_text(text: str | None) -> object:
    """A value that is no JSON is text: an address need not be quoted twice."""
    if text is None:
        return None
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def _number(text: str, option: str = "--limit") -> int:
    if not (text.isascii() and text.isdigit()):
        raise Usage(f"{option} takes a number such as 3, not {text!r}")
    return int(text)


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 255):
        raise Usage(f"-E takes a number from 0 to 255, not {text!r}")
    return int(text)
