"""The options of ``leasehold elect`` and ``cron``, which run for a long time, and what makes requests of them."""

from __future__ import annotations

import json

from leasehold.cli.arguments import (
    COMMON,
    METRICS,
    ON_REVOKE,
    SHARED_STORE,
    Option,
    RunRequest,
    Usage,
    duration,
    number,
    options,
    parts,
)

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
    ON_REVOKE,
    Option("once", "--once", "", "Lead one term: when it is lost, exit instead of standing again."),
    SHARED_STORE,
    *METRICS,
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
    ON_REVOKE,
    Option("runs", "--runs", "N", "End after N runs on this host, with the exit code of the last.", unset="no end"),
    Option("history", "--history", "NAME", "Print the last runs of NAME, and run nothing."),
    Option("limit", "--limit", "N", "With --history: how many.", default="20"),
    Option("upcoming", "--next", "N", "Print the next N ticks of EXPRESSION, and run nothing."),
    SHARED_STORE,
    *METRICS,
    *COMMON,
)  # fmt: skip


# ---------------------------------------------------------------- requests


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
        self.health_retries = number(given["health_retries"], "--health-retries")
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
        self.runs = number(given["runs"], "--runs") if "runs" in given else None
        self.history = "history" in given
        self.upcoming = number(given["upcoming"], "--next") if "upcoming" in given else None


def _json_or_text(text: str | None) -> object:
    """A value that is no JSON is text: an address need not be quoted twice."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---------------------------------------------------------------- the parsers


def parse_elect(words: list[str], given: dict[str, str]) -> ElectRequest:
    """All that follows ``elect``, in the same way."""
    return ElectRequest(*parts(words, given, ELECT, "the election"))


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
    given, name, command = parts(rest, given, CRON, "the cron")
    return CronRequest(given, expression, name, command)
