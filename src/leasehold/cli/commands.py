"""The commands and their options. The code of a command is imported when it is called, so that each starts fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from leasehold import __version__
from leasehold.cli import completion as shell_completion
from leasehold.cli import operator_commands
from leasehold.cli.arguments import COMMON, RUN, RunRequest, Usage, described, parse_run
from leasehold.cli.click_options import common, option, parameters, storeless
from leasehold.cli.service_arguments import CRON, ELECT, CronRequest, ElectRequest, parse_cron, parse_elect


class RunCommand(click.Command):
    """A command that is parsed by ``arguments``, so that there is one parser, and documented by click."""

    parse: Callable[[list[str], dict[str, str]], RunRequest] = staticmethod(parse_run)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves only help and completion to click."""
        before = args[: args.index("--")] if "--" in args else args
        if ctx.resilient_parsing or {"-h", "--help"} & set(before):
            return super().parse_args(ctx, before if {"-h", "--help"} & set(before) else args)
        try:
            ctx.params = {"request": self.parse(args, _given(ctx.obj))}
        except Usage as error:
            raise click.UsageError(str(error), ctx) from None
        return []


class ElectCommand(RunCommand):
    """The same for ``elect``."""

    parse = staticmethod(parse_elect)


class CronCommand(RunCommand):
    """The same for ``cron``."""

    parse = staticmethod(parse_cron)


def _given(before: dict[str, Any] | None) -> dict[str, str]:
    """An empty URL is given, and is a mistake: it must not become the embedded store."""
    return {key: str(value) for key, value in (before or {}).items() if value or (key == "url" and value is not None)}


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, params=[option(one) for one in COMMON])
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def commands(ctx: click.Context, /, **given: Any) -> None:
    """Leases with fencing tokens: distributed coordination that is honest about what a lock is."""
    ctx.obj = given


for command in operator_commands.EVERY:
    commands.add_command(command)


@commands.command(
    cls=RunCommand,
    short_help="Run a command under a lease.",
    params=parameters(RUN),
)
def run(request: RunRequest) -> None:
    """Run a command while holding the lease on NAME, so that it runs once at a time.

    NAME is a kind, or a kind and ids: backup, report-export:42. A DURATION is a number of seconds, or text such as 30s,
    5m, 1h30m. The command finds the fence of its lease in LEASEHOLD_FENCE. Signals are passed on to it. When the lease
    is lost, it is stopped before another holder can start.

    \b
    Examples:
      leasehold run backup -- ./backup.sh       wait for our turn
      leasehold run backup --url redis://host -n --skip-ok -- ./backup.sh
                                in a crontab: skip it while the last one runs
      leasehold run rollup --wait 10s --ttl 1m -- make rollup
      leasehold run rollup -n --at-least 5m -- ./tick
                                not again within five minutes
      leasehold run warehouse --limit 3 -- ./query
                                at most three at a time
      leasehold run catalogue --shared -- ./read
                                beside other readers, never beside a plain run

    \b
    Exit codes: the command's own, or
      75 busy      76 the lease was lost   69 the store cannot be reached
      2 usage      78 configuration        126 not executable
      127 not found                        128+n ended by signal n
    """
    from leasehold.cli.run import run as start

    raise SystemExit(start(request))


@commands.command(
    cls=ElectCommand,
    short_help="Run a command while leader.",
    params=parameters(ELECT),
)
def elect(request: ElectRequest) -> None:
    """Stand for the election NAME, and run a command while leader.

    When the term is lost, the command is stopped before another candidate can lead, and we stand again. When the
    command ends by itself, we resign and exit with its code. Signals are passed on to it: after SIGTERM it ends, and so
    do we.
    The command finds the number of its term in LEASEHOLD_TERM, which is a fence. A DURATION is a number of seconds, or
    text such as 30s, 5m, 1h30m.

    With --health the command is checked while it runs; a candidate that does not lead is not checked. After a term
    that ended because of it, or several short terms in a row, there is a pause before we stand again: longer each time,
    up to a minute.

    \b
    Examples:
      leasehold elect scheduler -- ./scheduler
      leasehold elect scheduler --value "$HOSTNAME:8000" -- ./scheduler
      leasehold elect scheduler --health 'curl -fsS localhost:8000/health' \\
          -- ./scheduler
                                a command that listens there within 30s

    \b
    Exit codes: the command's own, or
      75 the wait was over                 76 the term was lost, with --once
      69 the store cannot be reached       2 usage   78 configuration
      126 not executable   127 not found   128+n ended by signal n
    """
    from leasehold.cli.elect import elect as start

    raise SystemExit(start(request))


