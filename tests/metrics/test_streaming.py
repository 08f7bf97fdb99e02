"""The torchmetrics modules: equal to the functions however the samples are split or spread over processes."""

from __future__ import annotations

import socket

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from calgrad.checks import InputError
from calgrad.metrics import sketch
from calgrad.metrics.binning import bin_sums, error_of_sums, top_label
from calgrad.metrics.calibration import adaptive_ece, classwise_ece, ece
from calgrad.metrics.curve import reliability
from calgrad.metrics.proper import accuracy, brier, nll
from calgrad.metrics.streaming import (
    Accuracy,
    AdaptiveCalibrationError,
    BrierScore,
    CalibrationError,
    ClasswiseCalibrationError,
    NegativeLogLikelihood,
    ReliabilityDiagram,
)

K = 7


def modules(inputs="logits", classes=K, **options):
    return {
        "accuracy": Accuracy(inputs=inputs, **options),
        "nll": NegativeLogLikelihood(inputs=inputs, **options),
        "brier": BrierScore(inputs=inputs, **options),
        "ece": CalibrationError(inputs=inputs, **options),
        "l2": CalibrationError(inputs=inputs, norm="l2", bins=10, **options),
        "max": CalibrationError(inputs=inputs, norm="max", **options),
        "left": CalibrationError(inputs=inputs, binning="left", **options),
        "classwise": ClasswiseCalibrationError(classes, inputs=inputs, **options),
        "prevalence": ClasswiseCalibrationError(classes, inputs=inputs, average="prevalence", bins=4, **options),
    }


def functions(labels, **values):
    return {
        "accuracy": accuracy(labels=labels, **values),
        "nll": nll(labels=labels, **values),
        "brier": brier(labels=labels, **values),
        "ece": ece(labels=labels, **values),
        "l2": ece(labels=labels, norm="l2", bins=10, **values),
        "max": ece(labels=labels, norm="max", **values),
        "left": ece(labels=labels, binning="left", **values),
        "classwise": classwise_ece(labels=labels, **values),
        "prevalence": classwise_ece(labels=labels, average="prevalence", bins=4, **values),
    }


def sample(n, *, classes=K, scale=3.0, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=dtype)
    labels = torch.where(torch.rand(n, generator=generator) < 0.6, logits.argmax(1), torch.arange(n) % classes)
    return logits, labels


