"""A real Prometheus, which scrapes one page of metrics several times a second; and promtool, which comes with it."""

from __future__ import annotations

import http.client
import json
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from tests.support.servers import process
from tests.support.servers.server import Server

CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: leasehold
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class PrometheusServer(Server):
    """It starts with ``start`` or with ``with``, and scrapes the page on ``target``, a port of 127.0.0.1. ``rules`` are
    alerts, as in a file of rules."""

    def __init__(self, target: int, rules: str = "groups: []") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="prometheus-", dir=process.home()))
        (self.folder / "prometheus.yml").write_text(CONFIG.format(port=target))
        (self.folder / "rules.yml").write_text(rules)
        self._place = process.reserve()
        self.port = self._place.getsockname()[1]

    def _command(self) -> list[str]:
        return [
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]

    def _answers(self) -> bool:
        try:
            return self._get("/-/ready")[0] == 200
        except OSError:
            return False

    def stop(self) -> None:
        """Gone, with everything that it scraped."""
        self.kill()
        self._place.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def values(self, query: str) -> list[float]:
        """What an expression gives now. No value stands for a division of nothing by nothing."""
        status, body = self._get(f"/api/v1/query?{urlencode({'query': query})}")
        answer = json.loads(body)
        assert status == 200, f"{query}: {answer.get('error')}"
        found = [float(series["value"][1]) for series in answer["data"]["result"]]
        return [value for value in found if not math.isnan(value)]

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire now, each with its kind."""
        status, body = self._get("/api/v1/alerts")
        assert status == 200
        found = [alert for alert in json.loads(body)["data"]["alerts"] if alert["state"] == "firing"]
        return {(alert["labels"]["alertname"], alert["labels"].get("kind", "")) for alert in found}

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Its result; it prints what is wrong."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False)