@commands.command(
    cls=CronCommand,
    short_help="Run a command at the ticks of a cron expression.",
    params=[click.Argument(["expression"]), *parameters(CRON)],
)
def cron(request: CronRequest) -> None:
    """Run a command at each tick of EXPRESSION, on one of the hosts that run the same line.

    A tick is claimed before it is run, so that clocks may differ by seconds; a run that dies is not repeated. The
    command finds the time for which it was scheduled in LEASEHOLD_TICK, and the fence of its lease in LEASEHOLD_FENCE.
    Signals are passed on to it: after SIGTERM it ends, and so do we. A DURATION is a number of seconds, or text such as
    30s, 5m, 1h30m.

    \b
    Examples:
      leasehold cron '0 3 * * *' nightly -- ./nightly.sh
      leasehold cron '*/5 * * * *' rollup --missed once --at-most 4m -- ./rollup
      leasehold cron '0 9 * * MON-FRI' mail --timezone Europe/Amsterdam -- ./mail
      leasehold cron --history nightly          its last runs
      leasehold cron --next 5 '0 3 * * *'       its next ticks

    \b
    Exit codes, of what ends it:
      the command's own, after a signal or with --runs
      76 the lease was lost meanwhile      69 the store is away at the start
      2 usage      78 configuration        126 not executable
      127 not found                        128+n ended by signal n
      1 with --history: nothing is known of that name
    """
    from leasehold.cli.cron import cron as start

    raise SystemExit(start(request))


@commands.command(short_help="Show what a store promises when something goes wrong.")
@click.argument("target", metavar="[STORE|URL]", required=False, shell_complete=shell_completion.stores)
@click.option("--all", "every", is_flag=True, help="Every store, side by side.")
@common
def guarantees(
    url: str | None,
    namespace: str | None,  # every command takes it
    as_json: bool,
    target: str | None,
    every: bool,
) -> None:
    """Show what a store promises when something goes wrong: a crash, a failover, a partition, a step of a clock, an
    eviction, a backup that is put back. Each promise has its reason. Nothing is sent to the store.

    STORE is its name, or the scheme of its URLs, such as redis+cluster. Without one it is the store that the other
    commands use.

    \b
    Examples:
      leasehold guarantees
      leasehold guarantees redis
      leasehold guarantees --all
      leasehold guarantees redis://host --json \\
          | jq '.events[] | select(.exclusion == "lost").event'
    """
    from leasehold.cli.guarantees import print_guarantees

    print_guarantees(url, target, every, as_json)


@commands.command(short_help="Find out which coordination fits, and why.")
@click.option("--case", metavar="NAME", shell_complete=shell_completion.cases, help="One of the cases above.")
@click.option("--answers", metavar="FILE", type=click.Path(), help="Answers as JSON; - is standard input.")
@storeless
def advise(as_json: bool, case: str | None, answers: str | None) -> None:
    """Print which coordination fits what you want to protect, and why: is a lease acceptable, is fencing required, is a
    transaction required, are duplicates acceptable? Without a case or answers, it asks questions.

    \b
    Cases:
      cache-rebuild      search-index-refresh   report-export
      monthly-invoices   payment-capture        legal-case-assignment
    (monthly-invoice-generation is monthly-invoices)

    \b
    Examples:
      leasehold advise
      leasehold advise --case payment-capture
      leasehold advise --case report-export --json | jq .need > answers.json
      leasehold advise --answers answers.json
    """
    from leasehold.cli.advise import print_verdict

    print_verdict(case, answers, as_json)


@commands.command(short_help="Find out how long a lease should be.")
@click.option("--from", "recorded", metavar="FILE", type=click.Path(), help="Durations, one a line, or the text of a "
              "scrape with leasehold_hold_seconds; - is standard input.")  # fmt: skip
@click.option("--kind", metavar="KIND", help="Which kind to take, where a scrape has several.")
@click.option("--p999", metavar="DURATION", help="What 99.9 % of the runs stay below. With renewal it does not matter.")
@click.option("--pause", metavar="DURATION", help=described("The longest pause of a healthy process.", "5s"))
@click.option(
    "--network", metavar="DURATION", help=described("The slowest answer of the store that is accepted.", "1s")
)
@click.option("--no-renew", is_flag=True, help="For a lease that is not renewed.")
@storeless
def ttl(as_json: bool, **given: Any) -> None:
    """Print how long a lease should be, how often it is then renewed, and when work must stop. A DURATION is a number
    of seconds, or text such as 250ms, 8s, 1m30s.

    \b
    Examples:
      leasehold ttl --pause 5s --network 1s
      leasehold ttl --p999 8s --pause 5s --network 1s --no-renew
      leasehold ttl --from durations.txt --no-renew
      curl -s localhost:8000/metrics \\
          | leasehold ttl --from - --kind report-export --no-renew
    """
    from leasehold.cli.ttl import print_ttl

    print_ttl(as_json=as_json, **given)