def fed(metric, values, labels, sizes):
    for part, own in zip(values.split(sizes), labels.split(sizes)):
        metric.update(part, own)
    return metric


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    inputs=st.sampled_from(["logits", "probs"]),
    scale=st.sampled_from([0.0, 1.0, 20.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_equal_to_the_functions_however_the_samples_are_split(sizes, inputs, scale, seed):
    logits, labels = sample(sum(sizes), scale=scale, seed=seed)
    values = logits if inputs == "logits" else logits.softmax(1)
    collection = fed(MetricCollection(modules(inputs)), values, labels, sizes)
    expected = functions(labels, **{inputs: values})
    for name, found in collection.compute().items():
        assert found.dtype == torch.float64
        assert float(found) == pytest.approx(expected[name], rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("name", ["accuracy", "nll", "ece", "l2", "max", "left", "classwise", "prevalence", "brier"])
def test_equal_on_float32_too(name):
    logits, labels = sample(3000, dtype=torch.float32, scale=8)
    metric = fed(modules()[name], logits, labels, [1, 999, 1500, 500])
    # A row's Brier score is a float32 product whose rounding depends on the batch; the rest is the same row by row.
    assert float(metric.compute()) == pytest.approx(
        functions(labels, logits=logits)[name], abs=1e-8 if name == "brier" else 1e-12
    )


def test_the_golden_logits(golden):
    logits, labels = torch.tensor(golden["test_logits"]), torch.tensor(golden["test_labels"])
    error = fed(CalibrationError(inputs="logits"), logits, labels, 128)
    assert round(100 * float(error.compute()), 3) == 4.354
    error.reset()
    assert round(100 * float(fed(error, logits / 2.5, labels, 77).compute()), 3) == 1.354
    adaptive = fed(AdaptiveCalibrationError(inputs="logits"), logits, labels, 128)
    assert abs(float(adaptive.compute()) - adaptive_ece(logits=logits, labels=labels)) <= adaptive.error_bound() + 1e-12
    assert adaptive.error_bound() < 1e-4


def test_against_torchmetrics():
    logits, labels = sample(2000, scale=1.0)
    probs = logits.softmax(1)
    theirs = MulticlassCalibrationError(K, n_bins=15)(probs, labels)
    assert float(CalibrationError(inputs="probs", binning="left")(probs, labels)) == pytest.approx(
        float(theirs), abs=1e-6
    )
    theirs = MulticlassAccuracy(K, average="micro")(logits, labels)
    assert float(Accuracy(inputs="logits")(logits, labels)) == pytest.approx(float(theirs), abs=1e-6)


def test_a_reliability_diagram_holds_what_the_bins_hold():
    logits, labels = sample(500)
    diagram = fed(ReliabilityDiagram(inputs="logits", bins=10), logits, labels, 64)
    found = diagram.compute()
    sums = bin_sums(*top_label(logits.softmax(1), labels), bins=10)
    assert found["count"].tolist() == sums.count.tolist()
    assert found["edges"].tolist() == pytest.approx([i / 10 for i in range(11)])
    torch.testing.assert_close(found["confidence"], sums.confidence / sums.count, equal_nan=True, rtol=1e-12, atol=0)
    torch.testing.assert_close(found["accuracy"], sums.correct / sums.count, equal_nan=True, rtol=1e-12, atol=0)
    curve, expected = diagram.curve(), reliability(logits=logits, labels=labels, bins=10)
    for name in ("edges", "count", "confidence", "accuracy", "low", "high"):
        np.testing.assert_allclose(getattr(curve, name), getattr(expected, name), rtol=1e-12)
    assert error_of_sums(diagram.sums()) == pytest.approx(ece(logits=logits, labels=labels, bins=10), abs=1e-12)


def test_forward_gives_the_batch_and_keeps_the_total():
    logits, labels = sample(100)
    for name, metric in modules().items():
        first = metric(logits[:30], labels[:30])
        assert float(first) == pytest.approx(functions(labels[:30], logits=logits[:30])[name], abs=1e-12), name
        metric(logits[30:], labels[30:])
        assert float(metric.compute()) == pytest.approx(functions(labels, logits=logits)[name], abs=1e-12), name


def test_segmentation_shapes_and_ignored_labels():
    logits, labels = sample(2 * 5 * 3)
    keep = torch.arange(30) % 4 != 0
    marked = torch.where(keep, labels, -100)
    noisy = logits.clone()
    noisy[~keep] = float("nan")  # what is ignored may hold anything
    picture = noisy.reshape(2, 5, 3, K).permute(0, 3, 1, 2)
    expected = functions(labels[keep], logits=logits[keep])
    for name, metric in modules(ignore_index=-100).items():
        metric.update(picture, marked.reshape(2, 5, 3))
        assert float(metric.compute()) == pytest.approx(expected[name], abs=1e-12), name
    one = Accuracy(inputs="logits")
    one.update(logits[0], labels[0])
    assert int(one.n) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_value_is_counted_in_update_and_raised_in_compute(bad):
    logits, labels = sample(20)
    logits[3, 2] = bad
    for metric in [*modules().values(), AdaptiveCalibrationError(inputs="logits")]:
        metric.update(logits, labels)
        with pytest.raises(InputError, match="NaN or infinite in 1 of 20 samples"):
            metric.compute()
        metric.reset()
        metric.update(logits[4:], labels[4:])
        assert torch.isfinite(metric.compute())


@pytest.mark.parametrize("label", [-1, K, 10**6])
def test_a_label_out_of_range_is_raised_in_compute(label):
    logits, labels = sample(20)
    labels[5] = label
    for metric in [*modules().values(), AdaptiveCalibrationError(inputs="logits")]:
        metric.update(logits, labels)
        with pytest.raises(InputError, match="out of range in 1 of 20 samples"):
            metric.compute()


def test_logits_passed_as_probs_are_found_out():
    logits, labels = sample(20)
    metric = CalibrationError(inputs="probs")
    metric.update(logits, labels)
    with pytest.raises(InputError, match="no probability distribution"):
        metric.compute()


def test_wrong_arguments():
    indices = torch.zeros(3, dtype=torch.long)
    with pytest.raises(TypeError, match="inputs"):
        CalibrationError()
    for wrong in (
        lambda: Accuracy(inputs="auto"),
        lambda: CalibrationError(inputs="logits", bins=0),
        lambda: CalibrationError(inputs="logits", norm="l3"),
        lambda: CalibrationError(inputs="logits", binning="adaptive"),
        lambda: AdaptiveCalibrationError(inputs="logits", resolution=40),
        lambda: ClasswiseCalibrationError(0, inputs="logits"),
        lambda: Accuracy(inputs="logits").update(torch.zeros(3, 4), torch.zeros(2, dtype=torch.long)),
        lambda: Accuracy(inputs="logits").update(torch.zeros(3, 4), torch.zeros(3)),
        lambda: Accuracy(inputs="logits").update(torch.zeros(3, 4), torch.zeros(3, 4)),
        lambda: ClasswiseCalibrationError(5, inputs="logits").update(torch.zeros(3, 4), indices),
    ):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="no samples yet"), pytest.warns(UserWarning, match="before"):
        Accuracy(inputs="logits").compute()


def test_the_state_does_not_grow_and_fits_the_promise():
    metric = ClasswiseCalibrationError(K, inputs="logits")
    sizes = []
    for seed in range(3):
        metric.update(*sample(1000, seed=seed))
        sizes.append(sum(state.numel() for state in metric.metric_state.values()))
    assert sizes == [2 * K * 15 + 3] * 3


def test_casting_the_model_around_it_keeps_the_sums_wide():
    logits, labels = sample(50)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.metric = CalibrationError(inputs="logits")

    net = Net()
    net.metric.update(logits, labels)
    for cast in (net.half, net.bfloat16, lambda: net.to(torch.bfloat16), net.double, lambda: net.to("cpu")):
        cast()
        assert net.metric.confidence.dtype == torch.float64
        assert net.metric.count.dtype == torch.int64
    net.metric.set_dtype(torch.float16)
    assert float(net.metric.compute()) == pytest.approx(ece(logits=logits, labels=labels), abs=1e-12)
    assert net.metric.reset() is None
    assert net.metric.confidence.dtype == torch.float64


def test_where_there_is_no_float64_the_sums_stay_on_the_cpu():
    class OnMps:
        device = torch.device("mps")

    metric = CalibrationError(inputs="logits")
    metric._apply(lambda tensor: OnMps())
    assert metric.confidence.device.type == metric.device.type == "cpu"
    assert metric.confidence.dtype == torch.float64


def test_half_precision_logits_are_computed_in_float32():
    logits, labels = sample(200, dtype=torch.float32)
    metric = NegativeLogLikelihood(inputs="logits")
    metric.update(logits.bfloat16(), labels)
    assert float(metric.compute()) == pytest.approx(nll(logits=logits.bfloat16().float(), labels=labels), abs=1e-9)


def test_counts_are_exact_where_float32_stops_counting():
    metric = CalibrationError(inputs="probs")
    metric.update(torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
    metric.count, metric.correct = metric.count * 2**24, metric.correct * 2**24
    metric.confidence, metric.n = metric.confidence * 2**24, metric.n * 2**24
    for _ in range(3):
        metric.update(torch.tensor([[0.75, 0.25]]), torch.tensor([1]))
    assert int(metric.n) == int(metric.count.sum()) == 2**24 + 3
    assert float(metric.compute()) == pytest.approx(2**24 / (2**24 + 3) - 0.75, abs=1e-15)


def test_state_dict_round_trip():
    logits, labels = sample(60)
    first, second = CalibrationError(inputs="logits"), CalibrationError(inputs="logits")
    first.persistent(True)
    second.persistent(True)
    first.update(logits[:40], labels[:40])
    second.load_state_dict(first.state_dict())
    second.update(logits[40:], labels[40:])
    assert float(second.compute()) == pytest.approx(ece(logits=logits, labels=labels), abs=1e-12)


@pytest.mark.gpu
def test_a_gpu_is_never_waited_for_and_counts_the_same():
    logits, labels = sample(5000)
    metrics = {**modules(ignore_index=-100), "adaptive": AdaptiveCalibrationError(inputs="logits", ignore_index=-100)}
    for name, metric in metrics.items():
        metric.to("cuda")
        parts = [(a.cuda(), b.cuda()) for a, b in zip(logits.split(999), labels.split(999))]
        metric.update(*parts[0])
        torch.cuda.set_sync_debug_mode("error")
        try:
            for part in parts[1:]:
                metric.update(*part)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        expected = functions(labels, logits=logits) | {"adaptive": adaptive_ece(logits=logits, labels=labels)}
        off = metric.error_bound() if name == "adaptive" else 0
        assert float(metric.compute()) == pytest.approx(expected[name], abs=1e-9 + off), name


# -------------------------------------------------------------------------------------------------------- the sketch


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(1, 80),
    bins=st.integers(1, 20),
    resolution=st.sampled_from([1, 3, 10]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    power=st.integers(0, 9),
    seed=st.integers(0, 10**6),
)
def test_the_sketch_stays_within_its_bound(n, bins, resolution, dtype, power, seed):
    generator = torch.Generator().manual_seed(seed)
    if power == 0:  # a few values next to 1, many of them equal
        rival = torch.randint(0, 6, (n,), generator=generator, dtype=dtype) * 2**-24
    else:
        rival = torch.rand(n, generator=generator, dtype=dtype) ** power / 2
    probs = torch.stack([1 - rival, rival], dim=1)
    labels = (torch.rand(n, generator=generator) < torch.rand((), generator=generator)).long()
    metric = AdaptiveCalibrationError(inputs="probs", bins=bins, resolution=resolution)
    fed(metric, probs, labels, 16)
    exact = adaptive_ece(probs, labels, bins=bins)
    assert abs(float(metric.compute()) - exact) <= metric.error_bound() + 1e-12


def test_the_bound_is_zero_for_an_over_confident_net():
    logits, _ = sample(20_000)
    labels = torch.arange(20_000) % K  # right by chance only
    metric = AdaptiveCalibrationError(inputs="logits")
    metric.update(logits, labels)
    assert metric.error_bound() == 0
    assert float(metric.compute()) == pytest.approx(adaptive_ece(logits=logits, labels=labels), abs=1e-12)


def test_the_bound_is_small_and_shrinks_with_resolution():
    generator = torch.Generator().manual_seed(1)  # calibrated: gaps of either sign, the hard case
    logits = 2 * torch.randn(100_000, K, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    bounds = []
    for resolution in (4, 7, 10, 13):
        metric = AdaptiveCalibrationError(inputs="logits", resolution=resolution)
        metric.update(logits, labels)
        bounds.append(metric.error_bound())
        assert abs(float(metric.compute()) - adaptive_ece(logits=logits, labels=labels)) <= bounds[-1] + 1e-12
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[2] < 0.005 < bounds[0]


@pytest.mark.parametrize("resolution", [1, 6, 10])
def test_cells_cover_the_unit_interval_in_order(resolution):
    confidence = torch.cat([torch.rand(500, dtype=torch.float64), 1 - torch.rand(500, dtype=torch.float64) ** 20])
    confidence = torch.cat([confidence, torch.tensor([0.0, 1.0, 1 - 2**-53, 0.5])]).sort().values
    index = sketch.cell_index(confidence, resolution)
    assert (index.diff() >= 0).all()
    assert (int(index[0]), int(index[-1])) == (0, sketch.cells(resolution) - 1)
    nearest, farthest = sketch.distances(resolution)
    assert ((nearest[index] <= 1 - confidence) & (1 - confidence <= farthest[index])).all()
    odd = sketch.cell_index(torch.tensor([float("nan"), -1.0, 2.0]), resolution)
    assert ((odd >= 0) & (odd < sketch.cells(resolution))).all()


# -------------------------------------------------------------------------------------------------- several processes


def _worker(rank: int, port: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    logits, labels = sample(300)
    mine = slice(0, 190) if rank == 0 else slice(190, 300)
    collection = MetricCollection({**modules(), "adaptive": AdaptiveCalibrationError(inputs="logits")})
    fed(collection, logits[mine], labels[mine], 32)
    torch.save({name: float(value) for name, value in collection.compute().items()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_worker, args=(port, str(tmp_path)), nprocs=2)
    logits, labels = sample(300)
    expected = functions(labels, logits=logits)
    alone = AdaptiveCalibrationError(inputs="logits")
    alone.update(logits, labels)
    expected["adaptive"] = float(alone.compute())
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found == pytest.approx(expected, abs=1e-12)
