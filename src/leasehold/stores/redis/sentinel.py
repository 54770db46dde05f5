"""Sentinel: the server of a store is the primary of a service, which the Sentinels name.

They are asked before each connection, and now and then while one is used, over short connections of our own. What is
asked and what the replies mean is written once, as flows that yield a ``Question`` and are sent the replies; threads
and event loops drive them (``_core.driver``).

    discovery      where to connect: the first Sentinel that names a primary decides, unless another is known to be
                   ahead of it
    confirmation   whether a primary that is in use still is the one: each Sentinel is asked in its turn
    agreement      whether one that stood still is: all Sentinels are asked

The Sentinels number their decisions (config-epoch). A reply with a lower number than one that was seen before comes
from a Sentinel that is behind, and all others are asked as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence

import hiredis

from leasehold._core.driver import drive, drive_async
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log
from leasehold.stores.redis import failures
from leasehold.stores.redis.handshake import Handshake
from leasehold.stores.redis.protocol import Command, pack
from leasehold.stores.redis.server import SLOW_REPLY, Server
from leasehold.stores.redis.sockets import NO_TLS, SLOW, Broken, RedisSocket, no_tls
from leasehold.stores.redis.target import Sentinels, Target, from_sentinel_url

if TYPE_CHECKING:
    from leasehold.stores.redis.loop_socket import AsyncRedisSocket

ASK_SECONDS = 1.0  # for one Sentinel, connecting included; less where less time is left
CONFIRM_EVERY = 1.0  # seconds for which a connection in use believes that its server is the primary
CONFIRM_SOON = 0.1  # the same, when a Sentinel held it to be down in the last second: it may be replaced any moment
LONGEST_SILENCE = 10.0  # seconds until another Sentinel is asked, where several did not answer
RETRY_PAUSE = 0.1  # seconds until the Sentinels are asked again, while a failover is under way
LAST_ATTEMPT = 0.2  # seconds that are not divided between several attempts any more; with half of it none begins
DOWN = ("s_down", "o_down")
ReplyError = hiredis.ReplyError


class Question(NamedTuple):
    """To be sent to one Sentinel, in one write, with this much time for the replies."""

    sentinel: Target
    commands: tuple[Command, ...]
    seconds: float


class Answer(NamedTuple):
    """The primary that a Sentinel names."""

    host: str
    port: int
    epoch: int
    down: str  # why it is not to be used; empty when it is well


class Unsettled(StoreUnavailable):
    """A failover may be under way: another attempt may find the new primary. Nothing was sent."""


class SentinelServer(Server):
    """The primary of a service, as all connections of a store share it."""

    store_name = "sentinel"

    def __init__(self, sentinels: Sentinels) -> None:
        super().__init__(sentinels.primary)
        self._sentinels = sentinels
        self._order = list(sentinels.targets)  # the one that answered last comes first
        self._turn = 0  # of the Sentinel that is asked then
        self._epoch = -1  # the highest that was seen
        self._primary: tuple[str, int] | None = None
        self._ask_at = 0.0  # when a Sentinel is asked next whether the primary is still the same
        self._believed_until = 0.0  # by all connections: none believes longer in what another has learnt
        self._suspect_until = 0.0  # a second after the last Sentinel that held the primary to be down
        self._silent = 0  # Sentinels that did not answer that question, since the last that did
        self._asking: set[RedisSocket] = set()  # connections to Sentinels; those of event loops are in the next one
        self._asking_in_loops: set[AsyncRedisSocket] = set()

    # ------------------------------------------------------------ names

    @property
    def place(self) -> str:
        service = f"the Sentinel service {self._sentinels.service}" if self._sentinels.service else "the Sentinels"
        return f"{service} ({', '.join(map(str, self._sentinels.targets))})"

    @property
    def name(self) -> str:
        if self._primary is None:
            return f"Redis of {self.place}"
        return f"Redis at {self._target_at(*self._primary)}, the primary of {self.place}"

    @property
    def url(self) -> str:
        return self._sentinels.url

    @property
    def believed_for(self) -> float:
        return self._believed_until - time.monotonic()

    # ------------------------------------------------------------ connecting

    def locate(self, give_up: float) -> Target:
        answer = drive(self._discovery(give_up), self._ask)
        return self._target_at(answer.host, answer.port)

    async def locate_async(self, give_up: float | None = None) -> Target:
        give_up = time.monotonic() + self.target.connect_timeout if give_up is None else give_up
        answer = await drive_async(self._discovery(give_up), self._ask_async)
        return self._target_at(answer.host, answer.port)

    def handshake(self, target: Target, channel: str) -> Handshake:
        return PrimaryHandshake(target, channel, first=not self.checked)

    def open(self, channel: str, give_up: float, pushes: deque[Any]) -> tuple[RedisSocket, bool]:
        """The Sentinels may still name a primary that is gone, or is a replica by now: they are asked again while there
        is time."""
        give_up = min(give_up, time.monotonic() + self.target.connect_timeout)
        trouble = ""  # not the error itself: it leads to this frame
        while True:
            began = time.monotonic()
            try:
                found = super().open(channel, _end_of_attempt(began, give_up), pushes)
                if time.monotonic() - began <= SLOW_REPLY or self.confirms(found[0].target, give_up, now=True):
                    return found
                found[0].close()
                raise self._replaced(found[0].target)
            except StoreUnavailable as error:
                self.distrust()
                if not _may_pass(error) or not _time_for_another(give_up):
                    if _only_slow(error) and trouble:
                        raise Unsettled(trouble) from error.__cause__
                    raise
                trouble = trouble if _only_slow(error) and trouble else str(error)
            time.sleep(RETRY_PAUSE)

    async def open_async(self, attempt: Callable[[Target], Awaitable[AsyncRedisSocket]]) -> AsyncRedisSocket:
        """The same for an event loop."""
        give_up = time.monotonic() + self.target.connect_timeout
        while True:
            began = time.monotonic()
            end = _end_of_attempt(began, give_up)
            try:
                async with asyncio.timeout(end - began):
                    socket = await attempt(await self.locate_async(end))
                if time.monotonic() - began > SLOW_REPLY:
                    await self._confirm_opened(socket)
                self.trouble = ""
                return socket
            except (StoreUnavailable, OSError, Broken, UnicodeError) as error:
                self.distrust()
                if not self.trouble or not _only_slow(error):
                    self.trouble = self._explained(error)
                if not _may_pass(error) or not _time_for_another(give_up):
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def _confirm_opened(self, socket: AsyncRedisSocket) -> None:
        try:
            if not await self.confirms_async(socket.target, now=True):
                raise self._replaced(socket.target)
        except BaseException:
            socket.abort()
            raise

    def _explained(self, error: Exception) -> str:
        if isinstance(error, LeaseholdError):
            return str(error)
        hint = self.target.tls is not None and not self.checked and no_tls(error)
        return str(failures.unreachable(self.name, Broken(f"{failures.reason(error)}; {NO_TLS}") if hint else error))

    def _replaced(self, target: Target) -> Unsettled:
        return Unsettled(f"nothing was sent to Redis at {target}: it is not certain to be the primary any more")

    def _target_at(self, host: str, port: int) -> Target:
        return self.target._replace(host=self._sentinels.force_host or host, port=port, path="")

    # ------------------------------------------------------------ still the primary

    def confirms(self, target: Target, give_up: float, now: bool = False) -> bool:
        if now:
            answer = drive(self._agreement(max(give_up, time.monotonic() + SLOW_REPLY)), self._ask)
            return answer is not None and self._is_primary(target)
        if self._is_due():
            drive(self._confirmation(give_up), self._ask)
        return self._is_primary(target)

    async def confirms_async(self, target: Target, now: bool = False) -> bool:
        give_up = time.monotonic() + 2 * ASK_SECONDS
        if now:
            answer = await drive_async(self._agreement(give_up), self._ask_async)
            return answer is not None and self._is_primary(target)
        if self._is_due():
            await drive_async(self._confirmation(give_up), self._ask_async)
        return self._is_primary(target)

    def distrust(self) -> None:
        self._ask_at = self._believed_until = 0.0

    def _is_due(self) -> bool:
        """True for one of those who ask at the same time: the others use the last answer."""
        now = time.monotonic()
        with self._lock:
            due = now >= self._ask_at
            if due:
                self._ask_at = now + CONFIRM_EVERY
        return due

    def _is_primary(self, target: Target) -> bool:
        primary = self._primary
        return primary is None or target[:2] == self._target_at(*primary)[:2]

    # ------------------------------------------------------------ flows

    def _discovery(self, give_up: float) -> Generator[Question, list[Any], Answer]:
        """The primary. Raises where none is named that can be used."""
        best: Answer | None = None
        troubles: list[str] = []
        unsettled = False
        answered = 0
        order = list(self._order)
        for place, sentinel in enumerate(order):
            try:
                answer = yield from self._question(sentinel, give_up, len(order) - place)
            except Broken as error:
                troubles.append(f"{sentinel} {error}")
                continue
            answered += 1
            if answer.down:
                unsettled = True
                troubles.append(f"{sentinel} {answer.down}")
                continue
            if best is None or answer.epoch > best.epoch:
                best = answer
                self._put_first(sentinel)
            if best.epoch >= self._epoch:
                break
        anew = best is not None and best.epoch < self._epoch
        if anew and answered <= len(order) // 2:
            best, unsettled = None, True
            troubles.append("those that answer are behind what was known before")
        if best is None:
            raise (Unsettled if unsettled else StoreUnavailable)(
                f"nothing was sent to {self.name}: no Sentinel names a primary that can be used: {'; '.join(troubles)}"
            )
        self._adopt(best, anew)
        return best

    def _confirmation(self, give_up: float) -> Generator[Question, list[Any], None]:
        """Learn the primary from the Sentinel whose turn it is. Where it does not answer, the next use asks the next
        one. As long as the primary serves, Sentinels that are all down harm nobody: they are asked less often."""
        targets = self._sentinels.targets
        with self._lock:
            self._turn += 1
            sentinel = targets[self._turn % len(targets)]
        try:
            answer = yield from self._question(sentinel, give_up, 1)
        except Broken:
            with self._lock:
                self._silent += 1
                beyond_all = self._silent - len(targets) + 1
                pause = min(CONFIRM_EVERY * 2**beyond_all, LONGEST_SILENCE) if beyond_all > 0 else 0.0
                self._ask_at = self._believed_until = time.monotonic() + pause
            return
        self._adopt(answer)

    def _agreement(self, give_up: float) -> Generator[Question, list[Any], Answer | None]:
        """The primary by what all Sentinels say; None where none answers that is not behind."""
        best: Answer | None = None
        targets = self._sentinels.targets
        for place, sentinel in enumerate(targets):
            try:
                answer = yield from self._question(sentinel, give_up, len(targets) - place)
            except Broken:
                continue
            if best is None or answer.epoch > best.epoch:
                best = answer
        if best is None or best.epoch < self._epoch:
            return None
        self._adopt(best)
        return best

    def _question(self, sentinel: Target, give_up: float, left: int) -> Generator[Question, list[Any], Answer]:
        """Ask one of the Sentinels that are ``left``. Broken says why there is no answer."""
        seconds = min(ASK_SECONDS, (give_up - time.monotonic()) / (left + 1))
        if seconds <= 0:
            raise Broken("was not asked: there was no time left")
        login = self._login(sentinel)
        service = self._sentinels.service
        if not service:
            (found,) = _without_login(login, (yield Question(sentinel, (*login, ("SENTINEL", "MASTERS")), seconds)))
            service = self._only_service(found)
        questions = (("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service))
        address, state = _without_login(login, (yield Question(sentinel, (*login, *questions), seconds)))
        try:
            answer = _understood(address, state, service, self._sentinels.least_others)
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise Broken("replied with what no Sentinel says") from error
        if answer.down:
            self._suspect_until = time.monotonic() + CONFIRM_EVERY
        return answer

    def _login(self, sentinel: Target) -> tuple[Command, ...]:
        try:
            user, password = sentinel.login()
        except Exception as error:  # raised by the user's credential provider
            raise Broken(f"was not asked: its credentials could not be obtained ({type(error).__name__})") from error
        if not user and not password:
            return ()
        return (("AUTH", password) if user == "default" else ("AUTH", user, password),)

    def _only_service(self, reply: Any) -> str:
        """The one service that the Sentinels watch; a Sentinel object does not name one."""
        names = sorted(_fields(state).get("name", "") for state in _checked(reply))
        if len(names) != 1:
            watched = f"watches {len(names)} services ({', '.join(names)})" if names else "watches no service"
            raise Broken(f"{watched}: name one with sentinel.master_for(name)")
        return names[0]

    # ------------------------------------------------------------ what was learnt

    def _put_first(self, sentinel: Target) -> None:
        with self._lock:
            self._order.remove(sentinel)
            self._order.insert(0, sentinel)

    def _adopt(self, answer: Answer, anew: bool = False) -> None:
        """``anew``: most Sentinels were set up anew, so that their numbers are lower. Else a lower one is behind, or
        was overtaken by another thread."""
        with self._lock:
            if answer.epoch < self._epoch and not anew:
                return
            if (answer.host, answer.port) != self._primary:
                if self._primary is not None:
                    log.debug("the primary of %s is %s:%d now", self.place, answer.host, answer.port)
                self.checked = False  # its configuration is another server's
            self._primary, self._epoch = answer[:2], answer.epoch
            now = time.monotonic()
            seconds = CONFIRM_SOON if now < self._suspect_until else CONFIRM_EVERY
            self._ask_at = self._believed_until = now + seconds
            self._silent = 0

    # ------------------------------------------------------------ sockets

    def _ask(self, question: Question) -> list[Any]:
        give_up = time.monotonic() + question.seconds
        try:
            socket = RedisSocket(question.sentinel, give_up, deque())
            self._asking.add(socket)
            try:
                return socket.exchange_many(question.commands, give_up)
            finally:
                self._asking.discard(socket)
                socket.close()
        except Broken as error:
            raise Broken(f"cannot be reached: {error}") from error

    async def _ask_async(self, question: Question) -> list[Any]:
        from leasehold.stores.redis.loop_socket import AsyncRedisSocket, open_socket

        def new_socket() -> AsyncRedisSocket:
            return AsyncRedisSocket(_ignore, _ignore, _ignore, question.seconds)

        socket = None
        try:
            async with asyncio.timeout(question.seconds):
                socket = await open_socket(question.sentinel, new_socket)
                self._asking_in_loops.add(socket)
                give_up = asyncio.get_running_loop().time() + question.seconds
                replies = [socket.request(pack(command), give_up) for command in question.commands]
                return [await reply for reply in replies]
        except (OSError, UnicodeError, Broken) as error:
            why = SLOW if isinstance(error, TimeoutError) else str(error)
            hint = f"; {NO_TLS}" if socket is None and question.sentinel.tls is not None and no_tls(error) else ""
            raise Broken(f"cannot be reached: {why}{hint}") from error
        finally:
            if socket is not None:
                self._asking_in_loops.discard(socket)
                socket.abort()

    def forked(self) -> None:
        """In the child nobody waits for these answers: the threads and loops that asked are the parent's."""
        super().forked()
        for socket in self._asking:
            socket.close_copy()
        for loop_socket in self._asking_in_loops:
            loop_socket.forked()
        self._asking, self._asking_in_loops = set(), set()


