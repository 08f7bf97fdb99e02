from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from calgrad.checks import FileError, InputError
from calgrad.metrics import noise_floor
from calgrad.paper.efficiency import efficiency_table
from calgrad.paper.findings import (
    beta_one_error,
    confidences_like,
    dual_gra_row,
    findings_tables,
    floor_rows,
    normalisation_rows,
)
from calgrad.paper.human import HumanLabels, distances, human_rows, human_table, run_views
from calgrad.predictions import Predictions
from tests.conftest import real_data_folder
from tests.paper.test_records import made_up


def test_the_stand_in_confidences_have_the_real_floor(golden):
    real = torch.tensor(golden["test_logits"] / 2.5).softmax(1).amax(1).double()
    stand_in = confidences_like(float(real.mean()))
    assert stand_in.mean() == pytest.approx(float(real.mean()), abs=2e-3)
    assert stand_in.std() == pytest.approx(float(real.std()), rel=0.05)
    ours, theirs = noise_floor(confidence=stand_in), noise_floor(confidence=real)
    assert ours.mean == pytest.approx(theirs.mean, rel=0.05)
    assert ours.sd == pytest.approx(theirs.sd, rel=0.1)


def test_no_difference_in_table_1_is_two_sd():
    rows = floor_rows()
    assert len(rows) == 9
    close = [r for r in rows if r["data"] != "tiny-imagenet"]
    assert all(abs(r["in_sd"]) < 2 for r in close)
    assert rows[-1]["difference"] < -0.02  # Tiny-ImageNet: BSCE-GRA is clearly behind FLSD before T
    first = rows[0]
    assert first["difference"] == pytest.approx(0.0088 - 0.0074)
    assert first["in_sd"] == pytest.approx(first["difference"] / math.sqrt(2) / first["floor_sd"])


def test_dual_gra_beta_one_and_normalisation():
    row = dual_gra_row(samples=2000)
    assert 0.5 < row["published_off"] < 1.5
    assert row["ours_off"] < 1e-12
    assert dual_gra_row(samples=2000, scale=3)["published_off"] > 0.3
    assert beta_one_error(samples=500) < 1e-12
    red = normalisation_rows()[0]
    x = 0.3  # a pixel, as the network was trained to see it and as it is tested
    trained, tested = (x - 0.4914) / 0.2023, (x - 0.485) / 0.229
    assert tested == pytest.approx(red["contrast"] * trained + red["shift"])
    tables = findings_tables(floor_rows(), [row], 0.0, normalisation_rows())
    assert len(tables[0].sections[0][1]) == 9


def test_distances_by_hand():
    probs = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    human = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    found = distances(probs, human)
    assert found["l2"].tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    assert found["tv"].tolist() == pytest.approx([0.5, 0.5])
    assert found["kl"].tolist() == [pytest.approx(math.log(2)), math.inf]


def votes_file(tmp_path, labels):
    generator = np.random.default_rng(0)
    eta = np.full((len(labels), 10), 0.02)
    eta[np.arange(len(labels)), labels] = 0.82
    counts = np.stack([generator.multinomial(51, row) for row in eta])
    path = tmp_path / "counts.npy"
    np.save(path, counts)
    return path, counts / 51


def test_human_rows_match_ids_and_order(tmp_path):
    labels = np.arange(40) % 10
    path, shares = votes_file(tmp_path, labels)
    order = np.random.default_rng(1).permutation(40)
    logits = np.log(shares + 1e-3)[order]
    Predictions(logits, labels[order], ids=order, split="test").save(tmp_path / "p.npz")
    human = HumanLabels.load(path)
    rows = human_rows(human, predictions=[tmp_path / "p.npz"])
    assert [r["name"] for r in rows] == ["the label alone", "as many other people", "p"]
    assert rows[2]["l2"] < 0.02
    assert rows[1]["l2"] < rows[0]["l2"]
    assert "infinite" in human_table(rows).to_markdown()
    Predictions(logits, labels[order], split="test").save(tmp_path / "no-ids.npz")
    with pytest.raises(InputError, match="another order"):
        human_rows(human, predictions=[tmp_path / "no-ids.npz"])
    with pytest.raises(InputError, match="nothing to judge"):
        human_rows(human)
    np.save(tmp_path / "bad.npy", np.zeros((4, 10)))
    with pytest.raises(FileError, match="at least one"):
        HumanLabels.load(tmp_path / "bad.npy")


def test_human_views_of_a_run(digit_runs):
    name, views = run_views(digit_runs / "bsce-gra-gamma2-beta2" / "seed-1")
    assert name == "bsce-gra (beta=2;gamma=2), digits-tiny, seed 1"
    assert list(views) == ["as trained", "temperature", "link"]
    as_trained, link = views["as trained"], views["link"]
    assert float(link.probs.amax(1).mean()) > float(as_trained.probs.amax(1).mean())  # the link undoes under-confidence


def test_real_human_labels(golden, tmp_path):
    folder = real_data_folder()
    if folder is None or not (folder / "cifar10h.npz").exists():
        pytest.skip("CIFAR-10H is not here")
    Predictions(golden["test_logits"], golden["test_labels"]).save(tmp_path / "ce.npz")
    rows = human_rows(HumanLabels.load(folder / "cifar10h.npz"), predictions=[tmp_path / "ce.npz"])
    found = {r["name"]: r for r in rows}
    assert found["ce"]["l2"] == pytest.approx(0.1104, abs=5e-4)
    assert found["ce"]["kl"] == pytest.approx(0.7654, abs=5e-3)
    assert found["as many other people"]["l2"] < found["the label alone"]["l2"] < found["ce"]["l2"]


def test_efficiency():
    published = efficiency_table([])
    assert [c.text for c in published.sections[0][1][1]] == ["BSCE-GRA", "139", "–", "1.086", "–"]
    rows = [made_up(loss="ce", images_per_second=20_000.0), made_up(images_per_second=19_000.0)]
    table = efficiency_table(rows)
    title, lines = table.sections[1]
    assert title == "ours: cifar10, resnet50, cifar10-paper, 350 epochs, H200"
    assert [line[3].text for line in lines] == ["1.000", "1.053"]
