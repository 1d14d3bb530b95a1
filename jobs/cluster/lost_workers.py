"""Lost workers: which tasks they took with them, as the scheduler tells it, and what is likely to have ended them."""

from collections import Counter, deque
from contextlib import suppress
from functools import partial
from typing import Any

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.task_label import work_of

_FULL = 0.7
"""From which share of its limit on a worker that is lost is taken to have been ended for its memory."""

_MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies tell of workers that they end for their memory; of each that goes, the scheduler tells at its address.

(The topic of all of them also has events that do not travel, and take the connection with them.)
"""

MEMORY = "it came to its memory limit"

Key = Any


class Losses:
    """What is known of the workers of a cluster, and of those that are lost while tasks are under way."""

    def __init__(self, client: Any, report: Reporter) -> None:  # noqa: ANN401 (distributed has no types)
        self._client, self._report = client, report
        self._heard: deque[tuple[str, dict[str, Any]]] = deque()
        self._workers: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, int] = {}
        self._tasks: dict[Key, Any] = {}
        self._counts: Counter[Key] = Counter()
        self.cause = "unknown"
        client.subscribe_topic(_MEMORY_TOPIC, self._hear_of_memory)

    def watch(self, key: Key, task: object) -> None:
        """Note that a task is under way by this key."""
        self._tasks[key] = task

    def forget(self, key: Key) -> None:
        """Note that it is done."""
        self._tasks.pop(key, None)
        self._counts.pop(key, None)

    def count(self, key: Key) -> int:
        """Return how many workers were lost while they did the task."""
        self.tell()
        return self._counts[key]

    def note_workers(self, workers: dict[str, Any]) -> list[str]:
        """Note which workers there are and what they use now; return the addresses of those that have come."""
        come = sorted(workers.keys() - self._workers.keys())
        for address in come:
            self._client.subscribe_topic(address, partial(self._hear, address))
        self._workers |= workers
        return come

    def tell(self) -> None:
        """Say what has been heard of since the last time."""
        while self._heard:
            self._tell_of(*self._heard.popleft())

    def _hear(self, address: str, event: tuple[float, Any]) -> None:
        """Take in what the scheduler tells of a worker, in the client's thread."""
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            self._heard.append((address, message))

    def _hear_of_memory(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and {"worker", "rss"} <= message.keys():
            self._ended[str(message["worker"])] = int(message["rss"])

    def _tell_of(self, address: str, event: dict[str, Any]) -> None:
        done, lost = (self._own(event.get(name)) for name in ("processing-tasks", "lost-computed-tasks"))
        if event.get("expected") and not done:
            return
        for key in done:
            self._counts[key] += 1
        self.cause = self._cause_of(address)
        works = [str(work) for work in (self._work(key) for key in done) if work]
        told = {"doing": "; ".join(works) or None, "results_lost": len(lost) or None}
        self._report.warn(
            events.CLUSTER_WORKER_LOST,
            worker=address,
            **{key: value for key, value in told.items() if value is not None},
            likely_cause=self.cause,
        )

    def _own(self, keys: Any) -> list[Key]:  # noqa: ANN401
        return [key for key in (keys or ()) if key in self._tasks]

    def _work(self, key: Key) -> object:
        with suppress(OSError):
            return work_of(self._tasks[key])
        return None

    def _cause_of(self, address: str) -> str:
        """Return what is likely to have ended a worker."""
        known = self._workers.get(address, {})
        limit, used = known.get("memory_limit") or 0, (known.get("metrics") or {}).get("memory") or 0
        rss = self._ended.get(address, 0)
        if rss or (limit and used > _FULL * limit):
            of = f" of {show_bytes(limit)}" if limit else ""
            return f"{MEMORY}{of}, using {show_bytes(max(rss, used))}"
        return "its process was ended from outside, for memory too, or its machine or network went away"
