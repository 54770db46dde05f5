"""Processes: what a parent holds is nothing to its child's metrics and spans; metrics of many; missing packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import leasehold

SOURCE = Path(leasehold.__file__).parents[1]
FORKING = """
import json, os
import leasehold
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from leasehold.observe.otel import OpenTelemetryObserver
from leasehold.observe.prometheus import PrometheusObserver

registry, exporter, tracers, told = CollectorRegistry(), InMemorySpanExporter(), TracerProvider(), []
tracers.add_span_processor(SimpleSpanProcessor(exporter))
observers = [PrometheusObserver(registry), OpenTelemetryObserver(tracers)]
hold = leasehold.connect("memory://", observers=[*observers, lambda event: told.append(type(event).__name__)])

def now():
    held = registry.get_sample_value("leasehold_held", {"kind": "job"})
    spans = [span.name for span in exporter.get_finished_spans()]
    return [held, spans, told[:]]

lease = hold.lock("job", 1).acquire()
read, write = os.pipe()
child = os.fork()
if child == 0:
    told.clear()
    found = [now()]
    try:
        lease.release()
    except leasehold.LeaseholdError:
        pass
    found.append(now())
    with hold.lock("job", 2):
        found.append(now())
    found.append(now())
    os.write(write, json.dumps(found).encode())
    os._exit(0)
os.close(write)
os.waitpid(child, 0)
inside = json.loads(os.read(read, 65536))
before = now()
lease.release()
print(json.dumps([inside, before, now()]))
"""


def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    program = f"import sys; sys.path.insert(0, {str(SOURCE)!r})\n{code}"
    return subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=40, check=False
    )


def test_a_child_begins_with_nothing() -> None:
    """It holds nothing, ends none of its parent's spans, and is told nothing of its parent's leases."""
    done = run(FORKING)
    assert done.returncode == 0, done.stderr
    inside, before, after = json.loads(done.stdout)
    nothing = [0, [], []]
    assert inside[:2] == [nothing, nothing]
    assert inside[2] == [1, [], ["Acquired"]]
    assert inside[3] == [0, ["leasehold hold", "leasehold lease"], ["Acquired", "Released"]]
    assert before == [1, [], ["Acquired"]]
    assert after == [0, ["leasehold hold", "leasehold lease"], ["Acquired", "Released"]]


@pytest.mark.parametrize(("module", "extra"), [("prometheus", "prometheus"), ("otel", "otel")])
def test_a_missing_package_says_what_to_install(module: str, extra: str) -> None:
    """And everything else works without it."""
    done = run(f"import leasehold\nimport leasehold.observe.{module}", "-I", "-S")
    assert done.returncode == 1
    assert "ModuleNotFoundError: " in done.stderr and f"pip install 'leasehold[{extra}]'" in done.stderr


MANY = """
import os
import leasehold
from leasehold.observe.events import Leaking
from leasehold.observe.prometheus import PrometheusObserver
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

observer = PrometheusObserver()
observer(Leaking(0))
hold = leasehold.connect("memory://", observers=[observer])
with hold.lock("job", 1):
    child = os.fork()
    if child == 0:
        with hold.lock("job", 1):
            pass
        os._exit(0)
    os.waitpid(child, 0)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    print(generate_latest(registry).decode())
"""


def test_the_multiprocess_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters and histograms are summed over processes; what is so now is not there, as the documents say."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    done = run(MANY)
    assert done.returncode == 0, done.stderr
    assert 'leasehold_acquire_total{kind="job",outcome="acquired",store="memory"} 2.0' in done.stdout
    assert 'leasehold_hold_seconds_count{kind="job"} 1.0' in done.stdout
    for gauge in ("held", "waiters", "oldest_held_seconds", "keys_without_ttl"):
        assert f"leasehold_{gauge}" not in done.stdout
