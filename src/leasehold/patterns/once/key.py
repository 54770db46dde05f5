"""One use of a key, from the first read to the stored outcome.

    read        done: replay the outcome. Running with another body: refused at once, without waiting.
    acquire     wait for the process that runs it now
    open        present the fence, then read again: it may be done by now, or be left behind by a process that died
    running     written under the fence, so that others know the body, and that the work has begun
    the body
    done        written under the fence: a process that was paused and has been succeeded is refused (trap 39)
    release

Written once, for threads and asyncio.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from leasehold._core.driver import finish
from leasehold._runtime.backoff import Backoff
from leasehold._runtime.engine import CLOSED
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.fence import label
from leasehold.observe import log
from leasehold.observe.events import OnceServed
from leasehold.patterns.errors import KeyReused
from leasehold.patterns.flavour import Flavour
from leasehold.patterns.once import record
from leasehold.patterns.results.result_store import DAY_MS, Entry, ResultStore
from leasehold.patterns.serialization import may_be_too_large

if TYPE_CHECKING:
    from typing import Self

    from leasehold.primitives.base_lease import BaseLease
    from leasehold.primitives.lease import AsyncLease, Lease

NEW, READING, RUNNING, RAN, STORED, ENDED = "new", "reading", "running", "ran", "stored", "ended"
LEFT_TO_TRANSACTION, WRITTEN_IN_TRANSACTION = "left to a transaction", "written in a transaction"
TRIES = 4  # to begin: when a lease ends before the work began, another one is tried
RETRIES = Backoff(base=0.05, cap=2, attempts=1000)  # the ttl ends them long before


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceOptions:
    """The arguments of ``hold.once``, checked."""

    flavour: Flavour
    results: ResultStore
    keep_ms: int
    errors: tuple[type[Exception], ...]

    @property
    def running_ms(self) -> int:
        """How long it is remembered that the work began. It must outlive the run, for a process that does not come
        back."""
        return max(self.keep_ms, DAY_MS)


class BaseKey:
    """What both flavours share."""

    __slots__ = (
        "_context", "_fingerprint", "_found", "_hurry", "_lease", "_lock", "_options", "_phase", "_process",
        "_serializer", "_tries", "_value",
    )  # fmt: skip

    def __init__(self, options: OnceOptions, serializer: Any, lock: Any, fingerprint: str | None) -> None:
        self._options = options
        self._serializer = serializer
        self._lock = lock
        self._fingerprint = fingerprint
        self._phase = NEW
        self._found: record.OnceRecord | None = None
        self._lease: Any = None
        self._process = 0
        self._context: AbstractAsyncContextManager[None] | None = None
        self._value: Any = None
        self._tries = 1
        self._hurry = False

    @property
    def resource(self) -> str:
        """The text form of the key's name."""
        return str(self._lock.resource)

    @property
    def done(self) -> bool:
        """Is there an outcome? Then there is nothing to do but to return ``result``."""
        return self._found is not None or self._completed

    @property
    def _completed(self) -> bool:
        """Was it done here, in this use of the key?"""
        return self._phase in (STORED, WRITTEN_IN_TRANSACTION)

    @property
    def result(self) -> Any:
        """What was stored, as every caller gets it. Raises RemoteError when an error was stored. If the result could
        not be kept, the caller of ``complete`` gets it here, and all others ResultNotKept."""
        if self._found is not None:
            return self._found.result(self._serializer)
        if self._completed:
            return self._value
        raise self._misused("it is not done yet: do the work, and call complete()")

    @property
    def interrupted(self) -> bool:
        """An earlier attempt began, and left neither outcome nor error: it was killed, cancelled, or too late. Its work
        may have happened: check, where that can be seen."""
        return self._tries > 1

    def _running(self, *more: str) -> BaseLease:
        """The lease, if ``complete`` may be called in this phase."""
        if self._phase in (RUNNING, *more):
            return self._lease  # type: ignore[no-any-return]  # a Lease or an AsyncLease
        if self._found is None and self._phase in (NEW, READING, ENDED):
            raise self._misused("complete() belongs inside the with body of begin()")
        raise self._misused("it is done already: complete() is called once")

    def _misused(self, how: str) -> InvalidRequest:
        return InvalidRequest(f"this key of {label(self.resource)}: {how}", resource=self.resource)

    # ------------------------------------------------------------ the use

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[None]:
        """Enters its body under the lease; or without one when the work is done already, and the body has nothing to
        do."""
        if self._phase != NEW:
            raise self._misused("it was used before: call begin() again")
        self._phase = READING
        try:
            async with self._replay_or_run():
                yield
        finally:
            self._phase = ENDED if self._phase in (READING, RUNNING, LEFT_TO_TRANSACTION) else self._phase

    @asynccontextmanager
    async def _replay_or_run(self) -> AsyncIterator[None]:
        resolve, results = self._options.flavour.resolve, self._options.results
        if self._lock._engine.closed:
            raise StoreUnavailable(CLOSED, resource=self.resource)  # its result store has a worse message
        if self._replays(await resolve(results.read(self.resource))):
            yield
            return
        if self._lock.owned():
            raise self._misused("this thread or task runs it already, and would wait for itself for ever")
        error: BaseException | None = None
        for left in reversed(range(TRIES)):
            try:
                async with self._options.flavour.enter(self._lock) as lease:
                    if not self._replays(await resolve(results.open(lease))):
                        await self._begin(lease)
                        try:
                            yield
                        except BaseException as caught:
                            error = caught
                            await self._failed(caught)
                            raise
                        await self._left_without_outcome()
                        return
            except (LeaseLost, StaleOwner) as loss:
                if self._phase == READING and not self.done and left:
                    continue  # another process took over before the work began: read again what it did
                self._check_loss(loss, error)
            break
        if error is None and self._found is not None:
            yield

    def _replays(self, entry: Entry | None) -> bool:
        """Is it done? Another body than that of an earlier attempt, running or dead, is an error at once."""
        known = record.read(entry, self.resource)
        if known is None:
            self._tries = 1
            return False
        try:
            known.check(self._fingerprint)
        except KeyReused:
            self._report("conflict")
            raise
        if known.done:
            self._found = known
            self._report("replay")
            return True
        self._tries = known.tries + 1
        return False

    async def _begin(self, lease: Any) -> None:
        text, keep = record.running(self._fingerprint, self._tries), self._options.running_ms / 1000
        await self._options.flavour.resolve(self._options.results.write(lease, text, keep))
        self._lease, self._process, self._phase = lease, os.getpid(), RUNNING
        self._report("again" if self.interrupted else "first")

    def _report(self, outcome: str) -> None:
        observers, name = self._lock._engine.observers, self._lock._name
        if observers.observers:
            observers.notify(OnceServed(name.kind, name.id_hash, outcome))

    async def _failed(self, error: BaseException) -> None:
        """The body raised. A cancellation or an interrupt leaves the key as it is: how far the work came is not known.
        So does the loss of this very lease, which the body may have noticed itself: it is not an outcome of the work.

        Nothing that fails here hides the body's error (trap 29)."""
        if self._phase != RUNNING or not isinstance(error, Exception) or self._is_our_loss(error):
            return
        try:
            if isinstance(error, self._options.errors):
                text = record.raised(self._fingerprint, error)
                await self._finish(text)
                self._found = record.read(Entry(text, self._lease.fence, 0, 0), self.resource)
            else:
                await self._free()
        except LeaseholdError as problem:
            # Not chained: the problem has this error as its context already, and the chain would be a circle.
            error.add_note(f"besides, {problem}")

    def _is_our_loss(self, error: Exception) -> bool:
        return isinstance(error, (LeaseLost, StaleOwner)) and (error.resource, error.fence) == (
            self.resource,
            self._lease.fence,
        )

    async def _left_without_outcome(self) -> None:
        """The body has ended without an outcome: the next attempt may run, even if the record that this one began
        cannot be deleted."""
        if self._phase == RUNNING:
            with suppress(StoreUnavailable, OutcomeUnknown):
                await self._free()

    async def _free(self) -> None:
        await self._write(None)

    async def _write(self, text: str | None, **within: Any) -> None:
        """Write under the fence. Not in a forked child: the result store would take it for its parent, which goes on
        with the work (trap 32)."""
        if self._process != os.getpid():
            self._lease.check()  # raises LeaseLost
        keep = self._options.keep_ms / 1000
        await self._options.flavour.resolve(self._options.results.write(self._lease, text, keep, **within))

    def _check_loss(self, loss: LeaseholdError, error: BaseException | None) -> None:
        """The lease was lost. A result that the result store has accepted counts: no other holder came in between."""
        if self._phase == RAN:
            raise self._not_stored() from loss
        if error is not None or not self.done:
            raise loss

    # ------------------------------------------------------------ the outcome

    async def _complete(self, result: Any, tx: Any = None) -> None:
        if tx is not None:
            await self._complete_within(tx, result)
            return
        lease = self._running()
        text = ""
        try:
            text, self._value = record.returned(self._fingerprint, self._serializer, result, self.resource)
            await self._finish(text)
        except (InvalidRequest, OutcomeUnknown) as error:
            # Some servers just drop the connection on a large result, which OutcomeUnknown may stand for.
            large = may_be_too_large(text) and not self._hurry and lease.state != "lost"
            if isinstance(error, OutcomeUnknown) and not large:
                raise
            self._value = result
            # The work has happened: that much can be stored.
            await self._finish(record.unkept(self._fingerprint, result))
            log.warn(
                "%s ran, and its result could not be kept: %s. This caller gets it; later callers with this key get "
                "ResultNotKept",
                label(self.resource),
                record.reason(error),
            )

    async def _complete_within(self, tx: Any, result: Any) -> None:
        """Store the result in the user's own transaction, which may still be rolled back and tried again. So a result
        that cannot be stored is an error: the work has not happened yet."""
        from leasehold.patterns.results.sql import SQLResultStore  # loaded only when used

        self._running(LEFT_TO_TRANSACTION, WRITTEN_IN_TRANSACTION)
        if not isinstance(self._options.results, SQLResultStore):
            raise self._misused("tx= needs store=SQLResultStore(...) in the database of that transaction")
        text, value = record.returned(self._fingerprint, self._serializer, result, self.resource)
        self._phase = LEFT_TO_TRANSACTION  # from here on the transaction decides: nothing is deleted behind its back
        await self._write(text, tx=tx)
        self._value, self._phase = value, WRITTEN_IN_TRANSACTION

    async def _finish(self, text: str) -> None:
        self._phase, flavour = RAN, self._options.flavour
        try:
            await flavour.uninterrupted(self._store(text), self._set_hurry)
        except BaseException as error:
            if self._phase == RAN and not isinstance(error, Exception) and not flavour.asynchronous:
                self._set_hurry()  # Ctrl-C while storing: one more try, then it is raised
                with suppress(LeaseholdError):
                    await self._store(text)
            raise

    def _set_hurry(self) -> None:
        self._hurry = True

    async def _store(self, text: str) -> None:
        """Store the outcome. The work has happened, so it is tried again while the lease is held, for its ttl at
        most."""
        flavour, began = self._options.flavour, time.monotonic()
        problem: LeaseholdError | None = None
        for pause in RETRIES:
            try:
                await self._write(text)
                self._phase = STORED
                return
            except (StaleOwner, LeaseLost):
                self._phase = ENDED
                raise
            except (StoreUnavailable, OutcomeUnknown) as error:
                problem = error
            if self._hurry or self._lease.state == "lost" or time.monotonic() - began > self._lease.ttl:
                break
            await flavour.sleep(pause)
        raise self._not_stored() from problem

    def _not_stored(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{label(self.resource)} ran, and it is not known whether its outcome was stored: the next call with "
            "this key may run it again",
            resource=self.resource,
            fence=self._lease.fence,
        )

    def __reduce__(self) -> str:
        """It cannot be pickled: it belongs to a lease of this process."""
        raise TypeError("a key stays in its process: send its ids, and begin there")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._lock._name.shown} {'done' if self.done else self._phase}>"