def from_url(url: str) -> SentinelServer:
    """Of ``redis+sentinel://h1,h2,h3/service[/db]``."""
    return SentinelServer(from_sentinel_url(url))


class PrimaryHandshake(Handshake):
    """The handshake with a server that the Sentinels named: it must say itself that it is a primary."""

    def _check_kind(self, mode: str, role: str) -> None:
        super()._check_kind(mode, role)
        if role not in ("master", "primary", ""):
            raise Unsettled(
                f"nothing was sent to Redis at {self._target}: the Sentinels name it as the primary, and it is a "
                "replica by now"
            )


def _end_of_attempt(now: float, give_up: float) -> float:
    """A server that stands still uses up half of the time, and then the Sentinels are asked again."""
    return give_up if give_up - now <= LAST_ATTEMPT else (now + give_up) / 2


def _time_for_another(give_up: float) -> bool:
    return time.monotonic() + RETRY_PAUSE + LAST_ATTEMPT / 2 < give_up


def _only_slow(error: BaseException) -> bool:
    """True when an error says less than the one before it."""
    return isinstance(error, TimeoutError) or str(error.__cause__) == SLOW


def _may_pass(error: BaseException) -> bool:
    """True for what another attempt may find mended: no primary yet, or one that cannot be reached."""
    return not isinstance(error, LeaseholdError) or isinstance(error, Unsettled) or isinstance(error.__cause__, Broken)


