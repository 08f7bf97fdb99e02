"""An existing checkpoint: are its probabilities right, which repair is best, and is the gain real?

Nothing is trained again. Give it the logits of your model, validation and test, as .npz, .csv, .parquet or .safetensors
(docs/predictions.md); without arguments it takes the two files that are shipped with calgrad.

    python examples/existing_checkpoint.py [VAL TEST]
"""

from __future__ import annotations

import sys
from importlib.resources import files

import calgrad

METHODS = ["identity", "temperature", "ensemble-temperature", "vector", "svs", "sms"]


def main(val_file: str, test_file: str) -> calgrad.Predictions:
    val, test = calgrad.Predictions.load(val_file), calgrad.Predictions.load(test_file)
    before = calgrad.evaluate(test)
    print(before, "\n")

    # Choose on one half of validation what the other half was fitted with: the test set is looked at once, at the end.
    fit, choose = val.select(slice(0, None, 2)), val.select(slice(1, None, 2))
    scores = {}
    for method in METHODS:
        calibrator = calgrad.make_calibrator(method).fit(fit.logits, fit.labels)
        scores[method] = calgrad.nll(calibrator(choose.logits), choose.labels)
        print(f"{method:22s} validation NLL {scores[method]:.4f}")
    best = min(scores, key=scores.__getitem__)

    repair = calgrad.make_calibrator(best).fit(val.logits, val.labels)
    repaired = test.with_logits(repair.log_probs(test.logits), repaired_by=best)
    after = calgrad.evaluate(repaired)
    print(f"\nchosen: {best}. {after.verdict}\n")
    print(calgrad.compare_models(test, repaired))
    repair.save("calibrator.json")
    print("\nwrote calibrator.json")
    return repaired


if __name__ == "__main__":
    shipped = files("calgrad") / "examples"
    given = sys.argv[1:] or [str(shipped / "example-val.npz"), str(shipped / "example-test.npz")]
    main(*given)
