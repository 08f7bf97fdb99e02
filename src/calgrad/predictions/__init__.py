"""Predictions: the waist between whatever made the logits and whatever measures or repairs them.

`Predictions` holds logits, labels, ids, the split's name and provenance, checked once. It is saved as `.npz` or
`.safetensors`, and read from those and from `.csv` and `.parquet`; no reader ever runs code from a file. `stream` reads
a file in pieces, for files larger than memory. `flatten_classes` makes rows of pixels, tokens and boxes.
docs/predictions.md describes the formats.
"""

from __future__ import annotations

from calgrad.predictions.core import Predictions
from calgrad.predictions.dense import flatten_classes, map_rows
from calgrad.predictions.files import READS, WRITES, PredictionFile, open_file, stream

__all__ = ["READS", "WRITES", "PredictionFile", "Predictions", "flatten_classes", "map_rows", "open_file", "stream"]
