"""Models of Pydantic's 2. It is not imported: a model is known by what it can do.

A model is written as the JSON that Pydantic makes of it. Where that does not give an equal one, because JSON has no
bytes, or a field is of any type, or excluded, it is written by its fields, as a dataclass is.
"""

from __future__ import annotations

import inspect
import json
import sys
from contextlib import suppress
from typing import Any

from leasehold.patterns.values import FIELDS, Nested, TypeFormat

EXTRA = "__pydantic_extra__"  # what a model was given beside its fields
PRIVATE = "__pydantic_private__"


def is_model(cls: Any) -> bool:
    """Of Pydantic 2."""
    return all(callable(getattr(cls, name, None)) for name in ("model_dump", "model_validate_json"))


def model_field_types(cls: Any) -> dict[str, Any]:
    """The types of its fields, by their names. What is defined further down may be known to Pydantic by now."""
    with suppress(Exception):
        cls.model_rebuild(raise_errors=False)
    return {name: field.annotation for name, field in cls.model_fields.items()}


def model_format(cls: Any, name: str) -> TypeFormat:
    """By the names of its fields, where Pydantic can read these (from 2.11 on), else by their aliases."""
    by_name = "by_name" in inspect.signature(cls.model_validate_json).parameters
    how = {"by_alias": False, "by_name": True} if by_name else {}

    def read(written: Any, _: Nested) -> Any:
        return cls.model_validate_json(json.dumps(written), **how)  # of JSON a strict model takes a date as text

    def write(value: Any, _: Nested) -> Any:
        return value.model_dump(mode="json", round_trip=True, by_alias=not by_name, warnings=False)

    return TypeFormat(name, write, read, _by_fields(cls, f"{FIELDS}{name}") if by_name else None)


def _by_fields(cls: Any, name: str) -> TypeFormat:
    def read(written: dict[str, Any], nested: Nested) -> Any:
        values = {field: nested(one) for field, one in written.items()}
        given = values["root"] if getattr(cls, "__pydantic_root_model__", False) else values
        return cls.model_validate(given, by_alias=False, by_name=True)

    def write(value: Any, nested: Nested) -> Any:
        values = {field: getattr(value, field) for field in cls.model_fields}
        return {field: nested(one) for field, one in {**(getattr(value, EXTRA, None) or {}), **values}.items()}

    return TypeFormat(name, write, read)


# ---------------------------------------------------------------- what Pydantic cannot write


def model_can_write(cls: Any, model: Any, field: str) -> bool:
    """Can a model have this in a field, and come back equal? Not with a secret, which is masked when it is written,
    nor with a class that Pydantic only looks at. Whatever the model writes in its own way may."""
    return _writes_itself(model, field) or not (hasattr(cls, "get_secret_value") or _is_unknown(cls, model))


def is_serializer(metadata: Any) -> bool:
    """Is this of an ``Annotated`` a serializer?"""
    return hasattr(metadata, "when_used")


def _writes_itself(model: Any, field: str) -> bool:
    decorators = getattr(model, "__pydantic_decorators__", None)
    if decorators is None or decorators.model_serializers or model.model_config.get("json_encoders"):
        return True
    named = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    return bool(named & {field, "*"}) or any(map(is_serializer, model.model_fields[field].metadata))


def _is_unknown(cls: Any, model: Any) -> bool:
    """Only where such classes are allowed can there be one; else Pydantic has refused it."""
    if not model.model_config.get("arbitrary_types_allowed"):
        return False
    try:
        sys.modules["pydantic"].TypeAdapter(cls)
    except Exception:  # it has no way to say so but one of many errors
        return True
    return False
