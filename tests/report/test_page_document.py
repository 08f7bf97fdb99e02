"""What the page says: verdicts in words, worst classes, mistakes, repairs, and that hostile input stays text."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch

from calgrad.checks import FileError, InputError
from calgrad.metrics import compare_models, ece, evaluate
from calgrad.predictions import Predictions
from calgrad.report.document import make_report
from calgrad.report.html import presentable, script_json
from calgrad.report.images import open_images
from calgrad.report.mistakes import class_rows, surest_mistakes
from calgrad.report.repairs import compare_repairs
from calgrad.report.sources import Model, read_sources
from calgrad.report.verdict import judge
from tests.report.test_plot import exaggerating


def predictions(n=2000, classes=4, factor=1.0, seed=0, **options):
    logits, labels = exaggerating(n, classes, factor, seed)
    return Predictions(logits, labels, **options)


def verdict_of(p):
    confidence, prediction = p.probs.max(1)
    return judge(evaluate(p), confidence, prediction == p.labels)


# --------------------------------------------------------------------------------------------------------------- verdict


@pytest.mark.parametrize(
    ("n", "factor", "level", "tag", "words"),
    [
        (20_000, 1.0, "yes", "calibrated", "No test here can tell it from a calibrated model"),
        (60, 1.0, "unknown", "too few samples", "with 60 samples"),
        (5000, 2.0, "no", "over-confident", "over-confident by"),
        (5000, 0.5, "no", "under-confident", "under-confident by"),
        (200_000, 1.03, "nearly", "nearly calibrated", "more than chance"),
    ],
)
def test_verdict_in_words(n, factor, level, tag, words):
    verdict = verdict_of(predictions(n, factor=factor, seed=5))
    assert (verdict.level, verdict.tag) == (level, tag)
    assert words in verdict.headline


def test_the_words_carry_the_numbers():
    p = predictions(5000, factor=2.0)
    found, verdict = evaluate(p), verdict_of(p)
    assert f"{100 * found.overconfidence:.2f} points" in verdict.headline
    text = " ".join(verdict.sentences)
    for number in (found.confidence, found.accuracy, found.ece, found.floor.mean, found.floor.high):
        assert f"{100 * number:.2f} %" in text
    assert f"{100 * found.ece_interval.low:.2f} to {100 * found.ece_interval.high:.2f}" in text
    assert "p ≤ 0.001" in text
    confidence, prediction = p.probs.max(1)
    sure = confidence >= 0.99
    assert f"{int((prediction != p.labels)[sure].sum())} mistakes" in text


def test_errors_to_both_sides_are_not_called_over_confident():
    generator = torch.Generator().manual_seed(0)
    score = torch.cat([torch.full((4000,), 0.6), torch.full((4000,), 0.9)])
    truth = torch.cat([torch.full((4000,), 0.75), torch.full((4000,), 0.75)])
    labels = (torch.rand(8000, generator=generator) >= truth).long()
    verdict = verdict_of(Predictions.from_probs(torch.stack([score, 1 - score], 1), labels))
    assert verdict.level == "no"
    assert verdict.tag == "miscalibrated"
    assert "too shy in others" in verdict.headline


# ------------------------------------------------------------------------------------------------- classes and mistakes


def test_class_rows_written_out_and_sorted():
    p = predictions(3000, factor=2.0)
    rows = class_rows(p, p.probs)
    confidence, prediction = p.probs.max(1)
    for row in rows:
        chosen = prediction == int(row["key"].removeprefix("class-"))
        assert row["n"] == int(chosen.sum())
        gap = (confidence[chosen].double() - (prediction == p.labels)[chosen].double()).mean()
        assert row["gap"] == pytest.approx(float(gap), abs=1e-5)
        assert row["p_value"] < 0.01
    weights = [abs(r["gap"]) * r["n"] for r in rows]
    assert weights == sorted(weights, reverse=True)
    assert np.mean([r["ece"] for r in rows]) == pytest.approx(evaluate(p).classwise_ece, abs=1e-5)


def test_p_values_of_classes_are_uniform_where_the_model_is_calibrated():
    smallest = [
        min(r["p_value"] for r in class_rows(p, p.probs)) for p in (predictions(500, seed=s) for s in range(100))
    ]
    assert 0.0 < np.mean(np.array(smallest) < 0.05) + 0.01 < 0.12


def test_the_surest_mistakes_are_wrong_and_in_order():
    p = predictions(500, ids=np.array([f"img-{i}" for i in range(500)]))
    rows = surest_mistakes(p, p.probs)
    said = [r["confidence"] for r in rows]
    assert said == sorted(said, reverse=True)
    confidence, prediction = p.probs.max(1)
    wrong = prediction != p.labels
    assert said[0] == pytest.approx(float(confidence[wrong].max()))
    for row in rows:
        i = int(row["id"].removeprefix("img-"))
        assert row["prediction"] == f"class {int(prediction[i])}"
        assert row["label"] == f"class {int(p.labels[i])}"
        assert wrong[i]


def test_mistakes_of_a_saturated_net_are_ranked_by_margin():
    logits = torch.tensor([[200.0, 0.0], [900.0, 0.0], [0.0, 5.0]])
    p = Predictions(logits, torch.tensor([1, 1, 1]))
    assert [r["id"] for r in surest_mistakes(p, p.probs)] == ["row 1", "row 0"]


def test_no_mistake_is_no_row():
    p = Predictions(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    assert surest_mistakes(p, p.probs) == []


def test_thumbnails_come_from_arrays_and_folders_but_not_from_elsewhere(tmp_path):
    from PIL import Image

    folder = tmp_path / "images"
    folder.mkdir()
    Image.new("RGB", (200, 100), (255, 0, 0)).save(folder / "a.png")
    Image.new("RGB", (10, 10)).save(tmp_path / "secret.png")
    (folder / "b.png").write_bytes(b"not a picture")
    images = open_images(folder)
    assert images.thumbnail(0, "a").startswith("data:image/png;base64,")
    assert images.thumbnail(0, "a.png") == images.thumbnail(0, "a")
    for name in ("../secret", "../secret.png", str(tmp_path / "secret.png"), "b", "missing", "x\0y"):
        assert images.thumbnail(0, name) is None
    array = open_images(np.zeros((3, 1, 8, 8), dtype=np.float32))
    assert array.thumbnail(2, "").startswith("data:image/png;base64,")
    assert array.thumbnail(3, "") is None
    with pytest.raises(InputError, match="channels"):
        open_images(np.zeros((3, 8, 8, 5)))
    with pytest.raises(FileError, match="no images"):
        open_images(tmp_path / "absent.npy")


# --------------------------------------------------------------------------------------------------------------- repairs


def test_temperature_is_recommended_where_it_is_the_truth():
    model = Model("m", predictions(6000, factor=3.0), predictions(3000, factor=3.0, seed=1))
    found = compare_repairs(model, methods=("temperature", "svs", "isotonic"))
    assert [r.method for r in found.rows] == ["identity", "temperature", "svs", "isotonic"]
    assert found.best.method == "temperature"
    assert found.best.detail == "T = 3.01" or abs(float(found.best.detail.removeprefix("T = ")) - 3) < 0.15
    expected = compare_models(logits=(found.best.log_probs, found.identity.log_probs), labels=found.labels)
    assert found.best.against.nll.difference == expected.nll.difference
    assert found.best.p_nll >= expected.nll.p_value
    assert "3,000 validation samples" in found.how


def test_nothing_is_recommended_for_a_calibrated_model():
    found = compare_repairs(Model("m", predictions(3000)), methods=("temperature", "svs"))
    assert found.best.method == "identity"


def test_cross_fitting_judges_no_sample_by_its_own_fit():
    # With noise as logits a fit on the judging samples would find something; a cross-fitted one cannot.
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (200,), generator=generator)
    found = compare_repairs(Model("noise", Predictions(logits, labels)), methods=("histogram",))
    histogram = next(r for r in found.rows if r.method == "histogram")
    uniform = math.log(3)
    assert histogram.evaluation.nll > uniform
    assert "cross-fitted" in found.how


def test_the_link_is_offered_where_the_loss_is_known():
    p = predictions(1500, factor=0.5)
    known = compare_repairs(
        Model("m", p, predictions(800, factor=0.5, seed=1), ("bsce-gra", {"gamma": 2})), methods=("link",)
    )
    unknown = compare_repairs(Model("m", p), methods=("link", "temperature"))
    coupled = compare_repairs(Model("m", p, None, ("mmce", {})), methods=("link",))
    assert [r.method for r in known.rows] == ["identity", "link"]
    assert [r.method for r in unknown.rows] == ["identity", "temperature"]
    assert [r.method for r in coupled.rows] == ["identity"]
    assert coupled.skipped[0].startswith("link")


# ------------------------------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def report():
    models = [Model("loud", predictions(1500, factor=2.0)), Model("true", predictions(1500))]
    return make_report(models, methods=("temperature",))


def embedded(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


def test_the_page_holds_its_numbers(report):
    data = embedded(report.html())
    loud = data["models"][0]
    p = predictions(1500, factor=2.0)
    assert loud["numbers"]["ece"]["value"] == pytest.approx(ece(logits=p.logits, labels=p.labels), abs=1e-7)
    assert loud["verdict"]["level"] == "no"
    assert sum(loud["parts"][0]["width"]["n"]) == sum(loud["parts"][0]["mass"]["n"]) == 1500
    assert sum(sum(part["width"]["n"]) for part in loud["parts"][1:]) == 1500
    assert 'make_calibrator("temperature")' in loud["repairs"]["code"]
    assert data["models"][1]["against"]["nll"]["p_value"] < 0.01
    assert "loud" in data["tests_note"]


def test_the_page_is_the_same_twice(report):
    models = [Model("loud", predictions(1500, factor=2.0)), Model("true", predictions(1500))]
    assert make_report(models, methods=("temperature",)).html() == report.html()


def test_the_page_asks_nothing_of_a_network(report):
    html = report.html()
    outside = html.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in outside
    assert "https://" not in outside
    assert not re.search(r"<(script|img|link|iframe)[^>]+src\s*=", html)
    assert "default-src 'none'" in html
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]+'", html)
    assert "unsafe-inline" not in html
    assert "innerHTML" not in html
    assert "eval(" not in html


def test_the_policy_names_the_hash_of_the_script(report):
    import base64
    import hashlib

    html = report.html()
    script = html.rsplit("<script>", 1)[1].rsplit("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in html


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!-- &\u2028\u202e\x00\"'"


def test_hostile_names_stay_text():
    p = predictions(
        300, meta={"class_names": [HOSTILE, "b", "c", "d"]}, ids=np.array([HOSTILE.replace("\x00", "")] * 300)
    )
    html = make_report([Model(HOSTILE, p)], repairs=False, title=HOSTILE).html()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert html.count("</script>") == 2
    data = embedded(html)
    name = data["models"][0]["name"]
    assert name.startswith("</script><script>alert(1)")
    assert "\x00" not in name
    assert "\u202e" not in name
    json.dumps(data).encode("ascii")


def test_script_json_round_trips():
    value = {"a": "</script><!--&\u2028é", "b": [1, 2.5, None]}
    text = script_json(value)
    assert not re.search(r"[<>&]|[^\x00-\x7f]", text)
    assert json.loads(text) == value


def test_presentable_holds_no_nan_and_no_novel():
    value = presentable({"x": [float("nan"), math.inf, 1 / 3], "y": "a" * 5000, "z": True})
    assert value["x"] == [None, None, 0.3333333]
    assert len(value["y"]) < 700
    assert value["z"] is True


def test_ten_models_of_ten_thousand_samples_are_under_3_mb():
    one = make_report([Model("model", predictions(10_000, classes=10, factor=1.7))], title="size").html()
    assert 10 * len(one) < 3_000_000  # counts the shell ten times: an upper bound


def test_a_million_samples_are_aggregated(monkeypatch):
    big = Model("big", predictions(1_000_000, classes=3, factor=1.2))
    assert len(make_report([big], repairs=False).html()) < 300_000
    monkeypatch.setattr("calgrad.report.repairs.MOST_ROWS", 2000)
    monkeypatch.setattr("calgrad.report.repairs.MOST_NUMBERS", 0)
    found = compare_repairs(big, methods=("temperature",))
    assert "2,000 samples (drawn at random from 1,000,000)" in found.how
    assert len(found.labels) == 2000


def test_many_classes_share_their_quota():
    html = make_report([Model("wide", predictions(20_000, classes=300, factor=2.0))], repairs=False).html()
    model = embedded(html)["models"][0]
    assert len(model["class_rows"]) == 100
    assert len(model["parts"]) <= 101
    assert len(html) < 1_500_000


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        ([[1.0, 0.0]], [0]),
        ([[1.0, 0.0], [0.0, 1.0]], [1, 0]),
        ([[1e4, 0.0], [1e4, 0.0], [0.0, 1e4]], [0, 0, 1]),
        ([[0.0, 0.0]] * 7, [0, 1] * 3 + [0]),
    ],
)
def test_tiny_and_degenerate_files_make_a_page(logits, labels):
    html = make_report([Model("tiny", Predictions(torch.tensor(logits), torch.tensor(labels)))]).html()
    assert embedded(html)["models"][0]["n"] == len(labels)


def test_losses_pooled_over_seeds_are_on_the_page():
    from calgrad.losses import make_loss
    from calgrad.report.comparison import Candidate, compare

    candidates = [
        Candidate(
            loss, seed, make_loss(loss), predictions(200, factor=f, seed=seed), predictions(300, factor=f, seed=9)
        )
        for loss, f in (("ce", 2.0), ("focal", 0.7))
        for seed in (1, 2)
    ]
    comparison = compare(candidates)
    models = [Model(c.loss, c.test) for c in candidates[::2]]
    shown = make_report(models, comparison=comparison, repairs=False).document["losses"]
    assert {(r["loss"], r["view"]) for r in shown["rows"]} == {(r.loss, r.view) for r in comparison.rows}
    assert shown["rows"][0]["ece"]["value"] == comparison.rows[0].pooled["ece"].value
    assert "2 seeds" in shown["caption"]


def test_nothing_to_report_on_is_an_error():
    with pytest.raises(InputError, match="nothing to report on"):
        make_report([])


def test_a_notebook_shows_the_page_in_a_sandbox(report):
    shown = report._repr_html_()
    assert shown.startswith("<iframe")
    assert 'sandbox="allow-scripts"' in shown
    assert "<script>" not in shown


def test_saving_into_nowhere_is_said(report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        report.save(tmp_path / "file" / "report.html")
    assert report.save(tmp_path / "deep" / "report.html").read_text() == report.html()


# --------------------------------------------------------------------------------------------------------------- sources


def test_a_bare_npz_is_enough(tmp_path):
    logits, labels = exaggerating(400)
    np.savez(tmp_path / "mine.npz", logits=logits.numpy(), labels=labels.numpy())
    found = read_sources([tmp_path / "mine.npz"], class_names=["a", "b", "c", "d"])
    assert [m.name for m in found.models] == ["mine"]
    assert found.models[0].test.class_names == ("a", "b", "c", "d")
    with pytest.raises(InputError, match="3 class names"):
        read_sources([tmp_path / "mine.npz"], class_names=["a", "b", "c"])
    with pytest.raises(InputError, match="one --val file"):
        read_sources([tmp_path / "mine.npz"], val=[tmp_path / "a", tmp_path / "b"])


def test_a_report_straight_from_a_path(tmp_path):
    path = predictions(100).save(tmp_path / "mine.npz")
    assert make_report([path], repairs=False).document["models"][0]["name"] == "mine"


def test_equal_names_are_told_apart(tmp_path):
    paths = []
    for folder in ("one", "two"):
        paths.append(predictions(50).save(tmp_path / folder / "test.npz"))
    names = [m.name for m in read_sources(paths).models]
    assert names == ["test", "test (2)"]
