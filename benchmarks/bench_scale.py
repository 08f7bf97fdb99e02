"""Evaluation in constant memory: many shards, several processes, the same numbers; by default 20 x 1,000,000 x 10.

    python benchmarks/bench_scale.py --record
    python benchmarks/bench_scale.py --shards 100          # 100 million rows x 10 classes, 4.5 GiB of files

Promises: the peak memory at all shards is within 64 MiB of the peak at two, and below 1 GiB a process; every number is
the same, bit for bit, with any number of processes. Memory that does not grow from 2 to 20 million rows does not grow to
100 million either: the state is 2 MB, and a piece is 65,536 rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from common import Report, arguments, logits_and_labels

from calgrad import Predictions

WORK = """
import json, resource, sys
import torch
torch.set_num_threads(1)
from calgrad.metrics import evaluate_shards
found = evaluate_shards(sys.argv[2:], jobs=int(sys.argv[1]))
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({"peak_mib": peak / 1024, "found": found.to_json()}))
"""


def measured(paths: list[Path], jobs: int) -> tuple[float, float, str]:
    """Seconds, the largest process's peak in MiB, and the evaluation; in a process of its own."""
    started = time.perf_counter()
    command = [sys.executable, "-c", WORK, str(jobs), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return time.perf_counter() - started, answer["peak_mib"], answer["found"]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shards", type=int, default=20, help="of a million rows each")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a shard")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report = Report("scale")
    with tempfile.TemporaryDirectory() as folder:
        written = []
        for i in range(
            min(options.shards, 4)
        ):  # a few different ones, read again and again: disks are smaller than data
            path = Path(folder) / f"shard-{i}.npz"
            logits, labels = logits_and_labels(options.rows, options.classes, seed=i)
            Predictions(logits, labels).save(path)
            written.append(path)
        paths = [written[i % len(written)] for i in range(options.shards)]
        case = f"{options.shards}x{options.rows}x{options.classes}"
        _, few, _ = measured(paths[:2], 1)
        seconds, many, alone = measured(paths, 1)
        parallel, worker, together = measured(paths, options.jobs)
    report.add(f"2x{options.rows}x{options.classes}", "peak memory, 1 process", few, "MiB")
    report.add(case, "peak memory, 1 process", many, "MiB")
    report.add(case, f"largest process of {options.jobs}", worker, "MiB")
    report.add(case, "1 process", seconds)
    report.add(case, f"{options.jobs} processes", parallel)
    report.promise("memory does not grow with the number of rows", many - few < 64)
    report.promise("below 1 GiB a process", max(many, worker) < 1024)
    report.promise("the same bits with any number of processes", alone == together)
    report.finish(options.record)


if __name__ == "__main__":
    main()
