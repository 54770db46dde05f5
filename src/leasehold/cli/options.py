"""The options of ``leasehold run``, ``elect`` and ``cron``, and those of every command. One table: it is parsed by hand
where a command must start fast, and shown by click in the help and in completions."""

from __future__ import annotations

from leasehold.cli import codes


class Option:
    """One option. ``value`` is what the help calls its value; empty: it takes none."""

    __slots__ = ("choices", "field", "names", "text", "value")

    def __init__(self, field: str, names: str, value: str, text: str, *choices: str) -> None:
        self.field = field
        self.names = names.split()
        self.value = value
        self.text = text
        self.choices = choices


COMMON = (
    Option("url", "--url", "URL", "The store, such as redis://host. Default: LEASEHOLD_URL, else a file of this user."),
    Option("namespace", "--namespace", "TEXT", "A prefix of all names. Default: LEASEHOLD_NAMESPACE, else none."),
    Option("as_json", "--json", "", "For programs: JSON in place of words."),
)

RUN = (
    Option("ttl", "--ttl", "30s", "How long the lease lasts when this process is gone; until then it is renewed."),
    Option("wait", "--wait", "10s", "How long to wait for it. Default: for ever."),
    Option("no_wait", "-n --no-wait", "", "One try: do not wait."),
    Option("at_least", "--at-least", "5m", "Keep others out for that long, even when the command ends earlier."),
    Option("shared", "--shared", "", "Beside others who say --shared too, as readers; never beside one who does not."),
    Option("limit", "--limit", "N", "Beside others, up to N at a time."),
    Option(
        "on_lost", "--on-lost", "term|kill|warn", "What to do with the command when the lease is lost.",
        "term", "kill", "warn",
    ),
    Option("busy_code", "-E --busy-code", "CODE", f"Exit with this when it is busy, in place of {codes.BUSY}."),
    Option("skip_ok", "--skip-ok", "", "Busy is fine: exit with 0 and say nothing."),
    *COMMON,
)  # fmt: skip

ELECT = (
    Option("ttl", "--ttl", "10s", "How long a term lasts when this process is gone; until then it is renewed."),
    Option("wait", "--wait", "10s", "How long to stand for each term. Default: for ever."),
    Option("value", "--value", "JSON|TEXT", "What everybody can see while we lead, such as an address."),
    Option("health", "--health", "COMMAND", "A shell command, run every third of the ttl; when it fails, step down."),
    Option("once", "--once", "", "Lead one term: when it is lost, exit in place of standing again."),
    *COMMON,
)

CRON = (
    Option("timezone", "--timezone", "ZONE", "By whose hours, such as Europe/Amsterdam. Default: UTC."),
    Option(
        "missed", "--missed", "skip|once|all", "Ticks that nobody ran: leave it at that, one run for all, or one each.",
        "skip", "once", "all",
    ),
    Option(
        "overlap", "--overlap", "skip|wait", "A tick that comes during a run: leave it out, or run it after.",
        "skip", "wait",
    ),
    Option("grace", "--grace", "1m", "How late a tick may begin before it is missed. Default: 1m, at least two ttls."),
    Option("at_least", "--at-least", "5m", "Keep others out for that long, even when a run ends earlier."),
    Option("at_most", "--at-most", "1h", "A run that takes longer is stopped: its lease is lost."),
    Option("ttl", "--ttl", "30s", "How long the lease lasts when this process is gone; until then it is renewed."),
    Option(
        "on_lost", "--on-lost", "term|kill|warn", "What to do with the command when the lease is lost.",
        "term", "kill", "warn",
    ),
    Option("runs", "--runs", "N", "End after so many runs here, with the exit code of the last. Default: never."),
    Option("history", "--history", "NAME", "Print the last runs of NAME, and run nothing."),
    Option("limit", "--limit", "N", "With --history: how many. Default: 20."),
    Option("upcoming", "--next", "N", "Print the next N ticks of EXPRESSION, and run nothing."),
    *COMMON,
)  # fmt: skip
