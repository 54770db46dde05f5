"""The client of a guard: sends the steps that the guard's methods build, over a blocking or an asyncio client.

A method returns a ``Step[bool]``, say, and is marked ``@guard_method``. Called on a ``FenceGuard[Blocking]`` it returns
the bool, and on a ``FenceGuard[Awaited]`` an awaitable of it, as type checkers know."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from leasehold._core.driver import drive, drive_async
from leasehold.guards.redis.step import Command, Step
from leasehold.stores.redis import clients

if TYPE_CHECKING:
    from leasehold.guards.redis.guard import FenceGuard

P = ParamSpec("P")
R = TypeVar("R")

REFUSED = {
    "MultiDBClient": "it moves between databases that share no records: give it the client of one",
    "Sentinel": "give it the master's client: sentinel.master_for(name)",
    "Pipeline": "a pipeline sends nothing until it is executed, and the guard needs the reply: give it the client",
    "ClusterPipeline": "a pipeline sends nothing until it is executed, and the guard needs the reply: give it the "
    "client",
    "PubSub": "give it the client",
}


class Blocking:
    """The methods of a ``FenceGuard[Blocking]`` return when it is done. This is the usual one."""


class Awaited:
    """The methods of a ``FenceGuard[Awaited]`` are awaited: it was made with an asyncio client."""


class Client(Protocol):
    """An object that has the commands of Redis."""

    def execute_command(self, *args: Any) -> Any: ...


class AsyncClient(Protocol):
    """The same for asyncio. Types of clients do not say what ``execute_command`` returns; but only these are entered
    with ``async with``."""

    def execute_command(self, *args: Any) -> Any: ...
    async def __aenter__(self) -> Any: ...


class GuardClient:
    """The user's own client, and what is known of it. It is never closed by us."""

    __slots__ = ("_client", "_retries", "awaited", "slot", "where")

    def __init__(self, client: Any, caller: str = "FenceGuard()") -> None:
        clients.check(client, caller, REFUSED)
        self._client = client
        # A client over a coordinator's connections (patterns/results/redis.py) knows both by itself.
        ours = hasattr(client, "leasehold_where")
        self.where: str = client.leasehold_where if ours else clients.description(client)
        self._retries: bool = client.leasehold_retries if ours else clients.retries(client)
        # An instrumented client may have a plain function in place of its async one.
        self.awaited = inspect.iscoroutinefunction(client.execute_command) or hasattr(client, "__aenter__")
        self.slot: Callable[[str | bytes], int] | None = getattr(client, "keyslot", None)  # a Cluster's

    def send(self, step: Step[R]) -> Any:
        """The result of a step: itself, or an awaitable of it where the client is for asyncio."""
        return (drive_async if self.awaited else drive)(self._flow(step), self._perform)

    def _perform(self, command: Command) -> Any:
        return self._client.execute_command(*command)

    def _flow(self, step: Step[R]) -> Generator[Command, Any, R]:
        server = f"Redis {self.where}"
        for command in step.commands():
            try:
                reply = yield command
            except Exception as error:
                if not clients.unknown_script(error):  # only such a script is sent again, in full (trap 18)
                    failure = step.failure(server, error, self._retries)
                    raise failure from error.__cause__ if failure is error else error
            else:
                return step.judge(reply)
        raise step.forgotten(server)


class guard_method(Generic[P, R]):  # noqa: N801 - a decorator
    """Makes a method that builds a step into one that sends it."""

    def __init__(self, build: Callable[Concatenate[Any, P], Step[R]]) -> None:
        functools.update_wrapper(self, build)  # type: ignore[arg-type]  # not called itself: its __get__ is
        self.build = build

    @overload
    def __get__(self, guard: FenceGuard[Blocking], kind: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, guard: FenceGuard[Awaited], kind: type) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __get__(self, guard: None, kind: type) -> Callable[Concatenate[Any, P], Step[R]]: ...
    def __get__(self, guard: Any, kind: type) -> Any:
        return self.build if guard is None else functools.partial(guard._send, self.build)
