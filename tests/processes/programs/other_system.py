"""A program that runs where Python has no more than on another system: ``python other_system.py windows|macos``.

All that Leasehold loads from elsewhere is loaded first, as it is on Linux; then the functions, constants and modules go
that the other system lacks, and Leasehold is loaded anew. It is no such system, but it tells what we rely on. What
happened is printed, a line each.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import pkgutil
import selectors
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout

LACKING = {
    "windows": {
        "os": """
            register_at_fork fork forkpty uname getuid geteuid getgid getegid getgroups setuid seteuid setgid setegid
            setgroups setsid getsid getpgid getpgrp setpgid killpg wait wait3 wait4 waitid WNOHANG WUNTRACED WIFSTOPPED
            WIFSIGNALED WIFEXITED WEXITSTATUS WTERMSIG WSTOPSIG posix_spawn posix_spawnp POSIX_SPAWN_OPEN
            POSIX_SPAWN_DUP2 POSIX_SPAWN_CLOSE environb getenvb mknod mkfifo statvfs fstatvfs ST_RDONLY chown lchown
            fchown fchmod O_PATH O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK sched_getaffinity sched_yield getloadavg
            sysconf pread pwrite pipe2 set_blocking get_blocking openpty tcgetpgrp nice memfd_create eventfd pidfd_open
            getrandom sync
        """,
        "select": "poll epoll POLLIN POLLOUT POLLERR POLLHUP EPOLLIN EPOLLOUT",
        "_socket": "AF_UNIX SOCK_NONBLOCK SOCK_CLOEXEC MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS SCM_CREDENTIALS socketpair",
        "time": """
            clock_gettime clock_gettime_ns clock_getres clock_settime clock_settime_ns CLOCK_BOOTTIME CLOCK_MONOTONIC
            CLOCK_REALTIME CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID CLOCK_TAI CLOCK_MONOTONIC_RAW tzset
            pthread_getcpuclockid
        """,
        "signal": "*",
    },
    "macos": {
        "os": """
            O_PATH memfd_create eventfd pidfd_open sched_getaffinity getrandom posix_fallocate posix_fadvise setresuid
            setresgid getresuid
        """,
        "select": "epoll",
        "_socket": "SOCK_NONBLOCK SOCK_CLOEXEC MSG_NOSIGNAL",
        "time": "CLOCK_BOOTTIME CLOCK_TAI",
        "signal": "sigwaitinfo sigtimedwait SIGPWR SIGSTKFLT SIGPOLL SIGRTMIN SIGRTMAX",
    },
}
MODULES = {
    "windows": "fcntl resource pwd grp termios tty pty syslog posix _posixsubprocess _posixshmem _curses readline",
    "macos": "spwd",
}
SIGNALS = ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN")  # all of Windows
POSIX_SIGNALS = ("SIG", "ITIMER_", "alarm", "getitimer", "pause", "pthread_", "setitimer", "sig")
KEPT = ("signal", *SIGNALS)


def modules() -> Iterator[str]:
    """All of Leasehold, but the one that runs its command line."""
    import leasehold

    yield "leasehold"
    for found in pkgutil.walk_packages(leasehold.__path__, "leasehold."):
        if not found.name.endswith("__main__"):
            yield found.name


def become(system: str) -> None:
    """Forget Leasehold, and take away what the system lacks."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "leasehold"]:
        del sys.modules[name]
    for name in MODULES[system].split():
        sys.modules[name] = None  # type: ignore[assignment]  # an import then fails
    for name, lacking in LACKING[system].items():
        for module in {importlib.import_module(name), importlib.import_module(name.replace("signal", "_signal"))}:
            every = [one for one in dir(module) if one.startswith(POSIX_SIGNALS) and one not in KEPT]
            for word in every if lacking == "*" else lacking.split():
                if hasattr(module, word):
                    delattr(module, word)


def use(loop: asyncio.AbstractEventLoop) -> None:
    """A lock in memory, by threads and by asyncio, and what the other stores say."""
    import leasehold
    import leasehold.aio
    from leasehold.patterns.results import MemoryResultStore, SQLiteResultStore

    with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, ttl=30) as lease:
        MemoryResultStore().write(lease, "text", keep="1m")
        say("held", lease.state, lease.remaining() > 0, hold.lock("report-export", 42).try_acquire())

    async def wait() -> None:
        async with leasehold.aio.connect("memory://") as hold, hold.lock("report-export", 42) as lease:
            say("held", lease.state)

    loop.run_until_complete(wait())
    loop.close()
    makers: list[Callable[[], object]] = [
        leasehold.connect,
        lambda: leasehold.connect("sqlite:///jobs.db"),
        lambda: SQLiteResultStore("jobs.results"),
        lambda: leasehold.connect("redis://localhost"),
        lambda: leasehold.connect("postgresql://localhost"),
    ]
    for make in makers:
        try:
            say(make())
        except leasehold.Unsupported as error:
            say("Unsupported:", error)


def type_in(*words: str) -> None:
    """A command; what it prints, and its exit code."""
    from leasehold import cli

    sys.argv[1:] = words
    printed = io.StringIO()
    try:
        with redirect_stderr(printed), redirect_stdout(printed):
            cli.main()
    except SystemExit as ended:
        say(words[0], ended.code, " ".join(printed.getvalue().split()))


def say(*words: object) -> None:
    """One line."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main(system: str) -> None:
    """Everything, in order."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())  # the selector that every system has
    for one in modules():
        importlib.import_module(one)
    become(system)
    say("modules", *[importlib.import_module(one).__name__ for one in modules()])
    from leasehold.stores.sqlite import file

    file.BOOT_ID += "-of-another-system"
    use(loop)
    type_in("run", "job", "--", "true")
    type_in("elect", "job", "--", "true")
    type_in("demo")
    type_in("ls")


if __name__ == "__main__":
    main(sys.argv[1])
