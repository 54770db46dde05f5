"""Results as JSON: which types come back as they were, by the annotation and without one, and which do not."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Annotated, Any, Literal, NoReturn, Optional, TextIO, TypedDict, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from leasehold.errors import InvalidRequest
from leasehold.patterns.annotations import ReturnCodec
from leasehold.patterns.serialization import dump_value, load_value
from leasehold.patterns.values import Codec
from tests.support.patterns import goods
from tests.support.patterns.goods import (
    PAYMENT,
    SCAN,
    Bare,
    Blobs,
    Box,
    Carrier,
    Cents,
    Doubled,
    Item,
    Line,
    Login,
    Masked,
    Mode,
    Needs,
    Numbers,
    Odd,
    Order,
    Page,
    Pair,
    Payment,
    Plain,
    Point,
    Receipt,
    Rights,
    Same,
    Scan,
    Special,
    Status,
)
from tests.support.tables import each

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 10, 25, 2, 30, 0, 123, BERLIN, fold=1)  # the second time on that day
NUMBER = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")
LINE = Line("tea", Decimal("9.90"))
RECEIPT = Receipt(NOW, Status.PAID, [LINE], Receipt(datetime(2026, 1, 1), Status.REFUSED))  # noqa: DTZ001  # it is kept, too


def codec(annotation: Any) -> Codec:
    """Of a function with that annotation."""

    def work() -> None: ...

    work.__annotations__["return"] = annotation
    return ReturnCodec(work).codec()


def again(value: Any, annotation: Any = Any) -> Any:
    """What everybody gets."""
    return dump_value(codec(annotation), value, "it")[1]


def codec_in(**module: Any) -> Codec:
    """Of a function without an annotation, in a module that has these names."""

    def work() -> None: ...

    return ReturnCodec(FunctionType(work.__code__, module)).codec()


ALWAYS: list[Any] = [
    None, True, 0, -1.5, math.inf, "ü", [], {}, [1, [{"a": None}]], {"$": 1}, {"a": {"$": {"$": ["tuple", [1]]}}},
    (), (1, (2, [3])), {1: "one", (2, "b"): [True], None: 1.5}, {1, "a", (2, 3)}, frozenset({1}), b"\0\xff",
    bytearray(b"a"), Decimal("9.90"), Decimal("-0E+3"), NUMBER, date(2026, 1, 2), time(1, 2, 3, 4),
    time(1, tzinfo=BERLIN), NOW, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 1, 1, tzinfo=UTC),
    timedelta(-1, 2, 3), Path("/a/b"), PurePath("c"), {"at": [NOW], "sum": {"eur": Decimal("1.10")}},
]  # fmt: skip


@each("value", ALWAYS, ids=lambda value: type(value).__name__)
@each("annotation", [Any, "None", Receipt], ids=["any", "another", "a class"])
def test_types_of_the_standard_library(value: Any, annotation: Any) -> None:
    """They come back equal and as they were, whatever the annotation says."""
    back = again(value, annotation)
    assert type(back) is type(value) and back == value
    assert isinstance(value, (set, frozenset)) or repr(back) == repr(
        value
    )  # Decimal("9.9") is equal to Decimal("9.90")


def test_a_time_zone() -> None:
    """One of the standard library is kept by its name, so that an hour later is an hour later there; another one as the
    offset at that moment."""
    assert again(NOW).tzinfo is BERLIN and again(NOW).fold == 1

    class Mine(type(UTC).__base__):  # type: ignore[misc]  # tzinfo
        def utcoffset(self, _: Any) -> timedelta:
            return timedelta(hours=1)

    mine = datetime(2026, 1, 1, tzinfo=Mine())
    assert again(mine) == mine and again(mine).utcoffset() == timedelta(hours=1)


def test_the_hour_that_comes_twice() -> None:
    """There Python calls the same moment with a zone and with an offset unequal. Pydantic keeps the offset, and it is
    kept."""
    back = again(PAYMENT.model_copy(update={"at": NOW}), Payment)
    assert back.at.astimezone(UTC) == NOW.astimezone(UTC) == datetime(2026, 10, 25, 1, 30, 0, 123, UTC)


BY_ANNOTATION: list[Any] = [
    (Receipt, RECEIPT), (list[Receipt], [RECEIPT]), (dict[str, "Line"], {"a": LINE}),
    (Optional[Receipt], RECEIPT),  # noqa: UP045  # people write it
    (Receipt | None, None), (Union[int, "Line"], LINE), (tuple[Line, ...], (LINE, LINE)), (tuple[()], ()),
    (Mapping[str, Line], {"a": LINE}), (Sequence[Line], [LINE]), (Annotated[Line, "of a receipt"], LINE),
    (Box[Line], Box(LINE)), (Status, Status.PAID), (Mode, Mode.FAST), (Rights, Rights.READ | Rights.WRITE),
    (Literal[Status.PAID, "no"], Status.PAID), (Point, Point(1, Decimal(2))), (Pair, Pair(1, {2})),
    (Order, {"status": Status.PAID}), (Cents, Cents(5)), (Same, Same(math.nan)), (Payment, PAYMENT),
    (list[Payment], [PAYMENT, PAYMENT]), (dict[Status, Payment | Line], {Status.PAID: PAYMENT, Status.REFUSED: LINE}),
    (Numbers, Numbers([1, 2])), (Page[Item], Page[Item](items=[Item(thePrice=Decimal(1))])), (NoReturn, 1),
    (set[Point], {Point(1, Decimal(2))}), (Decimal, "not a Decimal"), (float, 3), (Line, {"another": "type"}),
]  # fmt: skip


@each(("annotation", "value"), BY_ANNOTATION, ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_by_the_annotation(annotation: Any, value: Any) -> None:
    """Classes that it names come back, wherever they are in the value; and so does what does not fit to it."""
    back = again(value, annotation)
    assert type(back) is type(value)
    assert back == value or repr(back) == repr(value) == "Same(amount=nan)"


@each(
    ("value", "plain"),
    [
        (defaultdict(int, a=1), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Point(1, Decimal(2)), (1, Decimal(2))),
        ({"mode": [Mode.FAST, Mode.FAST]}, {"mode": ["fast", "fast"]}),
        (type("Text", (str,), {"__str__": lambda self: "another"})("a"), "a"),
        (type("Number", (float,), {})(1.5), 1.5),
        (type("Moment", (datetime,), {})(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_subclasses(value: Any, plain: Any) -> None:
    """One that the function cannot name is kept as what it derives from, for everybody, where that is equal to it."""
    back = dump_value(codec_in(), value, "it")[1]
    assert type(back) is type(plain) and back == plain == value
    assert "Mode" not in repr(back)


class Nan(datetime):
    """Equal to no datetime."""

    __hash__ = None  # type: ignore[assignment]  # as said

    def __eq__(self, other: object) -> bool:
        return False


@each(
    ("annotation", "value"),
    [
        (Any, Plain()),
        (Any, memoryview(b"")),
        (Any, Nan(2026, 1, 1)),  # nothing comes of it
        (Any, Login.model_validate({"secret": "5ec2e7"})),
        (Doubled, Doubled(1)),
        (Any, Doubled(1)),
        (Line, Line("tea", Plain())),  # type: ignore[arg-type]  # not what it says
        (Receipt, Plain()),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_what_cannot_be_kept(annotation: Any, value: Any) -> None:
    """A class that nobody can write, and whatever would come back as something else; nothing of it is shown."""
    with pytest.raises(
        InvalidRequest, match=r"cannot be serialized.*name each class in the return annotation"
    ) as caught:
        again(value, annotation)
    assert "5ec2e7" not in str(caught.value) and "tea" not in str(caught.value)


class Sheet(TypedDict):
    """One of its values cannot be kept."""

    file: TextIO


@each(
    ("annotation", "named"),
    [
        (Iterator[int], "collections.abc.Iterator"),
        (Callable[[], int], "collections.abc.Callable"),
        (TextIO, "typing.TextIO"),
        (Plain, r"goods\.Plain"),
        (dict[str, list[Plain | None]], r"goods\.Plain"),
        (type[int], "builtins.type"),
        (type(lambda: None), "builtins.function"),
        (Exception, "builtins.Exception"),
        (memoryview, "builtins.memoryview"),
        (Odd, r"builtins\.memoryview \(Odd\.work\)"),
        (Box[Odd], r"builtins\.memoryview \(Odd\.work\)"),
        (Sheet, r"typing\.TextIO \(Sheet\.file\)"),
        (Needs, r"goods\.Needs"),
        (Login, r"SecretStr \(Login\.secret\)"),
        (Page[Login], r"SecretStr \(Login\.secret\) \(.*Page.*\.items\)"),
        (Carrier, r"goods\.Plain \(Carrier\.load\)"),
        (defaultdict[str, int], "collections.defaultdict"),
        ("Iterator[int]", "collections.abc.Iterator"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_annotations_that_are_refused(annotation: Any, named: str) -> None:
    """It is said what is in the way and what to do, and where it is."""
    with pytest.raises(InvalidRequest, match=rf"work\(\) cannot be kept: .* has .*{named}\. Annotate .*serializer="):
        codec(annotation)


Json = dict[str, "Json"] | list["Json"] | Decimal | None


@each("annotation", [Json, "Json", list[Json]], ids=str)
def test_a_type_that_contains_itself(annotation: Any) -> None:
    """As people write it for JSON."""
    value = {"a": [{"b": Decimal("9.90")}, None]}
    assert again(value, annotation) == value


# ---------------------------------------------------------------- models


MODELS: list[Any] = [
    (Scan, SCAN), (Any, SCAN), (Scan, SCAN.model_copy(update={"item": Special(thePrice=Decimal(1), more=2)})),
    (Scan | None, Scan(theImage=b"plain")), (dict[str, list[Scan]], {"a": [SCAN]}),
    (Blobs, Blobs([b"\xff"])), (Item, Special(thePrice=Decimal(1))),
    (Masked, Masked.model_validate({"secret": "a"})), (Bare, Bare.model_validate({"secret": "a", "more": ["b"]})),
]  # fmt: skip


@each(("annotation", "value"), MODELS, ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_models_that_json_has_no_words_for(annotation: Any, value: Any) -> None:
    """They are written by their fields: bytes, what is in a field of any type or of a subclass, and what is excluded
    come back. A secret that its model shows by itself does, too."""
    back = again(value, annotation)
    assert type(back) is type(value) and back == value
    assert not isinstance(back, Scan) or (back.left_out, back.model_extra) == (value.left_out, value.model_extra)


def test_how_models_are_written() -> None:
    """As their JSON, where that is enough."""
    assert codec(Item).dumps(Item(thePrice=Decimal("9.90"))) == '{"$":["class Item",{"price":"9.90"}]}'
    assert '"$":["class Scan"' in dump_value(codec(Scan), Scan(theImage=b"plain"), "it")[0]
    assert '"$":["fields of class Scan"' in dump_value(codec(Scan), SCAN, "it")[0]


# ---------------------------------------------------------------- without an annotation


@each(
    "value",
    [LINE, RECEIPT, PAYMENT, Status.PAID, Mode.FAST, Rights.READ, Point(1, Decimal(2)), {"a": [LINE, (PAYMENT,)]}],
    ids=lambda value: type(value).__name__,
)
def test_classes_that_the_module_names(value: Any) -> None:
    """Without an annotation a result is written with the names of its classes, and comes back."""
    back = again(value)
    assert type(back) is type(value) and back == value


def test_in_another_module() -> None:
    """Whoever reads finds a class from where it stands: by its name, under another one, or in a module; and with it the
    classes in its fields."""
    text = codec_in(Receipt=Receipt).dumps(RECEIPT)
    for reader in (codec_in(Receipt=Receipt), codec_in(Slip=Receipt), codec_in(shop=goods)):
        assert reader.loads(text) == RECEIPT
        assert reader.dumps(RECEIPT) == text


def test_each_text_is_read_by_itself() -> None:
    """What was found for one text is not known to the next: another process may have read no other."""
    shop = codec_in(Receipt=Receipt)
    assert shop.loads(shop.dumps([RECEIPT, LINE])) == [RECEIPT, LINE]
    with pytest.raises(InvalidRequest, match=r"Line is neither"):
        dump_value(shop, [LINE, RECEIPT], "it")


def test_classes_out_of_reach() -> None:
    """Nobody looks for them: not in other modules, not in one that would load it, and not where two have that name."""
    other = type("Line", (Line,), {"__module__": "elsewhere"})
    lazy, empty = ModuleType("lazy"), ModuleType("empty")
    lazy.__getattr__ = lambda name: Line  # type: ignore[method-assign]  # as modules do that load on demand
    empty.Line = other  # type: ignore[attr-defined]
    text = codec(Line).dumps(LINE)
    for module in ({}, {"lazy": lazy}, {"Line": other}, {"one": goods, "other": empty}, {"Line": LINE}):
        with pytest.raises(InvalidRequest, match="Line is neither of the types"):
            dump_value(codec_in(**module), LINE, "it")
        if module.get("Line") is not other:
            with pytest.raises(InvalidRequest, match="another version of the program"):
                load_value(codec_in(**module), {"tagged": json.loads(text)})


def test_a_name_that_is_taken() -> None:
    """The annotation has it for another class: that one it stays."""
    other = type("Line", (Line,), {"__module__": "elsewhere"})

    def work() -> other: ...  # type: ignore[valid-type]  # made here

    with pytest.raises(InvalidRequest, match="Line is neither of the types"):
        dump_value(ReturnCodec(work).codec(), LINE, "it")


def test_what_is_stored_names_no_code() -> None:
    """A name in a tag that is neither in a table nor that of a class which can be kept is refused: nothing is imported
    for it, and nothing else is called."""
    for name in (
        "class NoWhere",
        "os.system",
        "class system",
        "builtins.eval",
        "class goods.Line",
        "Plain",
        "class Plain",
    ):
        with pytest.raises(InvalidRequest, match="another version of the program"):
            load_value(codec(Receipt), {"tagged": {"$": [name, {"what": "a", "price": 1}]}})


def test_two_classes_of_one_name() -> None:
    """They are told apart by their modules."""
    other = type("Line", (Line,), {"__module__": "elsewhere"})
    back = again([LINE, other("a", Decimal(1))], list[Line | other])  # type: ignore[valid-type]  # made here
    assert [type(one) for one in back] == [Line, other]


def test_a_class_that_has_moved() -> None:
    """What was stored before a class was moved to another module is still read."""
    text = codec(Line).dumps(LINE)
    moved = type("Line", (Line,), {"__module__": "elsewhere"})
    assert type(codec(moved).loads(text)) is moved


# ---------------------------------------------------------------- where the annotation is


@pytest.mark.parametrize("annotation", ["Further", list["Further"], "Box[Further | None]"], ids=str)  # type: ignore[name-defined]  # noqa: F821  # not yet
def test_a_class_that_is_defined_later(annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the function is decorated its annotation cannot be resolved yet; before the first call it is."""

    def work() -> None: ...

    work.__annotations__["return"] = annotation
    returned = ReturnCodec(work)
    monkeypatch.setitem(globals(), "Further", Line)
    assert again_by(returned, LINE) == LINE


