"""Pictures: the data they compute, and that what is drawn is that data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import calgrad.metrics as metrics
from calgrad import plot
from calgrad.checks import InputError
from calgrad.losses import make_loss, posterior
from calgrad.report.reliability import diagram_of
from calgrad.report.simplex import simplex_grid
from calgrad.report.smooth_curve import smooth_curve


def exaggerating(n=2000, classes=4, factor=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(z.softmax(1), 1, generator=generator).squeeze(1)
    return factor * z, labels


@pytest.fixture(scope="module")
def model():
    return exaggerating()


def texts(figure):
    return " ".join(t.get_text() for t in figure.findobj(lambda a: hasattr(a, "get_text")))


# ------------------------------------------------------------------------------------------------------------ reliability


@pytest.mark.parametrize(("scheme", "binning"), [("equal-width", "right"), ("equal-mass", "adaptive")])
@pytest.mark.parametrize("bins", [5, 15])
def test_diagram_shows_the_error_of_the_metrics(model, scheme, binning, bins):
    logits, labels = model
    data = plot.diagram(logits=logits, labels=labels, bins=bins, scheme=scheme)
    assert data.error == pytest.approx(metrics.ece(logits=logits, labels=labels, bins=bins, binning=binning), abs=1e-12)
    curve = metrics.reliability(logits=logits, labels=labels, bins=bins, binning=binning)
    np.testing.assert_allclose(data.curve.accuracy, curve.accuracy)
    assert data.floor.mean == metrics.noise_floor(logits=logits, bins=bins, binning=binning).mean
    assert data.interval.low <= data.error <= data.interval.high


def test_the_interval_is_that_of_evaluate(model):
    logits, labels = model
    found = metrics.evaluate(logits=logits, labels=labels)
    data = plot.diagram(logits=logits, labels=labels)
    assert (data.interval.low, data.interval.high) == pytest.approx((found.ece_interval.low, found.ece_interval.high))
    assert (data.floor.mean, data.floor.high) == pytest.approx((found.floor.mean, found.floor.high))


def test_smooth_diagram_shows_the_smooth_ece(model):
    logits, labels = model
    data = plot.diagram(logits=logits, labels=labels, scheme="smooth")
    assert data.error == metrics.smooth_ece(logits=logits, labels=labels)


def test_the_picture_draws_the_data(model):
    logits, labels = model
    data = plot.diagram(logits=logits, labels=labels, bins=10)
    figure = plot.draw_reliability(data)
    full = data.curve.count > 0
    drawn = next(line for line in figure.axes[0].get_lines() if line.get_marker() == "o")
    np.testing.assert_allclose(drawn.get_xdata(), 100 * data.curve.confidence[full])
    np.testing.assert_allclose(drawn.get_ydata(), 100 * data.curve.accuracy[full])
    assert [int(bar.get_height()) for bar in figure.axes[1].patches] == data.curve.count.tolist()
    shown = texts(figure)
    assert f"ECE {100 * data.error:.2f} %" in shown
    assert f"{100 * data.interval.low:.2f} to {100 * data.interval.high:.2f}" in shown
    assert f"calibrated: {100 * data.floor.mean:.2f}" in shown


def test_a_calibrated_model_lies_in_its_band_95_times_in_100():
    inside, total = 0, 0
    for seed in range(100, 130):
        logits, labels = exaggerating(n=3000, factor=1.0, seed=seed)
        data = plot.diagram(logits=logits, labels=labels, bins=8)
        full = data.curve.count > 50
        inside += int(((data.curve.accuracy >= data.band[0]) & (data.curve.accuracy <= data.band[1]))[full].sum())
        total += int(full.sum())
    assert 0.91 < inside / total < 0.99


def test_a_class_probability_is_a_score_like_any_other(model):
    logits, labels = model
    diagrams = plot.class_diagrams(logits=logits, labels=labels, bins=15)
    mean = np.mean([d.error for d in diagrams])
    assert mean == pytest.approx(metrics.classwise_ece(logits=logits, labels=labels), abs=1e-12)
    figure = plot.draw_classwise(diagrams, class_names=["a", "b", "c", "d"], limit=3)
    assert sum(ax.get_visible() for ax in figure.axes) == 3
    worst = int(np.argmax([d.error for d in diagrams]))
    assert figure.axes[0].get_title() == "abcd"[worst]
    with pytest.raises(InputError, match="3 class names"):
        plot.draw_classwise(diagrams, class_names=["a", "b", "c"])


@pytest.mark.parametrize("scheme", ["equal-width", "equal-mass", "smooth"])
@pytest.mark.parametrize(
    ("score", "hit"),
    [
        ([1.0, 1.0, 1.0], [True, True, True]),
        ([0.5], [False]),
        ([0.3, 0.3, 0.9, 1.0], [False, True, False, True]),
        ([0.0, 1.0], [False, True]),
    ],
)
def test_few_and_extreme_samples_can_be_drawn(scheme, score, hit):
    data = diagram_of(torch.tensor(score), torch.tensor(hit), scheme=scheme)
    figure = plot.draw_reliability(data)
    FigureCanvasAgg(figure).draw()
    assert 0 <= data.error <= 1


# ---------------------------------------------------------------------------------------------------------- smooth curve


def test_smooth_curve_is_the_kernel_average_written_out():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(400, generator=generator, dtype=torch.float64)
    hit = torch.rand(400, generator=generator, dtype=torch.float64) < confidence
    curve = smooth_curve(confidence, hit, bandwidth=0.05)
    c, y = confidence.numpy(), hit.numpy().astype(float)
    centres = np.linspace(c.min(), c.max(), 61)
    for i in (5, 30, 55):
        weights = sum(np.exp(-0.5 * ((centres[i] - image) / 0.05) ** 2) for image in (c, -c, 2 - c))
        assert curve.says[i] == pytest.approx((weights * c).sum() / weights.sum(), abs=2e-4)
        assert curve.right[i] == pytest.approx((weights * y).sum() / weights.sum(), abs=2e-3)
    assert np.all(np.diff(curve.says) > 0)
    assert np.all((curve.low <= curve.right) & (curve.right <= curve.high))


def test_smooth_curve_of_a_calibrated_model_is_the_diagonal():
    logits, labels = exaggerating(n=20_000, factor=1.0)
    confidence, prediction = logits.softmax(1).max(1)
    curve = smooth_curve(confidence, prediction == labels)
    inside = (curve.right >= curve.band_low) & (curve.right <= curve.band_high)
    assert inside.mean() > 0.8
    assert np.abs(curve.says - curve.right)[10:].max() < 0.06


# --------------------------------------------------------------------------------------- confidence, coverage, gradients


def test_confidence_counts_every_sample(model):
    logits, labels = model
    counts = plot.confidence_counts(logits=logits, labels=labels)
    assert counts.right.sum() == round(metrics.accuracy(logits=logits, labels=labels) * len(labels))
    assert counts.right.sum() + counts.wrong.sum() == len(labels)
    assert f"accuracy {100 * counts.accuracy:.1f} %" in texts(plot.draw_confidence(counts))


def test_risk_coverage_written_out_and_its_area(model):
    logits, labels = model
    confidence, prediction = logits.softmax(1).max(1)
    order = np.argsort(-confidence.numpy(), kind="stable")
    wrong = (prediction != labels).numpy()[order]
    curve = plot.risk_coverage(logits=logits, labels=labels)
    naive = np.cumsum(wrong) / np.arange(1, len(wrong) + 1)
    np.testing.assert_allclose(curve.risk, naive)  # no ties here
    assert curve.aurc == pytest.approx(naive.mean())
    assert curve.risk[-1] == pytest.approx(1 - metrics.accuracy(logits=logits, labels=labels))
    assert len(curve.thinned(50).risk) == 50
    assert curve.thinned(50).risk[-1] == curve.risk[-1]


def test_risk_coverage_does_not_depend_on_the_order_of_ties():
    probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    one = plot.risk_coverage(probs, [0, 1, 0])
    other = plot.risk_coverage(probs, [1, 0, 0])
    assert one.coverage.tolist() == pytest.approx([2 / 3, 1])
    assert one.risk.tolist() == other.risk.tolist() == pytest.approx([1 / 2, 1 / 3])


def test_gradient_trend_is_the_median_of_each_step():
    rng = np.random.default_rng(0)
    brier = rng.uniform(0, 2, 3000)
    norm = np.sqrt(brier) + 0.1 * rng.standard_normal(3000)
    trend = plot.gradient_trend({"brier": brier, "gradient_norm": norm}, groups=10)
    inside = (brier >= brier.max() * 0.3) & (brier < brier.max() * 0.4)
    assert trend.median[3] == pytest.approx(np.median(norm[inside]))
    assert (trend.low <= trend.median).all()
    assert (trend.median <= trend.high).all()
    assert trend.correlation > 0.9
    with pytest.raises(InputError, match="one length"):
        plot.gradient_trend({"brier": [1.0], "gradient_norm": [1.0, 2.0]})


def test_history_takes_the_validated_epochs():
    entries = [
        {"epoch": 1, "train_loss": 1.0},
        {"epoch": 2, "val_ece": 0.1, "val_nll": 0.5, "val_accuracy": 0.8},
        {"epoch": 4, "val_ece": 0.05, "val_nll": 0.4, "val_accuracy": 0.9},
    ]
    found = plot.history_of(entries)
    assert found == {"epoch": [2, 4], "ece": [0.1, 0.05], "nll": [0.5, 0.4], "accuracy": [0.8, 0.9]}
    figure = plot.draw_history({"a": entries, "b": entries})
    assert figure.axes[0].get_lines()[0].get_ydata() == pytest.approx([10, 5])
    with pytest.raises(InputError, match="nothing to draw"):
        plot.draw_history([{"epoch": 1}])


# --------------------------------------------------------------------------------------------------------------- simplex


def test_simplex_grid_holds_every_point_once():
    grid = simplex_grid(6)
    assert len(grid) == 7 * 8 // 2
    assert len(torch.unique(grid, dim=0)) == len(grid)
    torch.testing.assert_close(grid.sum(1), torch.ones(len(grid), dtype=torch.float64))


def test_uncertainty_field_is_the_weight_of_the_loss():
    field = plot.uncertainty_field(make_loss("bsce-gra", gamma=4, beta=2), label=1, steps=10)
    one_hot = torch.zeros(3, dtype=torch.float64)
    one_hot[1] = 1
    torch.testing.assert_close(field.values, (field.probs - one_hot).norm(dim=1) ** 4)
    with pytest.raises(InputError, match="no uncertainty"):
        plot.uncertainty_field("mmce")


def test_link_field_is_the_posterior():
    field = plot.link_field("focal")
    torch.testing.assert_close(field.values, posterior(make_loss("focal"), field.probs))
    torch.testing.assert_close(field.values.sum(1), torch.ones(len(field.values), dtype=torch.float64))
    moved = (field.values.amax(1) - field.probs.amax(1)).max()
    assert moved > 0.1  # focal's minimiser is under-confident, so its link raises the confidence


# ------------------------------------------------------------------------------------------------------- figures and axes


def drawings(logits, labels):
    trend = {"brier": np.linspace(0, 2, 50), "gradient_norm": np.linspace(0, 1, 50)}
    return {
        "reliability": lambda **k: plot.draw_reliability(logits=logits, labels=labels, **k),
        "smooth": lambda **k: plot.draw_reliability(logits=logits, labels=labels, scheme="smooth", **k),
        "confidence": lambda **k: plot.draw_confidence(logits=logits, labels=labels, **k),
        "coverage": lambda **k: plot.draw_risk_coverage(logits=logits, labels=labels, **k),
        "gradients": lambda **k: plot.draw_gradients(trend, **k),
        "uncertainty": lambda **k: plot.draw_uncertainty("focal-gra", **k),
        "link": lambda **k: plot.draw_link("bsce-gra", **k),
    }


@pytest.mark.parametrize("name", list(drawings(None, None)))
def test_draws_on_given_axes_and_returns_their_figure(model, name):
    draw = drawings(*model)[name]
    own = Figure()
    ax = own.subplots()
    assert draw(ax=ax) is own
    assert ax.has_data()
    assert isinstance(draw(), Figure)
    assert draw() is not own


def test_a_notebook_shows_the_figure_by_itself(model):
    logits, labels = model
    picture = plot.draw_confidence(logits=logits, labels=labels)._repr_png_()
    assert picture.startswith(b"\x89PNG")


def test_a_notebook_shows_data_as_its_picture(model):
    logits, labels = model
    for compute in (plot.diagram, plot.risk_coverage, plot.confidence_counts):
        assert "data:image/png;base64," in compute(logits=logits, labels=labels)._repr_html_()


def test_saved_as_png_and_svg_and_the_same_twice(model, tmp_path):
    logits, labels = model
    one = plot.save(plot.draw_reliability(logits=logits, labels=labels), tmp_path / "one")
    two = plot.save(plot.draw_reliability(logits=logits, labels=labels), tmp_path / "two")
    assert [p.suffix for p in one] == [".png", ".svg"]
    assert one[0].read_bytes().startswith(b"\x89PNG")
    assert one[1].read_bytes() == two[1].read_bytes()


def test_before_and_after_share_their_axes(model):
    logits, labels = model
    data = {name: plot.diagram(logits=z, labels=labels) for name, z in {"before": logits, "after": logits / 2}.items()}
    figure = plot.draw_before_after(data)
    assert [ax.get_title() for ax in figure.axes[:2]] == ["before", "after"]
    assert f"ECE {100 * data['after'].error:.2f} %" in texts(figure)


def test_every_public_name_exists():
    assert all(hasattr(plot, name) for name in plot.__all__)
