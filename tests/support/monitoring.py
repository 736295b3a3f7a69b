"""Questions of programs to a worker over HTTP."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed_text

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.processes import QWorker

SERVING = re.compile(r"serving (http://\S+)( /metrics)?")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def address(worker: QWorker, *, metrics: bool = True) -> str:
    """Where it serves, as it says."""
    worker.says("serving http://")
    [found] = [url for url, with_metrics in SERVING.findall(worker.output) if bool(with_metrics) == metrics]
    return str(found)


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(worker: QWorker, path: str = "/healthz") -> tuple[int, dict[str, Any]]:
    status, body = get(address(worker) + path)
    return status, json.loads(body)


def becomes(worker: QWorker, path: str, status: int, word: str) -> dict[str, Any]:
    """Waits until the path answers so."""

    def answered() -> dict[str, Any]:
        code, body = health(worker, path)
        return body if (code, body["status"]) == (status, word) else {}

    return wait_until(answered, f"{path} answers {status} {word}")


def metrics(worker: QWorker, *, openmetrics: bool = False) -> dict[tuple[str, ...], float]:
    """Every sample as Prometheus reads it, by its name and the values of its labels in the order of their names."""
    _, text = get(address(worker) + "/metrics", **({"Accept": OPENMETRICS} if openmetrics else {}))
    return samples(text, openmetrics=openmetrics)


def samples(text: str, *, openmetrics: bool = False) -> dict[tuple[str, ...], float]:
    parsed: Any = parsed_openmetrics if openmetrics else parsed_text
    found = [sample for family in parsed(text) for sample in family.samples]
    return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value for one in found}
