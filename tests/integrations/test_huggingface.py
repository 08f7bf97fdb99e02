"""The real Trainer with tiny, randomly initialised models: images, text, and tokens of a language model."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

import calgrad
from calgrad.checks import InputError

try:
    pytest.importorskip("accelerate")
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        BertForTokenClassification,
        EvalPrediction,
        LlamaConfig,
        LlamaForCausalLM,
        Trainer,
        TrainingArguments,
        ViTConfig,
        ViTForImageClassification,
    )

    from calgrad.integrations.huggingface import CalibrationMetrics, CalibratorCallback, loss_function
except (ImportError, RuntimeError) as error:
    pytest.skip(f"transformers' Trainer does not import here: {error}", allow_module_level=True)

from calgrad.integrations.tracking import CSVSink
from calgrad.losses import LOSSES, make_loss
from calgrad.posthoc import load_calibrator

WORDS, LENGTH = 20, 8


def arguments(folder, **options) -> TrainingArguments:
    common = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 64, "num_train_epochs": 1, "seed": 0}
    common |= {"report_to": "none", "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "logging_steps": 1000}
    return TrainingArguments(output_dir=str(folder), **{**common, **options})


def small(kind, config, **options):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return kind(config(**sizes, **options)).eval()


def bert(kind=BertForSequenceClassification, classes: int = 3):
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # so that two runs can be compared
    return small(kind, BertConfig, vocab_size=WORDS, num_labels=classes, max_position_embeddings=LENGTH, **no_dropout)


def llama():
    return small(LlamaForCausalLM, LlamaConfig, vocab_size=WORDS, max_position_embeddings=LENGTH)


def texts(n: int, classes: int = 3) -> list[dict]:
    """The first word decides the label; a quarter of the labels is drawn blindly."""
    words = torch.randint(WORDS, (n, LENGTH))
    labels = torch.where(torch.rand(n) < 0.25, torch.randint(classes, (n,)), words[:, 0] % classes)
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels)]


def sentences(n: int) -> list[dict]:
    """Texts for a language model, padded to very different lengths with ignored labels."""
    words = torch.randint(WORDS, (n, LENGTH))
    labels = words.clone()
    for row in range(n):
        labels[row, 2 + row % (LENGTH - 2) :] = -100
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels)]


def tagged(n: int) -> list[dict]:
    return [{**text, "labels": torch.where(text["labels"] < 0, -100, text["labels"] % 3)} for text in sentences(n)]


def weights_after_one_step(model, data, folder, *, batch: int, loss=None) -> dict[str, torch.Tensor]:
    options = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": 16 // batch, "max_steps": 1}
    args = arguments(folder, **options, optim="sgd", learning_rate=1.0, max_grad_norm=0, lr_scheduler_type="constant")
    Trainer(model, args, train_dataset=data, compute_loss_func=loss).train()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(a, b, *, atol: float = 1e-5) -> bool:
    return all(torch.allclose(a[name], b[name], atol=atol) for name in a)


# ----------------------------------------------------------------------------------------------------------------- loss


@pytest.mark.parametrize(
    ("make", "data", "shift", "name"),
    [
        (bert, texts, False, "bsce-gra"),
        (lambda: bert(BertForTokenClassification), tagged, False, "focal"),
        (llama, sentences, True, "bsce-gra"),
    ],
    ids=["text", "tags", "causal"],
)
def test_accumulated_batches_have_the_gradient_of_the_whole(tmp_path, make, data, shift, name):
    items, options = data(16), {"label_smoothing": 0.1, "shift": shift}
    whole = weights_after_one_step(make(), items, tmp_path, batch=16, loss=loss_function(name, **options))
    parts = weights_after_one_step(make(), items, tmp_path, batch=4, loss=loss_function(name, **options))
    start = {k: v.detach().clone() for k, v in make().state_dict().items()}
    assert same(whole, parts)
    assert not same(whole, start, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "data", "shift"),
    [(bert, texts, False), (lambda: bert(BertForTokenClassification), tagged, False), (llama, sentences, True)],
    ids=["text", "tags", "causal"],
)
def test_cross_entropy_is_the_models_own_loss(tmp_path, make, data, shift):
    items = data(16)
    batch = {name: torch.stack([item[name] for item in items]) for name in items[0]}
    with torch.no_grad():
        outputs = make()(**batch)
        value = loss_function("ce", shift=shift)(outputs, batch["labels"])
    assert value.item() == pytest.approx(outputs.loss.item(), rel=1e-5)
    if shift:  # and so is a step of it, where the Trainer counts the items
        ours = weights_after_one_step(make(), items, tmp_path, batch=4, loss=loss_function("ce", shift=True))
        assert same(ours, weights_after_one_step(make(), items, tmp_path, batch=4))


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"consistency-gra"}))
def test_every_loss_divides_its_sum_by_the_items(name):
    logits, labels = torch.randn(4, 6, 5), torch.randint(5, (4, 6))
    labels[0, 2:] = -100
    rows, kept = logits.reshape(-1, 5), labels.reshape(-1)
    expected = make_loss(name, reduction="sum")(rows, kept).item()
    assert loss_function(name)({"logits": logits}, labels, num_items_in_batch=40).item() == pytest.approx(expected / 40)
    assert loss_function(name)((logits,), labels, torch.tensor(40)).item() == pytest.approx(expected / 40)
    assert loss_function(name)({"logits": logits}, labels).item() == pytest.approx(expected / 20)


def test_what_would_go_wrong_is_refused():
    with pytest.raises(InputError, match="shift=True"):
        loss_function("ce")(llama()(torch.zeros(1, 3, dtype=torch.int64)), torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(InputError, match="features"):
        loss_function("consistency-gra")
    with pytest.raises(InputError, match="`ignore_index` is the Trainer's"):
        loss_function("ce", ignore_index=0)
    with pytest.raises(InputError, match=r"logits \(N, T, K\)"):
        loss_function("ce", shift=True)({"logits": torch.zeros(2, 3)}, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match="unknown calibrator"):
        CalibratorCallback(CalibrationMetrics(), "temprature")
    with pytest.raises(InputError, match="all labels were -100"):
        CalibrationMetrics()(EvalPrediction(np.zeros((3, 2), np.float32), np.full(3, -100)))


# -------------------------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("batchwise", [False, True])
def test_token_metrics_of_a_language_model_leave_out_ignored_labels(tmp_path, batchwise):
    items, model = sentences(70), llama()
    metrics = CalibrationMetrics(shift=True)
    args = arguments(tmp_path, batch_eval_metrics=batchwise, per_device_eval_batch_size=16)
    loss = loss_function("ce", shift=True)
    found = Trainer(model, args, eval_dataset=items, compute_metrics=metrics, compute_loss_func=loss).evaluate()
    with torch.no_grad():
        logits = model(torch.stack([item["input_ids"] for item in items])).logits[:, :-1]
    labels = torch.stack([item["labels"] for item in items])[:, 1:]
    rows, kept = logits[labels != -100], labels[labels != -100]
    expected = calgrad.evaluate(logits=rows, labels=kept)
    for name in ("accuracy", "nll", "brier", "ece", "classwise_ece"):
        assert found[f"eval_{name}"] == pytest.approx(getattr(expected, name), abs=1e-6), name
    assert found["eval_ece_floor"] == pytest.approx(expected.floor.mean, rel=1e-3)


def test_images(tmp_path):
    """A ViT: pixels in, (N, K) out; training with the paper's loss lowers it, and metrics are those of the logits."""
    labels = torch.randint(2, (96,))
    images = torch.randn(96, 1, 8, 8) + 2 * (2 * labels - 1)[:, None, None, None]
    data = [{"pixel_values": x, "labels": y} for x, y in zip(images, labels)]
    model = small(ViTForImageClassification, ViTConfig, image_size=8, patch_size=4, num_channels=1, num_labels=2)
    metrics = CalibrationMetrics()
    trainer = Trainer(
        model,
        arguments(tmp_path, num_train_epochs=6, learning_rate=5e-3),
        train_dataset=data[:64],
        eval_dataset=data[64:],
        compute_loss_func=loss_function("bsce-gra", gamma=2),
        compute_metrics=metrics,
    )
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_accuracy"] > 0.9
    output = trainer.predict(data[64:])
    assert after["eval_nll"] == pytest.approx(calgrad.nll(logits=output.predictions, labels=output.label_ids), abs=1e-6)


