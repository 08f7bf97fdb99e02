"""Ctrl-C and SIGTERM during training: finish the step, write a checkpoint, leave.

The handler only takes a note; the loop looks at it between steps. A second signal is not waited for: the handlers
from before are back in place by then.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

WATCHED = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, wrote a checkpoint and did; the same call goes on from there.

    It is a `KeyboardInterrupt`, so that a program that trains many models stops too and does not take it for a failure.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program ended by this signal: 130 or 143."""
        return 128 + self.number


class StopRequest:
    """Within the block, `number` is the signal that asked to stop, or 0."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        # Only the main thread may set handlers; elsewhere signals keep their usual meaning.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
