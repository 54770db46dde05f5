"""The cleaner: repeats in the background what must be done in the end, such as a withdrawal that went unanswered.

It is a thread that lives only while there is something to repeat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY = 1.0  # seconds between two tries


class Cleaner:
    """Calls ``clean_up`` for as long as something is ``left``."""

    def __init__(self, clean_up: Callable[[], None], left: Callable[[], bool]) -> None:
        self._clean_up, self._left = clean_up, left
        self.forked()

    def forked(self) -> None:
        """In a child there is no such thread, and what the parent has to do is not the child's."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._work, name="leasehold-cleaner", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        stopped = self._stopped
        while not stopped.wait(EVERY):
            self._clean_up()
            with self._lock:
                if not self._left():
                    if threading.current_thread() is self._thread:
                        self._thread = None
                    return

    def stop(self) -> None:
        """Nothing more is repeated: the server forgets this process, with its places."""
        self._stopped.set()
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopped = threading.Event()
        if thread is not None and thread is not threading.current_thread():
            thread.join(EVERY)