def _ignore(_: Any) -> None:
    """The socket is used for one exchange."""


# ---------------------------------------------------------------- replies of a Sentinel


def _without_login(login: Sequence[Command], replies: list[Any]) -> list[Any]:
    """The replies behind that of the login. One that was refused is shown by its first word: a server may quote what
    it was sent."""
    for reply in replies[: len(login)]:
        if isinstance(reply, ReplyError):
            word = str(reply).split(" ", 1)[0]
            raise Broken(
                f"refused the login ({word}): sentinel_username and sentinel_password are those of the Sentinels"
            )
    return replies[len(login) :]


def _understood(address: Any, state: Any, service: str, least_others: int) -> Answer:
    """While replicas are being told of the new primary, its address is already given out, and the state is that of the
    old one."""
    if _checked(address) is None:
        raise Broken(f"watches no service {service}: compare the name with those that SENTINEL MASTERS lists there")
    host, port = address[0].decode(), int(address[1])
    if isinstance(state, ReplyError):  # a user who may not ask for it; the server itself tells its role
        return Answer(host, port, -1, "")
    fields = _fields(state)
    down = ""
    if int(fields.get("num-other-sentinels", least_others)) < least_others:
        raise Broken(f"knows fewer than {least_others} other Sentinels (min_other_sentinels)")
    if (fields.get("ip"), fields.get("port")) == (host, str(port)):
        flags = fields.get("flags", "").split(",")
        if any(flag in flags for flag in DOWN):
            down = (
                f"holds {host}:{port} to be down: another is chosen when enough Sentinels agree "
                f"(SENTINEL CKQUORUM {service} says whether they can)"
            )
    return Answer(host, port, int(fields.get("config-epoch", -1)), down)


def _checked(reply: Any) -> Any:
    """The reply, unless it is an error."""
    if not isinstance(reply, ReplyError):
        return reply
    text = str(reply)
    if text.startswith("NOAUTH"):
        raise Broken("wants a password: sentinel_password=...")
    if text.startswith("NOPERM"):
        raise Broken("does not allow this user SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL MASTER")
    if "unknown command" in text:
        raise Broken("is no Sentinel: give the addresses of the Sentinels (port 26379), not those of Redis")
    raise Broken(f"answered with an error: {text[:200]}")


def _fields(state: Any) -> dict[str, str]:
    parts = [part.decode(errors="replace") for part in state]
    return dict(zip(parts[::2], parts[1::2], strict=False))