class OnceKey(BaseKey):
    """One use of a key, for threads: what ``once(...).begin()`` gives to a ``with``."""

    __slots__ = ()

    @property
    def lease(self) -> Lease | None:
        """The lease under which it runs, for guards; None when it was done before."""
        return self._lease  # type: ignore[no-any-return]  # of its flavour

    def complete(self, result: Any = None, *, tx: Any = None) -> None:
        """Store the result: from here on the work is done. A result that cannot be kept is logged; ``result`` returns
        it here, and later callers get ResultNotKept. With ``tx`` the result is written in that transaction, and the
        work is done when it commits: the result store must then be an SQLResultStore in the same database."""
        finish(self._complete(result, tx))

    def __enter__(self) -> Self:
        self._context = self._use()
        finish(self._context.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None  # noqa: S101  # for the type checker: it was entered
        return finish(self._context.__aexit__(kind, error, trace))


class AsyncOnceKey(BaseKey):
    """One use of a key, for asyncio. The task inside is cancelled when the lease is lost."""

    __slots__ = ()

    @property
    def lease(self) -> AsyncLease | None:
        """The lease under which it runs, for guards; None when it was done before."""
        return self._lease  # type: ignore[no-any-return]  # of its flavour

    async def complete(self, result: Any = None, *, tx: Any = None) -> None:
        """Store the result: from here on the work is done. A result that cannot be kept is logged; ``result`` returns
        it here, and later callers get ResultNotKept. With ``tx`` the result is written in that transaction, and the
        work is done when it commits: the result store must then be an SQLResultStore in the same database."""
        await self._complete(result, tx)

    async def __aenter__(self) -> Self:
        self._context = self._use()
        await self._context.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._context is not None  # noqa: S101  # for the type checker: it was entered
        return await self._context.__aexit__(kind, error, trace)
