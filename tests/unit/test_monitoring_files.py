"""What Prometheus and Grafana load fits together. That its metrics exist, a scrape shows (test_observed_runs.py)."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/acts.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def load(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / path).read_text("utf-8"))
    return content


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    return {
        (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
    }


def test_panels_have_their_own_places_and_ids() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(x < 24 for panel in PANELS for x, _ in cells(panel))
    assert not [(a["title"], b["title"]) for a, b in combinations(PANELS, 2) if cells(a) & cells(b)]


def test_each_panel_says_what_it_shows_and_reads_the_data_source_that_is_provided() -> None:
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["targets"], panel["title"]
            assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}


def test_prometheus_loads_the_alerts_and_each_says_what_is_wrong_and_where_to_look() -> None:
    settings = load("prometheus/prometheus.yml")
    assert all((DEPLOY / "prometheus" / name).is_file() for name in settings["rule_files"])
    rules = [rule for group in load("prometheus/alerts.yml")["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
    (job,) = settings["scrape_configs"]
    assert any(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules)
