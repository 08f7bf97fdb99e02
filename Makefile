# The commands of daily work. `make` alone lists them.
.PHONY: help check lint types test bench bench-gpu docs clean

help:            ## list these commands
	@grep -E '^[a-z-]+: +##|^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

check: lint types test  ## all that CI runs

lint:            ## style
	ruff check .
	ruff format --check .

types:           ## static types
	mypy

test:            ## the test suite on all cores
	pytest -n auto

bench:           ## every benchmark of the CPU; appends to benchmarks/results.csv
	for script in benchmarks/bench_*.py; do python $$script || exit 1; done

bench-gpu:       ## the training step on a CUDA device
	PYTHONPATH=src python3 benchmarks/gpu_step.py --record

docs:            ## the documentation site, strictly
	mkdocs build --strict

clean:           ## remove what was built
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
