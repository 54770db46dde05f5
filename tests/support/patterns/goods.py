"""Classes of users whose instances are results: what can be in a return annotation."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, RootModel, SecretStr, field_serializer

T = TypeVar("T")
Cents = NewType("Cents", int)


class Status(enum.Enum):
    """Its values are of any type."""

    PAID = "paid"
    REFUSED = 2


class Mode(str, enum.Enum):  # noqa: UP042  # there are such, too
    """As people write it for JSON."""

    FAST = "fast"


class Rights(enum.Flag):
    """Several of them together have no name."""

    READ = 1
    WRITE = 2


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: Decimal


Pair = namedtuple("Pair", "one other")  # there are such, too


@dataclass
class Line:
    """A part of a receipt."""

    what: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class Receipt:
    """Nested, frozen, and with a field that its constructor does not take."""

    at: datetime
    status: Status
    lines: list[Line] = field(default_factory=list)
    number: int = field(init=False, default=7)
    before: Receipt | None = None


@dataclass(eq=False)
class Same:
    """Equal to nothing but itself, as far as ``==`` can tell."""

    amount: float


@dataclass
class Box(Generic[T]):
    """Of anything."""

    item: T


@dataclass
class Doubled:
    """Another one after each reading."""

    amount: int

    def __post_init__(self) -> None:
        self.amount *= 2


@dataclass
class Needs:
    """What its constructor wants is not kept by it."""

    total: int
    rate: InitVar[int]


@dataclass
class Odd:
    """One field cannot be kept."""

    name: str
    work: memoryview


class Order(TypedDict):
    """A dict whose keys are known."""

    status: Status
    note: NotRequired[str]


class Item(BaseModel):
    """A part of a payment, with an alias."""

    price: Decimal = Field(alias="thePrice")


class Payment(BaseModel):
    """Strict, with models inside, an alias for reading and another one for writing."""

    model_config = ConfigDict(strict=True, extra="forbid")
    id: UUID
    at: datetime
    tags: set[str]
    items: list[Item]
    amount: int = Field(validation_alias="amountIn", serialization_alias="amountOut")


PAYMENT = Payment.model_validate(
    {
        "id": UUID("8e03978e-40d5-43e8-bc93-6894a57f9324"),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "tags": {"a", "b"},
        "items": [Item(thePrice=Decimal("1.10"))],
        "amountIn": 5,
    }
)


class Numbers(RootModel[list[int]]):
    """A model that is a list."""


class Page(BaseModel, Generic[T]):
    """A generic model."""

    items: list[T]


class Login(BaseModel):
    """Written down, its secret is masked."""

    secret: SecretStr


class Special(Item):
    """One that the annotation does not name."""

    more: int = 1


class Scan(BaseModel):
    """What JSON has no words for: bytes, keys that are no texts, and anything at all."""

    model_config = ConfigDict(strict=True, extra="allow")
    image: bytes = Field(alias="theImage")
    places: dict[tuple[int, int], Status] = {}
    about: dict[str, Any] = {}
    item: Item | None = None
    left_out: int = Field(default=0, exclude=True)


SCAN = Scan(
    theImage=b"\xff\0",
    places={(1, 2): Status.PAID},
    about={"at": datetime(2026, 1, 1, tzinfo=UTC), "sum": [Decimal("9.90")]},
    item=Item(thePrice=Decimal(1)),
    left_out=7,
    besides=Decimal("1.10"),  # type: ignore[call-arg]  # it is allowed
)


class Blobs(RootModel[list[bytes]]):
    """A model that is a list, of what JSON has no words for."""


class Masked(BaseModel):
    """Its secret is written as it is."""

    secret: SecretStr

    @field_serializer("secret", when_used="json")
    def as_it_is(self, secret: SecretStr) -> str:
        """For JSON."""
        return secret.get_secret_value()


Shown = Annotated[SecretStr, PlainSerializer(lambda secret: secret.get_secret_value(), when_used="json")]


class Bare(BaseModel):
    """The same, said otherwise, and in a list."""

    secret: Shown
    more: list[Shown] = []


class Plain:
    """Nobody knows how to write it."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Carrier(BaseModel):
    """Pydantic takes it, and cannot write it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    host: IPv4Address
    load: list[Plain]