# ------------------------------------------------------------------------------------------------------------- callback


def test_text_with_a_calibrator_that_is_fitted_and_saved(tmp_path):
    data = texts(640)
    metrics = CalibrationMetrics()
    sink = CSVSink(tmp_path / "track")
    callback = CalibratorCallback(metrics, sink=sink)
    trainer = Trainer(
        bert(),
        arguments(tmp_path, num_train_epochs=2, learning_rate=5e-3, eval_strategy="epoch"),
        train_dataset=data[:240],
        eval_dataset=data[240:],
        compute_loss_func=loss_function("focal", gamma=5),
        compute_metrics=metrics,
        callbacks=[callback],
    )
    trainer.train()
    found = trainer.evaluate()
    sink.close()
    assert callback.file == tmp_path / "calibrator.json"
    logits = trainer.predict(data[240:]).predictions
    labels = torch.stack([item["labels"] for item in data[240:]])
    saved = load_calibrator(callback.file)
    expected = calgrad.make_calibrator("temperature").fit(logits, labels)
    assert saved.parameters["temperature"].item() == pytest.approx(expected.parameters["temperature"].item(), rel=1e-6)
    assert found["eval_nll_calibrated"] < found["eval_nll"]  # a focal loss of gamma 5 is under-confident
    assert found["eval_ece_calibrated"] < found["eval_ece"]
    with (tmp_path / "track" / "metrics.csv").open() as file:
        logged = {(int(r["step"]), r["name"]): float(r["value"]) for r in csv.DictReader(file)}
    assert {step for step, _ in logged} == {15, 30}
    assert logged[30, "calibration/ece_calibrated"] == found["eval_ece_calibrated"]
    assert (tmp_path / "track" / "calibration" / "reliability-30.png").exists()

    stamp = callback.file.read_bytes()
    assert trainer.predict(data[:100]).metrics["test_accuracy"] > 0.5  # measured with the same metrics, not fitted on
    assert callback.file.read_bytes() == stamp