@commands.command(short_help="See what a stale owner is.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON, one in a line, and nothing else.")
@click.option("--no-color", is_flag=True, help="No colours. NO_COLOR in the environment does the same.")
@click.pass_obj
def demo(given: dict[str, Any], as_json: bool, no_color: bool) -> None:
    """See in a few seconds what a stale owner is, and how a guard stops it.

    Two real processes want to write one report. The one that holds the lease is frozen until the lease has ended,
    and then wakes up and writes: first without a guard, then with one. Everything happens in a temporary folder.
    """
    from leasehold.cli.demo import JsonLines, Timeline, run

    raise SystemExit(run(JsonLines() if as_json or given["as_json"] else Timeline(plain=no_color)))


@commands.group(short_help="What a guard needs in your database.")
def guard() -> None:
    """What a guard needs at the resource that it protects."""


@guard.command(short_help="Print the DDL of the SQL guard.")
@click.option(
    "--dialect", type=click.Choice(["sqlite", "postgresql", "mariadb"]), required=True, help="Which database."
)
@click.option("--table", metavar="NAME", help=described("The guard's own table.", "leasehold_fences"))
@click.option("--column", metavar="TABLE", help="Print what adds the columns of guard.update to a table of yours.")
@click.option("--fence-column", metavar="NAME", help=described("Its column for the fence.", "last_fencing_token"))
@click.option("--owner-column", metavar="NAME", help=described("Its column for the owner.", "last_owner"))
@click.option("--json", "as_json", is_flag=True, default=None, help="For programs: JSON in place of text.")
@click.pass_obj
def sql(given: dict[str, Any], /, **options: Any) -> None:
    """Print the DDL that guard.create() would run, for a migration; it runs nothing.

    \b
    Examples:
      leasehold guard sql --dialect postgresql | psql app
      leasehold guard sql --dialect mariadb --table audit.fences
      leasehold guard sql --dialect sqlite --column reports
    """
    from leasehold.cli.guard_sql import ddl

    options["as_json"] = bool(options["as_json"] or given.get("as_json"))
    ddl(**options)


@commands.group(short_help="What a store needs on its server.")
def store() -> None:
    """What a store needs on its server."""


@store.command("sql", short_help="Print the DDL of the store on a database.")
@click.option("--dialect", type=click.Choice(["postgresql"]), required=True, help="Which database.")
@click.option("--table", metavar="NAME", help=described("Its table, or SCHEMA.NAME.", "leasehold_leases"))
@click.option("--unlogged", is_flag=True, help="A table that is not in the log: faster, and empty after a crash.")
@click.option("--results", is_flag=True, help="Print the table for results of patterns as well.")
@click.option("--role", metavar="NAME", help="Print the GRANT for this role as well; else it is a comment.")
@click.option("--json", "as_json", is_flag=True, default=None, help="For programs: JSON in place of text.")
@click.pass_obj
def store_sql(given: dict[str, Any], /, **options: Any) -> None:
    """Print what makes the table of the store, and the rights that a role needs there; it runs nothing.

    Give it to whoever may create tables. Programs then connect with ?create=no.

    \b
    Examples:
      leasehold store sql --dialect postgresql | psql app
      leasehold store sql --dialect postgresql --table ops.leases --role worker
    """
    from leasehold.cli.store_sql import ddl

    options["as_json"] = bool(options["as_json"] or given.get("as_json"))
    ddl(**options)


@commands.command(short_help="Print a script for your shell.")
@click.argument("shell", type=click.Choice(shell_completion.SHELLS))
def completion(shell: str) -> None:
    """Print a script that teaches your shell to complete our commands, and the names in the embedded store.

    \b
    Examples:
      echo 'eval "$(leasehold completion bash)"' >> ~/.bashrc
      echo 'eval "$(leasehold completion zsh)"' >> ~/.zshrc
      leasehold completion fish > ~/.config/fish/completions/leasehold.fish
    """
    click.echo(shell_completion.script(shell, commands))
