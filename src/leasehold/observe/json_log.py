"""JsonFormatter: log records as JSON, one object in a line, with the fields that a record carries besides its text.

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.getLogger("leasehold").addHandler(handler)

It formats records of any logger, not only ours.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# What every record has; whatever else it has was given as ``extra``.
USUAL = frozenset({*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"})
OURS = ("time", "level", "logger", "message", "exception", "stack")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, then the
    fields of the record, such as ``event``, ``kind``, ``id_hash``, ``fence``, and ``exception`` and ``stack`` where
    there are any. ``static`` are fields of every line, such as the name of the service. A value that is no JSON is
    written as its text. A field with one of the names above is written with an underscore behind it.

    >>> import logging
    >>> from leasehold.observe import JsonFormatter
    >>> record = logging.makeLogRecord({"msg": "lease_lost", "levelname": "WARNING", "created": 0, "fence": 7})
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000+00:00", "level": "WARNING", "logger": null, "message": "lease_lost", "fence": 7}'
    """

    def __init__(self, static: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._static = dict(static or {})

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in USUAL}
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in (*self._static.items(), *extra.items()):
            found[f"{name}_" if name in OURS else name] = value
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            found["exception"] = record.exc_text
        if record.stack_info:
            found["stack"] = self.formatStack(record.stack_info)
        return _line(found)


def _line(found: dict[str, Any]) -> str:
    """In one line, whatever the values are: a record must not be lost for a field that is no JSON."""
    try:
        return json.dumps(found, default=_text, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, NaN, a circle
        return json.dumps({name: _plain(value) for name, value in found.items()})


def _plain(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return _text(value)
    return value


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # its own fault
        return f"<{type(value).__name__}>"
