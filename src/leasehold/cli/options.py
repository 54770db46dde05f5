"""The options of ``leasehold run``, ``elect`` and ``cron``, and those of every command. One table: it is parsed by hand
where a command must start fast, and shown by click in the help and in completions."""

from __future__ import annotations

from leasehold.cli import exit_codes


class Option:
    """One option. ``value`` is what the help calls its value; empty: it takes none. ``default`` is what is read when
    it is absent; ``unset`` says what happens then where that is no value."""

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
        """Its text and its default. An example is in the text, and says so."""
        return described(self.text, self.default or self.unset)


def described(text: str, default: str) -> str:
    """The help of an option: the same form for every default."""
    return f"{text} [default: {default}]" if default else text


def defaults(table: tuple[Option, ...]) -> dict[str, str]:
    """What is read for the options that are absent."""
    return {option.field: option.default for option in table if option.default}


COMMON = (
    Option("url", "--url", "URL", "The store, such as redis://host.", unset="LEASEHOLD_URL, else a file of this user"),
    Option("namespace", "--namespace", "TEXT", "A prefix of all names.", unset="LEASEHOLD_NAMESPACE, else none"),
    Option("as_json", "--json", "", "For programs: JSON in place of words."),
)

RUN = (
    Option("ttl", "--ttl", "DURATION", "How long the lease lasts when this process is gone; until then it is renewed.",
           default="30s"),
    Option("wait", "--wait", "DURATION", "How long to wait for it.", unset="for ever"),
    Option("no_wait", "-n --no-wait", "", "One try: do not wait."),
    Option("at_least", "--at-least", "DURATION", "Keep others out for that long, even when the command ends earlier.",
           unset="as long as it runs"),
    Option("shared", "--shared", "", "Beside others who say --shared too, as readers; never beside one who does not."),
    Option("limit", "--limit", "N", "Beside others, up to N at a time.", unset="alone"),
    Option("on_lost", "--on-lost", "term|kill|warn", "What to do with the command when the lease is lost.",
           "term", "kill", "warn", default="term"),
    Option("busy_code", "-E --busy-code", "CODE", "Exit with this when it is busy.", default=str(exit_codes.BUSY)),
    Option("skip_ok", "--skip-ok", "", "Busy is fine: exit with 0 and say nothing."),
    *COMMON,
)  # fmt: skip

ELECT = (
    Option("ttl", "--ttl", "DURATION", "How long a term lasts when this process is gone; until then it is renewed.",
           default="10s"),
    Option("wait", "--wait", "DURATION", "How long to stand for each term.", unset="for ever"),
    Option("value", "--value", "JSON|TEXT", "What everybody can see while we lead, such as an address."),
    Option("health", "--health", "COMMAND", "A shell command, run every third of the ttl while we lead. When it fails "
           "too often in a row, step down."),
    Option("health_start_period", "--health-start-period", "DURATION", "How long the command may take to become "
           "healthy: failures do not count until then, or until the first success.", default="30s"),
    Option("health_retries", "--health-retries", "N", "How many failures in a row are too many.", default="3"),
    Option("once", "--once", "", "Lead one term: when it is lost, exit in place of standing again."),
    *COMMON,
)  # fmt: skip

CRON = (
    Option("timezone", "--timezone", "ZONE", "By whose hours, such as Europe/Amsterdam.", default="UTC"),
    Option("missed", "--missed", "skip|once|all", "Ticks that nobody ran: leave it at that, one run for all, or one "
           "each.", "skip", "once", "all", default="skip"),
    Option("overlap", "--overlap", "skip|wait", "A tick that comes during a run: leave it out, or run it after.",
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
    Option("runs", "--runs", "N", "End after so many runs here, with the exit code of the last.", unset="no end"),
    Option("history", "--history", "NAME", "Print the last runs of NAME, and run nothing."),
    Option("limit", "--limit", "N", "With --history: how many.", default="20"),
    Option("upcoming", "--next", "N", "Print the next N ticks of EXPRESSION, and run nothing."),
    *COMMON,
)  # fmt: skip
