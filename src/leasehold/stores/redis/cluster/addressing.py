"""The addresses in an op, as one node knows them."""

from __future__ import annotations

from collections.abc import Callable

from leasehold._core.light_typing import Any
from leasehold._core.ops import Adopt, Claim, Group, StoreOp, Watch
from leasehold.stores.redis import protocol
from leasehold.stores.redis.cluster.nodes import Node

ADDRESSED = (Claim, Watch, Adopt, Group)


def at_node(op: StoreOp, node: Node) -> StoreOp:
    """The same op with the channels of this node."""
    if isinstance(op, Claim):
        return op._replace(address=node.channel(op.address), holder_address=node.channel(op.holder_address))
    if isinstance(op, Watch):
        return op._replace(address=node.channel(op.address))
    if isinstance(op, Adopt):
        return op._replace(holder_address=node.channel(op.holder_address))
    if isinstance(op, Group):
        steps: Any = tuple([at_node(step, node) for step in op.steps])
        return op._replace(steps=steps)
    return op


class NodeClaim:
    """A prepared claim, good for one node while its channels have that tag."""

    __slots__ = ("_packed", "node", "tag")

    def __init__(self, op: Claim, node: Node) -> None:
        changed: Any = at_node(op, node)
        self._packed: Callable[[str, int], bytes] = protocol.prepared_claim(changed)
        self.node, self.tag = node, node.tag

    def __call__(self, owner: str, floor: int) -> bytes:
        return self._packed(owner, floor)


def prepare(template: Any, node: Node, budget_ms: int) -> None:
    """Pack what is the same in all claims of a lock, for this node."""
    packed = template.packed
    if packed is not None and (packed.node is not node or packed.tag != node.tag):
        packed = template.packed = None
    if packed is None and template.used:
        template.packed = NodeClaim(template.claim("", 0, budget_ms), node)
