"""Tables of cases as one test each: thousands of rows that take microseconds would cost milliseconds as tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet


def each(
    names: str | Sequence[str], table: Iterable[Any], *, ids: Callable[..., object] | Iterable[object] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like ``pytest.mark.parametrize``, but one test runs all rows and reports every row that fails.

    The rows share the fixtures of the test, so this is for cases that leave nothing behind.
    """
    keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)
    rows = [_values(row, len(keys)) for row in table]
    labels = [*map(str, ids)] if ids is not None and not callable(ids) else [", ".join(map(repr, row)) for row in rows]
    assert rows, "the table is empty"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            wrong: list[BaseException] = []
            for row, label in zip(rows, labels, strict=True):
                try:
                    test(**dict(zip(keys, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(_named(error, label))
            _report(wrong, len(rows))

        @functools.wraps(test)
        async def await_all(**fixtures: Any) -> None:
            wrong: list[BaseException] = []
            for row, label in zip(rows, labels, strict=True):
                try:
                    await test(**dict(zip(keys, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    wrong.append(_named(error, label))
            _report(wrong, len(rows))

        run: Any = await_all if inspect.iscoroutinefunction(test) else run_all
        signature = inspect.signature(test)
        rest = [one for one in signature.parameters.values() if one.name not in keys]
        run.__signature__ = signature.replace(parameters=rest)  # what pytest goes by
        return cast("Callable[..., Any]", run)

    return decorate


def _values(row: Any, count: int) -> tuple[Any, ...]:
    if isinstance(row, ParameterSet):
        assert not row.marks, "a row that needs a mark is a test of its own"
        return tuple(row.values)
    return tuple(row) if count > 1 else (row,)


def _named(error: BaseException, label: str) -> BaseException:
    error.add_note(f"in the row {label}")
    if str(error).startswith("Timeout"):  # of pytest-timeout: the time of the whole test is over
        raise error
    return error


def _report(wrong: list[BaseException], count: int) -> None:
    if wrong:
        raise BaseExceptionGroup(f"{len(wrong)} of {count} rows failed", wrong)
