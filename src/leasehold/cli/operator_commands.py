"""The commands of operators: what is held and by whom, why it does not work, and what to do about it.

The code of a command is imported when it is called, as in ``commands``.
"""

from __future__ import annotations

from typing import Any

import click

from leasehold.cli import completion
from leasehold.cli.arguments import described
from leasehold.cli.click_options import common


@click.command(short_help="List what is held, and by whom.")
@click.argument("pattern", default="*")
@click.option(
    "--sort", "order", type=click.Choice(["name", "age", "remaining", "waiters"]), default="name", show_default=True,
    help="By name; the oldest lease, the one that expires next, or the longest queue first.",
)  # fmt: skip
@click.option("-l", "--long", is_flag=True, help="Show the hash of the ids, as logs have it, too.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also what is free and has a history, as `audit` shows.")
@click.option(
    "--watch", metavar="[SECONDS]", is_flag=False, flag_value="2", help="Again and again, every 2 s or so many seconds."
)
@common
def ls(url: str | None, namespace: str | None, as_json: bool, **given: Any) -> None:
    """List what is held: by whom, for how long, when the lease expires unless it is renewed, and how many wait.

    PATTERN is compared with the whole name; * stands for anything, ? for one character. What operators did is kept for
    30 days, also of what is free by now: --all lists that as well. On a terminal that is too narrow, each name gets a
    line of its own. `leasehold top` shows the same on a whole screen.

    \b
    Examples:
      leasehold ls
      leasehold ls 'report-export:*' --sort remaining
      leasehold ls --watch 5
      leasehold --json ls | jq -r '.[].resource'
    """
    from leasehold.cli.listing import ls as print_list

    print_list(url, namespace, as_json, **given)


@click.command(short_help="Show which store is used, and whether it answers.")
@common
def status(url: str | None, namespace: str | None, as_json: bool) -> None:
    """Show which store is used and why, its namespace, whether it answers and how fast, the versions of its server and
    of Leasehold, how many leases are held and waited for, and what it promises.

    \b
    Examples:
      leasehold status
      leasehold status --url redis://host --json | jq .round_trip

    \b
    Exit codes:
      0 it answers                         69 it cannot be reached
      2 usage                              78 configuration, such as an empty URL
    """
    from leasehold.cli.status import status as print_status

    print_status(url, namespace, as_json)


@click.command(short_help="Watch what is held, on a whole screen.")
@click.argument("pattern", default="*")
@click.option(
    "--sort", "order", type=click.Choice(["name", "age", "remaining", "waiters"]), default="remaining",
    show_default=True, help="The first order; the key s takes the next.",
)  # fmt: skip
@click.option("--every", metavar="DURATION", default="2s", show_default=True, help="How often to look.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also what is free and has a history; the key a, too.")
@common
def top(url: str | None, namespace: str | None, as_json: bool, **given: Any) -> None:
    """Watch what is held: holders, what is left of each lease, who waits and for how long, how many leases are granted
    a second. Keys sort, filter and inspect; ask a holder to release; and take a lease away, after a reason is given.
    They are shown at the bottom. It needs textual: pip install 'leasehold[top]'.

    \b
    Examples:
      leasehold top
      leasehold top 'report-*' --sort waiters --url redis://host
    """
    from leasehold.cli.top import top as watch

    watch(url, namespace, as_json, **given)


@click.command(short_help="Show one resource.")
@click.argument("name", required=False, shell_complete=completion.names)
@click.option("--id-hash", metavar="HEX", help="Find it by the hash of its ids, which logs show in their place.")
@common
def inspect(url: str | None, namespace: str | None, as_json: bool, name: str | None, id_hash: str | None) -> None:
    """Show one resource: its holder, who waits, and what operators did to it.

    NAME is a name as `leasehold ls` shows it, or as messages and logs do: report-export#2cfe7600489b.

    \b
    Examples:
      leasehold inspect report-export:42
      leasehold inspect report-export:42 --json | jq .holders[0].owner
      leasehold inspect --id-hash 2cfe7600489b

    \b
    Exit codes:
      0 it is held, closed or unreadable   1 it is free, or no name has the hash
      69 the store cannot be reached       2 usage   78 configuration
    """
    if (name is None) == (id_hash is None):
        raise click.UsageError("it needs the NAME of a resource, or --id-hash: one of them")
    from leasehold.cli import inspection

    if id_hash is not None:
        inspection.inspect_hash(url, namespace, id_hash, as_json)
    elif name is not None:
        inspection.inspect(url, namespace, name, as_json)


