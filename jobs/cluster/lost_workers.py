"""Lost workers: which tasks they took with them, as the scheduler reports it, and what is likely to have ended them."""

from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.dataset.task_label import label_of

_FULL = 0.7
"""The share of its memory limit from which a lost worker is taken to have been ended for its memory."""

_MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies publish the workers that they end for their memory. That a worker goes is published at its address.

(The topic of all workers also has events that cannot be serialized, and break the connection.)
"""

MEMORY = "it came to its memory limit"

Key = Any
"""The key of a task on the cluster."""


class LostWorkers:
    """Counts the workers that are lost while they run a task, and reports each with its likely cause."""

    def __init__(self, client: Any, report: Reporter) -> None:  # noqa: ANN401 (distributed has no types)
        self._client, self._reporter = client, report
        self._removals: deque[tuple[str, dict[str, Any]]] = deque()
        self._workers: dict[str, dict[str, Any]] = {}
        self._ended_for_memory: dict[str, int] = {}
        self._tasks: dict[Key, Any] = {}
        self._counts: Counter[Key] = Counter()
        self.cause = "unknown"
        """What is likely to have ended the worker that was lost last."""
        client.subscribe_topic(_MEMORY_TOPIC, self._on_memory_restart)

    def watch(self, key: Key, task: object) -> None:
        """Note that a task is under way by this key."""
        self._tasks[key] = task

    def watches(self, keys: Iterable[Key]) -> bool:
        """Return whether a task by one of these keys is under way."""
        return any(key in self._tasks for key in keys)

    def forget(self, key: Key) -> None:
        """Note that the task of this key is done."""
        self._tasks.pop(key, None)
        self._counts.pop(key, None)

    def count(self, key: Key) -> int:
        """Return how many workers were lost while they ran the task of this key."""
        self.report()
        return self._counts[key]

    def note_workers(self, workers: dict[str, Any]) -> list[str]:
        """Note which workers there are and what they use now; return the addresses of the new ones, sorted."""
        new = sorted(workers.keys() - self._workers.keys())
        for address in new:
            self._client.subscribe_topic(address, partial(self._on_event, address))
        self._workers |= workers
        return new

    def report(self) -> None:
        """Report the workers that were lost since the last call."""
        while self._removals:
            self._report_removal(*self._removals.popleft())

    def _on_event(self, address: str, event: tuple[float, Any]) -> None:
        """Receive an event of a worker, in the client's thread."""
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            self._removals.append((address, message))

    def _on_memory_restart(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and {"worker", "rss"} <= message.keys():
            self._ended_for_memory[str(message["worker"])] = int(message["rss"])

    def _report_removal(self, address: str, removal: dict[str, Any]) -> None:
        running, results = (self._own(removal.get(name)) for name in ("processing-tasks", "lost-computed-tasks"))
        if removal.get("expected") and not running:
            return
        self._counts.update(running)
        self.cause = self._likely_cause(address)
        facts: dict[str, Fact] = {"doing": "; ".join(self._labels(running)), "results_lost": len(results)}
        self._reporter.warn(
            events.CLUSTER_WORKER_LOST,
            worker=address,
            **{key: value for key, value in facts.items() if value},
            likely_cause=self.cause,
        )

    def _own(self, keys: Any) -> list[Key]:  # noqa: ANN401
        return [key for key in (keys or ()) if key in self._tasks]

    def _labels(self, keys: list[Key]) -> list[str]:
        """Return which rows the tasks read, where that is known."""
        labels = []
        for key in keys:
            with suppress(OSError):
                labels.append(label_of(self._tasks[key]))
        return [str(label) for label in labels if label]

    def _likely_cause(self, address: str) -> str:
        """Return what is likely to have ended a worker."""
        worker = self._workers.get(address, {})
        limit, used = worker.get("memory_limit") or 0, (worker.get("metrics") or {}).get("memory") or 0
        rss = self._ended_for_memory.get(address, 0)
        if rss or (limit and used > _FULL * limit):
            of_limit = f" of {show_bytes(limit)}" if limit else ""
            return f"{MEMORY}{of_limit}, using {show_bytes(max(rss, used))}"
        return "its process was ended from outside, for memory too, or its machine or network went away"
