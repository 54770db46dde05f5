"""Which slot a resource is in: by its own name, or by its namespace, so that ``hold.all`` works within one.

By its own name the keys are those of one server: ``lock:v1:{namespace/kind:id}:owner``. By the namespace they are
``lock:v1:{namespace}/kind:id}:owner``: only what stands between the first braces decides about the slot. No name has a
brace, so the scripts need not know. Two programs that disagree would not exclude each other, so the first of them that
changes something records its setting in the store. Who only reads compares its own with that: an operator's look must
not decide for a program that starts later.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any
from leasehold._core.names import matches
from leasehold._core.ops import Group, Inspect, Page, Revoke, Scan, StoreOp, Watch
from leasehold.errors import InvalidRequest

RESOURCE, NAMESPACE = "resource", "namespace"
READERS = (Inspect, Watch, Revoke)  # ops that give nobody a place: they do not record the setting
MARKER_MS = 30 * 86_400_000
# Keep the setting of a namespace that is there, or record this one; reply with it. It lives as long as it is used.
MARK = (
    "local found = redis.call('GET', KEYS[1]) or ARGV[1] "
    "if found == ARGV[1] then redis.call('SET', KEYS[1], found, 'PX', ARGV[2]) end "
    "return found"
)


def stored(resource: str) -> str:
    """The name with its namespace as the hash tag."""
    namespace, slash, rest = resource.partition("/")
    if not slash:
        raise InvalidRequest("slot='namespace' needs a namespace: connect(url, namespace='billing', slot='namespace')")
    return f"{namespace}}}/{rest}"


def stored_op(op: StoreOp) -> StoreOp:
    """The same op for the name with its namespace as the hash tag."""
    if isinstance(op, Group):
        steps: Any = tuple([stored_op(step) for step in op.steps])
        return op._replace(steps=steps)
    if isinstance(op, Scan):
        return op._replace(pattern="*" if "?" in op.pattern else op.pattern.replace("/", "}/", 1))
    changed: Any = op
    return changed._replace(resource=stored(op.resource)) if "/" in op.resource else op


def listed(op: Scan, page: Page, by: str) -> Page:
    """A page with the names as users know them. Those of namespaces with the other setting are left out: they cannot be
    reached from here."""
    if by == RESOURCE:
        return page._replace(items=tuple([name for name in page.items if "}" not in name]))
    names = [name.replace("}/", "/", 1) for name in page.items if "}/" in name]
    return page._replace(items=tuple([name for name in names if matches(op.pattern, name)]))


def marker(resource: str, by: str, reads: bool) -> tuple[Any, ...]:
    """The command that records the setting of a namespace, or only reads it."""
    key = f"lock:v1:slot:{{{resource.partition('/')[0]}}}"
    return ("GET", key) if reads else ("EVAL", MARK, 1, key, by, MARKER_MS)


def mismatch(resource: str, by: str, found: Any) -> InvalidRequest:
    namespace = resource.partition("/")[0]
    other = found.decode() if isinstance(found, bytes) else str(found)
    return InvalidRequest(
        f"the locks of namespace {namespace!r} are kept with slot={other!r} in this Cluster, and this coordinator has "
        f"slot={by!r}: the two would not exclude each other. Use one setting for a namespace everywhere"
    )