@click.command(short_help="Take a lease away by hand.")
@click.argument("name", shell_complete=completion.names)
@click.option("--reason", metavar="TEXT", required=True, help="Why: it is kept with the resource, for `audit`.")
@click.option("--by", metavar="NAME", help=described("Who does it; the host is added.", "the user of this process"))
@click.option("--guard", metavar="TABLE[.COLUMN]", help="Where the downstream guard keeps its fences: print the query.")
@click.option("--expect-fence", metavar="N", type=int, help="Evict the lease with this fence, and no other.")
@click.option("--delay", metavar="DURATION", help=described("How long nobody gets it afterwards; less than what "
              "remains needs --force.", "what remains of the lease"))  # fmt: skip
@click.option(
    "--wait", is_flag=True, help="First wait for the end of the lease: evict only if it is renewed meanwhile."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also when the holder has renewed within a third of the ttl.")
@common
def clear(url: str | None, namespace: str | None, as_json: bool, **given: Any) -> None:
    """Take away a lease whose holder is stuck. It prints what the runbook asks: what remains of the lease, who holds
    it, when it was last renewed, whether the holder is alive, what to look at downstream; then it asks, and evicts the
    holder that it has shown.

    The next fence is higher, the holder is told, and the resource stays closed for what remained of the lease, because
    the holder may work for that long. So waiting for the end is as fast, and needs nobody. The guard is the one of
    --guard, or of "guard" in the metadata of the holder: a TABLE of a guard, or TABLE.COLUMN of your own.

    \b
    Examples:
      leasehold clear report-export:42 --reason 'host db-3 is on fire'
      leasehold clear report-export:42 --reason 'frozen' --wait --yes
      leasehold clear report-export:42 --reason 'frozen' \\
          --guard reports.last_fencing_token
      leasehold clear warehouse --reason 'pid 4711 hangs' \\
          --expect-fence 1794768018952706

    \b
    Exit codes:
      0 evicted, or ended by itself        1 nobody holds it, or the answer was no
      75 the holder renewed lately, or it is another one by now
      69 the store cannot be reached       2 usage   78 configuration
    """
    from leasehold.cli.clear import ClearRequest
    from leasehold.cli.clear import clear as walk

    walk(url, namespace, as_json, ClearRequest(**given))


@click.command(short_help="Ask the holder of a lease to release it.")
@click.argument("name", shell_complete=completion.names)
@click.option("--fence", metavar="N", type=int, help=described("Ask only the holder with this fence.", "all of them"))
@click.option("--wait", metavar="DURATION", help="Wait for so long until it is released.")
@click.option("--reason", metavar="TEXT", help="Why: it is kept with the resource, for `audit`.")
@click.option("--by", metavar="NAME", help=described("Who asks; the host is added.", "the user of this process"))
@common
def revoke(url: str | None, namespace: str | None, as_json: bool, **given: Any) -> None:
    """Ask the holder to release its lease: its lease.revoked is set. It may go on; `leasehold clear` takes it away.
    `leasehold audit` shows who asked.

    \b
    Examples:
      leasehold revoke report-export:42 --reason 'we deploy'
      leasehold revoke nightly --wait 30s || leasehold clear nightly --reason hung

    \b
    Exit codes:
      0 asked, and with --wait released    1 there is nobody who can be asked
      75 it is still held after --wait     69 the store cannot be reached
      2 usage      78 configuration
    """
    from leasehold.cli.clear import RevokeRequest
    from leasehold.cli.clear import revoke as ask

    ask(url, namespace, as_json, RevokeRequest(**given))


@click.command(short_help="Show what operators did.")
@click.argument("name", metavar="[NAME|PATTERN]", default="*", shell_complete=completion.names)
@click.option(
    "--since", metavar="DURATION|TIME", help=described("How far back: 2h, 2026-11-17, 2026-11-17T03:00.", "all")
)
@click.option("--limit", metavar="N", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@common
def audit(url: str | None, namespace: str | None, as_json: bool, name: str, since: str | None, limit: int) -> None:
    """Show who evicted whom, or asked whom to release, when, and why: of all resources, also of those that are free
    now, newest first. The store keeps the last 20 notes of each resource, for 30 days.

    \b
    Examples:
      leasehold audit
      leasehold audit report-export:42
      leasehold audit 'report-*' --since 24h
      leasehold audit --json | jq -r '.[] | [.at, .resource, .by, .reason] | @tsv'
    """
    from leasehold.cli.audit import audit as print_notes

    print_notes(url, namespace, as_json, name, since, limit)


@click.command(short_help="Find keys without a TTL, of any library.")
@click.option(
    "--pattern", metavar="GLOB", default="lock:*", show_default=True, help="Which keys, as SCAN matches them."
)
@common
def leaks(url: str | None, namespace: str | None, as_json: bool, pattern: str) -> None:
    """List the keys in Redis that match and have no TTL, of whichever library: a lock that never becomes free after a
    crash. Leasehold leaves none, and on other stores there can be none. The namespace does not matter. Standard
    error says in which store they are.

    \b
    Examples:
      leasehold leaks
      leasehold leaks --pattern 'celery-singleton:*'
      0 * * * *  chronic leasehold leaks --url redis://host
                                in a crontab: mail when there are any

    \b
    Exit codes:
      0 there are none                     1 there are some
      69 the store cannot be reached       2 usage   78 configuration
    """
    from leasehold.cli.leaks import leaks as print_keys

    print_keys(url, namespace, as_json, pattern)


@click.command(short_help="Examine the store, and say what is wrong with it.")
@click.option("--checklist", is_flag=True, help="The sixteen points before production: pass, fail, only you can know.")
@click.option("--metrics", metavar="URL|FILE", help="A Prometheus exposition of programs that use Leasehold; - is "
              "standard input. Anti-patterns are found in it.")  # fmt: skip
@click.option("--answers", metavar="FILE", type=click.Path(), help="For the checklist: what only people can know, as "
              "TOML or JSON; - is standard input.")  # fmt: skip
@click.option("--answers-template", is_flag=True, help="Print such a file, and examine nothing.")
@common
def doctor(
    url: str | None,
    namespace: str | None,
    as_json: bool,
    checklist: bool,
    metrics: str | None,
    answers: str | None,
    answers_template: bool,
) -> None:
    """Examine the store as a program would use it: each finding is ok, a note, a warning or a problem, with the reason
    and what to do. Servers that are away, and what this user may not see, are findings as well.

    Nothing is changed but one resource of its own, leasehold-doctor:HOST:PID, on which leases are taken and given back.

    \b
    Examples:
      leasehold doctor
      leasehold doctor --url redis+sentinel://s1,s2,s3/main --json \\
          | jq '.findings[] | select(.severity == "problem")'
      leasehold doctor --metrics http://localhost:8000/metrics
      leasehold doctor --answers-template > answers.toml
      leasehold doctor --checklist --answers answers.toml \\
          --metrics http://localhost:8000/metrics

    \b
    Exit codes:
      0 no problem, and no point of the checklist fails     1 there is one
      69 the store cannot be reached   2 usage   78 configuration
    """
    from leasehold.cli.doctor import print_report, print_template

    if answers_template:
        print_template()
    else:
        print_report(url, namespace, as_json, checklist, metrics, answers)


EVERY = (ls, status, top, inspect, clear, revoke, audit, leaks, doctor)
