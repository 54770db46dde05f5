"""Real servers of etcd: one member, or an ensemble of three whose members are killed, frozen, cut off and stalled."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.proxy import Proxy
from tests.support.servers.server import Server, restore, start_together
from tests.support.waiting import PATIENCE, until

ROOT = ("root", "hunter2")  # the user and the password of a server with users


def encoded(text: str) -> str:
    """As keys and values are written in JSON."""
    return base64.b64encode(text.encode()).decode()


class EtcdServer(Server):
    """One member. It starts with ``start`` or with ``with``. Nothing of it is on a disk, so that syncing takes no time.

    ``peers`` are the members of an ensemble by name, with their addresses for each other. ``login`` requires users:
    root is made with that password. ``token_ttl`` is for how many seconds a login is good.
    """

    def __init__(
        self,
        *options: str,
        name: str = "one",
        peers: dict[str, str] | None = None,
        peer_place: Any = None,
        tls: Certificates | None = None,
        login: tuple[str, str] | None = None,
        token_ttl: int | None = None,
        haste: tuple[int, int] = (20, 200),
        place: Path | None = None,
    ) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-", dir=place or process.home()))
        self.tls = tls
        self.login = login
        self._places = [process.reserve(), peer_place or process.reserve()]
        self.port, self.peer_port = (place.getsockname()[1] for place in self._places)
        self._peers = peers or {name: f"http://127.0.0.1:{self.peer_port}"}
        quick = ("--bcrypt-cost=4",) if login else ()  # a login would take a tenth of a second of its CPU
        self._options = [*options, *quick, *((f"--auth-token-ttl={token_ttl}",) if token_ttl else ())]
        self._haste = haste
        self._bootstrap: tuple[str, ...] = ("--initial-cluster-state=new",)
        self._token = ""
        self._users_made = False

    # ------------------------------------------------------------ where it is

    @property
    def scheme(self) -> str:
        """Of its address for clients."""
        return "https" if self.tls else "http"

    @property
    def userinfo(self) -> str:
        """The login, in front of the host of a URL."""
        return ":".join(quote(one, safe="") for one in self.login) + "@" if self.login else ""

    @property
    def url(self) -> str:
        """For Leasehold."""
        return self.url_at(self.port)

    def url_at(self, *ports: int, prefix: str = "leasehold") -> str:
        """The same by way of other ports, such as those of proxies or of other members."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        tls = f"?ca={quote(str(self.tls.authority))}&cert={quote(str(self.tls.client))}" if self.tls else ""
        return f"etcd{'s' * bool(self.tls)}://{self.userinfo}{hosts}/{prefix}{tls}"

    # ------------------------------------------------------------ its life

    def _command(self) -> list[str]:
        client = f"{self.scheme}://127.0.0.1:{self.port}"
        return [
            "etcd",
            f"--name={self.name}",
            f"--data-dir={self.folder / 'data'}",
            *(f"--{which}-client-urls={client}" for which in ("listen", "advertise")),
            f"--listen-peer-urls=http://127.0.0.1:{self.peer_port}",
            f"--initial-advertise-peer-urls={self._peers[self.name]}",
            f"--initial-cluster={','.join(f'{name}={url}' for name, url in self._peers.items())}",
            *self._bootstrap,
            f"--heartbeat-interval={self._haste[0]}",
            f"--election-timeout={self._haste[1]}",
            "--logger=zap",
            "--log-outputs=stderr",
            "--log-level=error",
            *(self._tls_options(self.tls) if self.tls else ()),
            *self._options,
        ]

    @staticmethod
    def _tls_options(tls: Certificates) -> list[str]:
        return [
            f"--cert-file={tls.server}",
            f"--key-file={tls.server}",
            f"--trusted-ca-file={tls.authority}",
            "--client-cert-auth",
        ]

    def start(self) -> Self:
        """Start it, and make its users."""
        super().start()
        if self.login and not self._users_made:
            self._make_users(*self.login)
        return self

    def _make_users(self, user: str, password: str) -> None:
        self.call("auth/user/add", {"name": "root", "password": password})
        self.call("auth/role/add", {"name": "root"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        self.call("auth/enable", {})
        self._users_made = True
        if user != "root":
            self.add_user(user, password, "leasehold/")

    def _answers(self) -> bool:
        try:
            status, _ = self.post("kv/range", {"key": encoded("up")}, seconds=1.0)
        except (OSError, http.client.HTTPException):
            return False
        return status in (200, 400, 401)  # those with users refuse a question of nobody

    def stop(self) -> None:
        """Gone, with everything that it wrote."""
        self.kill()
        for place in self._places:
            place.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ questions of the test itself

    def post(self, path: str, body: dict[str, Any], seconds: float = PATIENCE, token: str = "") -> tuple[int, Any]:
        """The status and the JSON of a reply."""
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.tls.authority))
            context.load_cert_chain(str(self.tls.client))
            line: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=seconds, context=context
            )
        else:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            line.request("POST", f"/v3/{path}", json.dumps(body), {"Authorization": token} if token else {})
            reply = line.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            line.close()

    def call(self, path: str, body: dict[str, Any]) -> Any:
        """The reply, which must be a good one; as root where there are users."""
        token = ""
        if self._users_made and self.login:
            token = self.post("auth/authenticate", {"name": "root", "password": self.login[1]})[1]["token"]
        status, reply = self.post(path, body, token=token)
        assert status == 200, reply
        return reply

    def keys(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Every key under a prefix, with what etcd tells of it. Values are decoded."""
        start = encoded(prefix or "\0")
        end = encoded(prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else encoded("\0")
        found = self.call("kv/range", {"key": start, "range_end": end}).get("kvs", [])
        rows = {base64.b64decode(row["key"]).decode("utf-8", "replace"): row for row in found}
        return {
            key: {**row, "value": base64.b64decode(row.get("value", "")).decode("utf-8", "replace")}
            for key, row in rows.items()
        }

    def put(self, key: str, value: str) -> int:
        """The revision that it made."""
        return int(self.call("kv/put", {"key": encoded(key), "value": encoded(value)})["header"]["revision"])

    def leases(self) -> list[int]:
        """The leases that live."""
        return [int(one["ID"]) for one in self.call("lease/leases", {}).get("leases", [])]

    def revoke(self, lease: int) -> None:
        """End a lease, as time does."""
        self.call("lease/revoke", {"ID": str(lease)})

    def connections(self) -> int:
        """How many clients are connected to it."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[2].endswith(f":{self.port:04X}") and row[3] == "01" for row in rows)

    def wipe(self) -> None:
        """No keys and no leases of the test before."""
        for lease in self.leases():
            self.post("lease/revoke", {"ID": str(lease)})
        self.call("kv/deleterange", {"key": encoded("\0"), "range_end": encoded("\0")})

    def compact(self) -> int:
        """Everything that is older than now is forgotten. Returns the revision."""
        revision = int(self.call("kv/range", {"key": encoded("up")})["header"]["revision"])
        self.call("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def add_user(self, user: str, password: str, prefix: str) -> None:
        """Who may read and write under this prefix, and nothing else."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.call("auth/user/add", {"name": user, "password": password})
        self.call("auth/role/add", {"name": user})
        permission = {"permType": "READWRITE", "key": encoded(prefix), "range_end": encoded(end)}
        self.call("auth/role/grant", {"name": user, "perm": permission})
        self.call("auth/user/grant", {"user": user, "role": user})

    def snapshot(self, file: Path) -> None:
        """Save all data."""
        self._control("snapshot", "save", str(file))

    def restore_snapshot(self, file: Path) -> None:
        """End it, and start it with the data of a snapshot, under the same names."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        self._control(
            *("snapshot", "restore", str(file), f"--data-dir={self.folder / 'data'}", f"--name={self.name}"),
            f"--initial-cluster={','.join(f'{name}={url}' for name, url in self._peers.items())}",
            f"--initial-advertise-peer-urls={self._peers[self.name]}",
        )
        self.start()

    def _control(self, *arguments: str) -> None:
        subprocess.run(
            ["etcdctl", f"--endpoints=127.0.0.1:{self.port}", *arguments],
            env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin:/usr/local/bin"},
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )


class EtcdEnsemble:
    """Three members, or more. What they tell each other goes through proxies, so that one can be cut off."""

    def __init__(self, count: int = 3, *options: str, haste: tuple[int, int] = (50, 500), **more: Any) -> None:
        places = [process.reserve() for _ in range(count)]
        self._proxies = [Proxy(place.getsockname()[1]) for place in places]
        peers = {f"m{number}": f"http://127.0.0.1:{proxy.port}" for number, proxy in enumerate(self._proxies)}
        self.members = [
            EtcdServer(*options, name=name, peers=peers, peer_place=place, haste=haste, **more)
            for name, place in zip(peers, places, strict=True)
        ]

    @property
    def url(self) -> str:
        """All members."""
        return self.members[0].url_at(*(member.port for member in self.members))

    def url_from(self, first: EtcdServer, *others: EtcdServer) -> str:
        """This member first; the others follow in their order, or only those that are named."""
        rest = others or [member for member in self.members if member is not first]
        return first.url_at(*(member.port for member in (first, *rest)))

    def __enter__(self) -> Self:
        try:
            start_together(self.members)
            self.leader()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Gone, with everything that they wrote."""
        for member in self.members:
            member.stop()
        for proxy in self._proxies:
            proxy.close()

    # ------------------------------------------------------------ who is what

    def leader(self) -> EtcdServer:
        """The one that a majority follows."""
        return until(self._leader, "there is a leader", every=0.02)  # type: ignore[no-any-return]

    def _leader(self) -> EtcdServer | None:
        statuses = [(member, self._status(member)) for member in self.members if member.awake]
        votes = [status["leader"] for _, status in statuses if status and status.get("leader", "0") != "0"]
        for member, status in statuses:
            if status and votes.count(status["header"]["member_id"]) > len(self.members) // 2:
                return member
        return None

    @staticmethod
    def _status(member: EtcdServer) -> Any:
        try:
            status, reply = member.post("maintenance/status", {}, seconds=1.0)
        except (OSError, http.client.HTTPException):
            return None
        return reply if status == 200 else None

    def followers(self) -> list[EtcdServer]:
        """The others."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    # ------------------------------------------------------------ what happens to them

    def cut_off(self, member: EtcdServer) -> None:
        """It hears nothing of the others, and they nothing of it. Clients reach all of them."""
        alone = self.members.index(member)
        own = f"X-Server-From: {int(self._status(member)['header']['member_id']):x}".encode().lower()
        for number, proxy in enumerate(self._proxies):
            if number == alone:
                proxy.on_request = lambda _: "cut_request"
            else:
                proxy.on_request = lambda chunk: "cut_request" if own in chunk.lower() else "pass"
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        """They hear each other again."""
        for proxy in self._proxies:
            proxy.on_request = None

    def whole(self) -> Self:
        """As at the beginning: all run and agree, and there are no keys."""
        self.heal()
        restore(self.members)
        until(lambda: all(self._status(member) for member in self.members), "all members answer", every=0.02)
        until(self._agree, "all members have one leader", every=0.02)
        self.leader().wipe()
        return self

    def _agree(self) -> bool:
        return len({(self._status(member) or {}).get("leader", "0") for member in self.members} - {"0"}) == 1

    def kill_all(self) -> None:
        """A power cut."""
        for member in self.members:
            member.kill()

    def start_all(self) -> None:
        """And the power comes back."""
        start_together([member for member in self.members if not member.runs])
