"""A Grafana dashboard over the metrics of Triton servers.

The metrics are those of Triton's documentation (docs/user_guide/metrics.md); counters of time are in
microseconds. Values of GPUs are there only where the server sees one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ftserve.deployment import Deployment

UID = "triton-fastertransformer"
# Requests of a model that wait for an instance of it.
QUEUE = "nv_inference_pending_request_count"
# The oldest format that all current versions of Grafana take.
_SCHEMA = 39
_WIDTH, _HEIGHT = 12, 8
_MODEL = 'model=~"$model"'


@dataclass(frozen=True)
class Dashboard:
    """Grafana, as a `Target`; its dashboard is the same for every deployment, and for none."""

    name: ClassVar[str] = "dashboard"

    def files(self, deployment: Deployment | None = None) -> Mapping[str, str]:
        """Return the one file."""
        return {f"{UID}.json": json.dumps(dashboard(), indent=2) + "\n"}


@dataclass(frozen=True)
class Panel:
    """A graph: its title, Grafana's name of the unit, PromQL by the legend of its lines."""

    title: str
    unit: str
    lines: dict[str, str]


def _rate(counter: str, by: str) -> str:
    return f"sum by ({by}) (rate({counter}{{{_MODEL}}}[$__rate_interval]))"


def _each(counter: str, of: str, by: str = "model") -> str:
    """Return the PromQL of what one of something takes or has."""
    return f"{_rate(counter, by)} / {_rate(of, by)}"


PANELS = (
    Panel("Answered requests", "reqps", {"{{model}}": _rate("nv_inference_request_success", "model")}),
    Panel(
        "Failed requests",
        "reqps",
        {"{{model}}: {{reason}}": _rate("nv_inference_request_failure", "model, reason")},
    ),
    Panel(
        "Time of a request",
        "µs",
        {"{{model}}": _each("nv_inference_request_duration_us", "nv_inference_request_success")},
    ),
    Panel(
        "Time of a request in the queue",
        "µs",
        {"{{model}}": _each("nv_inference_queue_duration_us", "nv_inference_request_success")},
    ),
    Panel("Waiting requests", "short", {"{{model}}, {{instance}}": f"{QUEUE}{{{_MODEL}}}"}),
    # Seconds of computing in a second: requests in flight are no batch, and count as one of their own.
    Panel(
        "Requests computed at once",
        "short",
        {"{{model}}": f"{_rate('nv_inference_compute_infer_duration_us', 'model')} / 1e6"},
    ),
    Panel("GPU utilization", "percentunit", {"{{instance}}, {{gpu_uuid}}": "nv_gpu_utilization"}),
    Panel(
        "GPU memory",
        "bytes",
        {
            "{{instance}}, {{gpu_uuid}}": "nv_gpu_memory_used_bytes",
            "most": "max(nv_gpu_memory_total_bytes)",
        },
    ),
    Panel("GPU power", "watt", {"{{instance}}, {{gpu_uuid}}": "nv_gpu_power_usage"}),
    Panel("Memory of the machine", "bytes", {"{{instance}}": "nv_cpu_memory_used_bytes"}),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": "Triton with FasterTransformer",
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _models()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _models() -> dict[str, Any]:
    return {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(nv_inference_count, model)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + line), "expr": expression, "legendFormat": legend}
            for line, (legend, expression) in enumerate(panel.lines.items())
        ],
    }
