"""One evaluation of many files, larger than memory, by one process or several.

Each file is read in pieces and becomes its `StreamSums`; these are added up in the order of the files. So the numbers
do not depend on how many processes read, not even in their last bit, and each process needs the memory of one piece.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from calgrad.checks import FileError, InputError, positive_int
from calgrad.metrics.evaluation import Evaluation
from calgrad.metrics.stream import StreamSums, sums_of_stream
from calgrad.metrics.summary import evaluation_of_sums
from calgrad.predictions import PredictionFile, open_file

PIECE = 1 << 22
"""Numbers of a piece: 32 MiB in float64. With all that is computed from it, a process takes about ten times that."""


def evaluate_shards(
    paths: Iterable[str | Path],
    *,
    jobs: int = 1,
    bins: int = 15,
    bootstrap: int = 1000,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Evaluation:
    """Evaluate many files of predictions as one set of samples, in memory that does not grow with them.

    Args:
        paths: The files, in any format that is read; all of the same classes.
        jobs: Processes that read. The numbers are the same, bit for bit, with any number of them.
        bins: As in `evaluate`.
        bootstrap: As in `evaluate`.
        seed: As in `evaluate`.
        advance: Called with the number of samples of each file that is done.

    Example:
        >>> from calgrad.metrics import evaluate_shards
        >>> result = evaluate_shards(sorted(Path("shards").glob("*.parquet")), jobs=8)  # doctest: +SKIP
    """
    positive_int("jobs", jobs)
    positive_int("bins", bins)
    sources = _opened(paths)
    total: StreamSums | None = None
    for sums in _each([(source.path, bins) for source in sources], jobs):
        total = sums if total is None else total + sums
        if advance is not None:
            advance(sums.tally.n)
    assert total is not None
    return evaluation_of_sums(total, bootstrap=bootstrap, seed=seed)


def rows_of_piece(classes: int) -> int:
    """How many rows of so many classes a piece has: at least one, and 65,536 at most."""
    return max(1, min(1 << 16, PIECE // max(classes, 1)))


def _opened(paths: Iterable[str | Path]) -> list[PredictionFile]:
    """Look at every header first: a wrong file among a thousand should not show after an hour."""
    sources = [open_file(path) for path in paths]
    if not sources:
        raise InputError("there was nothing to evaluate: no file was given")
    first = sources[0]
    for source in sources[1:]:
        if source.classes != first.classes:
            raise FileError(f"{source.path} has {source.classes} classes, but {first.path} has {first.classes}")
        ours, theirs = (s.meta.get("class_names") for s in (first, source))
        if ours and theirs and ours != theirs:
            raise FileError(f"{source.path} names its classes otherwise, or in another order, than {first.path}")
    return sources


def _each(work: Sequence[tuple[Path, int]], jobs: int) -> Iterator[StreamSums]:
    if jobs == 1 or len(work) == 1:
        yield from map(_sums, work)
        return
    # Fresh processes: a fork of one whose libraries have threads may hang. One thread each, so that jobs share cores.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(jobs, len(work)), mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        try:
            yield from pool.map(_sums, work)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _sums(work: tuple[Any, int]) -> StreamSums:
    path, bins = work
    source = open_file(path)
    return sums_of_stream(source.chunks(rows_of_piece(source.classes)), bins=bins)