def again_by(returned: ReturnCodec, value: Any) -> Any:
    """What comes back."""
    return dump_value(returned.codec(), value, "it")[1]


def test_a_name_that_nobody_knows() -> None:
    """Before the first call it is said, and nothing has run."""

    def work() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821  # what it is about

    returned = ReturnCodec(work)
    with pytest.raises(InvalidRequest, match=r"work\(\) cannot be resolved \(name 'Nowhere'"):
        returned.codec()


def test_a_class_inside_of_a_function() -> None:
    """It is in no module, and found where it is decorated, also when the function does not use it; and its own parts,
    too."""
    from dataclasses import dataclass  # here, as the classes

    @dataclass
    class Part:
        of: Whole | None

    @dataclass
    class Whole:
        parts: list[Part]

    def unused() -> Whole: ...  # type: ignore[empty-body]

    value = Whole([Part(None)])
    assert again_by(ReturnCodec(unused), value) == value


def test_wrapped_functions() -> None:
    """Partials, methods and what ``functools.wraps`` made are looked through."""
    import functools

    class Shop:
        def pay(self, number: int) -> Line: ...  # type: ignore[empty-body]

    @functools.wraps(Shop.pay)
    def wrapped(*args: Any) -> Any: ...

    for function in (Shop().pay, functools.partial(Shop().pay, 1), wrapped):
        assert again_by(ReturnCodec(function), LINE) == LINE
    with pytest.raises(InvalidRequest):
        again_by(ReturnCodec(str.upper), LINE)  # it has no module


def test_an_annotation_that_is_none() -> None:
    """One that cannot be read at all is refused at once."""

    def work() -> None: ...

    work.__annotations__["return"] = "1 +"
    with pytest.raises(InvalidRequest, match="cannot be read"):
        ReturnCodec(work)
