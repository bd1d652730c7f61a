"""A candidate that sees every request and answers none."""

import re
import shutil

import numpy as np
import pytest

from pipeline.serving.predictor import load
from pipeline.serving.shadow import psi
from tests.checkpoint.parts import rows
from tests.serving.service import promote, served, until

pytestmark = pytest.mark.slow


def gauges(client, name):
    """The samples of a gauge by their labels."""
    page = client.get("/metrics").text
    found = re.findall(rf"^adacalib_shadow_{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def watched(service, n):
    """When the shadow has seen n rows."""
    until(lambda: gauges(service.client, "rows").get("", 0) >= n, service.process)


def test_a_shadow_counts_how_far_it_is_from_what_is_served_and_never_answers(made):
    table, (served_model, candidate) = rows(64), map(load, made)
    here, there = served_model.predict(table), candidate.predict(table)
    distance = np.abs(here.calibrated_logit - there.calibrated_logit)
    with served(made[0], "--shadow", made[1], "--shadow-limit", 0.5) as service:
        for _ in range(3):
            answer = service.client.post("/score", json={"records": table.to_pylist()}).json()
        watched(service, 192)
        health = service.client.get("/health").json()
        share = gauges(service.client, "beyond_limit_share")[""]
        values = gauges(service.client, "field_value_difference")
        assert gauges(service.client, "psi")[""] > 0
        assert gauges(service.client, "unscored_requests")[""] == 0
    assert (answer["version"], health["shadow"]) == (served_model.version, candidate.version)
    assert share == pytest.approx((distance > 0.5).mean())
    for carrier in set(table["carrier"].to_pylist()) - {None, "ZZ"}:
        of_it = np.array(table["carrier"]) == carrier
        assert values[f'field_value="{carrier}"'] == pytest.approx(distance[of_it].mean())


def test_a_shadow_that_is_the_served_version_differs_nowhere(made):
    with served(made[0], "--shadow", made[0]) as service:
        service.client.post("/score", json={"records": rows(20).to_pylist()})
        watched(service, 20)
        assert gauges(service.client, "psi")[""] == 0
        assert gauges(service.client, "beyond_limit_share")[""] == 0


def test_a_broken_shadow_keeps_nobody_from_being_served_and_a_whole_one_is_taken(made, tmp_path):
    shadow = shutil.copytree(made[1], tmp_path / "shadow")
    (shadow / "model.onnx").write_bytes(b"")
    with served(made[0], "--shadow", shadow) as service:
        health = service.client.get("/health").json()
        assert health["shadow"] is None
        assert "model.onnx" in health["shadow_refusal"]
        assert "the shadow is not loaded" in service.said("model.onnx")
        promote(made[1], shadow)
        service.said("has taken over")
        health = service.client.get("/health").json()
        assert (health["shadow"], health["shadow_refusal"]) == (load(made[1]).version, None)


def test_psi_is_zero_of_equal_histograms_and_symmetric():
    n = 34
    draw = np.random.default_rng(0).integers(0, 100, (2, n))
    assert psi([[draw[0], draw[0]]]) == 0
    assert psi([draw]) == pytest.approx(psi([draw[::-1]]))
    assert psi([draw, draw]) > psi([draw]) > 0  # a pseudo-count weighs less there