@pytest.mark.filterwarnings(
    "ignore::calgrad.posthoc.CalibrationWarning"
)  # an untrained net ranks no better than chance
def test_a_calibrator_of_tokens_batch_by_batch(tmp_path):
    items, model = sentences(64), llama()
    metrics = CalibrationMetrics(shift=True)
    callback = CalibratorCallback(metrics, path=tmp_path / "tokens.json", elements=100 * WORDS)
    args = arguments(tmp_path, batch_eval_metrics=True, per_device_eval_batch_size=16)
    Trainer(model, args, eval_dataset=items, compute_metrics=metrics, callbacks=[callback]).evaluate()
    assert callback.repair is not None
    assert len(callback.repair.labels) == 100  # a sample: there were more
    assert int(callback.repair.labels.min()) >= 0
    assert load_calibrator(tmp_path / "tokens.json").classes == WORDS


def test_a_loss_that_learns_from_validation_is_fed(tmp_path):
    data, metrics, loss = texts(64), CalibrationMetrics(), loss_function("adafocal")
    trainer = Trainer(
        bert(),
        arguments(tmp_path),
        eval_dataset=data,
        compute_loss_func=loss,
        compute_metrics=metrics,
        callbacks=[CalibratorCallback(metrics, loss=loss)],
    )
    before = loss.loss.uncertainty.gammas.clone()
    trainer.evaluate()
    logits, labels = metrics.kept.rows()
    expected = make_loss("adafocal")
    expected.update(logits, labels)
    assert not torch.equal(loss.loss.uncertainty.gammas, before)
    assert torch.equal(loss.loss.uncertainty.gammas, expected.uncertainty.gammas)
    with pytest.raises(InputError, match="no `update`"):
        CalibratorCallback(metrics, loss=loss_function("ce"))
