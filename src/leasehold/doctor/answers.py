"""What only people can know, in a file: answers to the points of the checklist that no software can decide."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from leasehold.errors import InvalidRequest

QUESTIONS: dict[str, str] = {
    "protects": '"efficiency": two at once waste work, nothing more; "correctness": something is wrong afterwards',
    "ttl_measured": "Were the ttls chosen from measured work and pauses? (`leasehold ttl --from`)",
    "work_stops": "Does work stop when its lease is lost? (lease.lost, lease.check(), or a task that is cancelled)",
    "fenced": "Is the fence passed on, wherever a stale write would matter?",
    "guarded": "Does what is written to refuse an older fence? (a guard, a conditional update)",
    "backoff": "Are retries bounded, and jittered? (wait=, or leasehold.Backoff)",
    "idempotent": "Is work that runs twice idempotent, or harmless?",
    "durable_state": "Is state that must be correct kept in a database, or a store with consensus?",
    "metrics": "Are acquire, release, renewal, loss and stale release measured? (PrometheusObserver)",
    "stale_release_test": "Does a test show that a stale owner can neither release nor write?",
    "fault_injection": "Do tests inject timeouts, crashes and expiry?",
    "runbook": "Is there a runbook for inspecting and clearing a lease?",
}
PROTECTS = ("efficiency", "correctness")
NO_PLACES = ("true", "false", "yes", "no", "y", "n", "on", "off", "none", "todo", "tbd", "unknown", "?", "-")
Answers = dict[str, "bool | str"]


def template() -> str:
    """A file with every question, as TOML."""
    lines = [
        "# Answers for `leasehold doctor --checklist --answers FILE`. Each is true or false, or a text that says where",
        "# to find it, which counts as true. Leave out what is not known.",
    ]
    for name, question in QUESTIONS.items():
        lines += ["", f"# {question}", f"# {name} = {_example(name)}"]
    return "\n".join(lines) + "\n"


def _example(name: str) -> str:
    return {"protects": '"correctness"', "runbook": '"https://wiki/runbooks/leases"'}.get(name, "true")


def parse(text: str) -> Answers:
    """From TOML, or from JSON (an object). Raises InvalidRequest."""
    try:
        found: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # both errors of syntax are a ValueError
        raise InvalidRequest(f"the answers are neither TOML nor JSON: {str(error)[:100]}") from None
    return _checked(found)


def _checked(found: Mapping[str, Any]) -> Answers:
    answers: Answers = {}
    for name, value in found.items():
        if name not in QUESTIONS:
            raise InvalidRequest(f"there is no answer called {name[:40]!r}: it is one of {', '.join(QUESTIONS)}")
        if value is None:
            continue
        if name == "protects" and value not in PROTECTS:
            raise InvalidRequest(f"protects must be one of {', '.join(PROTECTS)}, not {str(value)[:40]!r}")
        if not isinstance(value, bool) and not (isinstance(value, str) and value.strip()):
            raise InvalidRequest(f"{name} is true, false, or a text, not {str(value)[:40]!r}")
        if isinstance(value, str) and value.strip().lower() in NO_PLACES:
            why = "which would count as true: write true or false without quotes, or leave it out if it is not known"
            raise InvalidRequest(f"{name} is {value.strip()!r} as a text, {why}")
        answers[name] = value
    return answers
