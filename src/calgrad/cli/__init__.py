"""The command line. `main` is the entry point; app.py lists the commands, and each lives in a file of its own."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code."""
    from calgrad.cli.app import run

    sys.exit(run(sys.argv[1:]))
