"""ray: the same worker processes as those of the local engine, on the nodes of a Ray cluster, or of a local one that is started and stopped.

Each actor holds one worker process and passes orders and events on, so a trial runs in the same program as on this machine and gives its numbers.
Needs the extra `ray`; every node needs the same versions of skipway, torch and numpy.
"""

import collections
import contextlib
import dataclasses
import importlib.util
import logging
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from skipway._errors import StudyError, UsageError
from skipway.lab._machine import installed
from skipway.lab._store import FULL
from skipway.lab.engines._base import LAST, Event, Job
from skipway.lab.engines._station import News, Station

TRIES = 3               # workers that may be lost with a trial before it counts as failed
CLOSING = 10.0          # seconds that actors get to leave nothing behind
WAIT = 0.2              # seconds until `stop` is asked again
PATIENCE = 300.0        # seconds in which a cluster must give a first worker
REACH = 10.0            # seconds in which a cluster's address must answer
STORE = 80 << 20        # bytes of the local cluster's store: what crosses it is small


def check() -> None:
    """Raises UsageError where ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("engine ray needs ray, which is not installed; run: pip install 'skipway[ray]'")


def open_engine(workers: int | None, log: pathlib.Path, address: str | None = None, threads: int = 1) -> "Ray":
    """`workers` actors of `threads` cores, by default as many as the cluster has room for.

    address: of a running cluster, "auto" or "host:6379". Without one, a cluster of this machine is started, and stopped at the end.
    """
    check()
    return Ray(workers, log, address, threads)


class Ray:
    """Keeps its actors from one `run` to the next. Only a job that a lost worker had runs again, from its last checkpoint."""

    def __init__(self, workers: int | None, log: pathlib.Path, address: str | None, threads: int) -> None:
        self.most, self.path, self.address, self.threads = workers, log, address, threads
        self.wants = 0.0                                # GPUs of an actor
        self.stations: dict[Any, Any] = {}              # actor -> the answer that it owes us: to `about` at first, then to `heard`
        self.ready: set[Any] = set()
        self.busy: dict[Any, Job] = {}
        self.lost: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> "Ray":
        with contextlib.ExitStack() as stack:
            self.log = stack.enter_context(open(self.path, "ab"))
            aside = _Aside(sys.stdout, self.log)
            stack.enter_context(contextlib.redirect_stdout(aside))
            self.home = stack.enter_context(_cluster(self.address, self.most, self.threads))
            stack.callback(self._end)
            stack.callback(setattr, aside, "all", True)                 # ray.shutdown prints what it held back
            self.closing = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self.closing.close()

    def run(self, jobs: Sequence[Job], tell: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        left, asked, since = list(reversed(jobs)), False, time.monotonic()
        self.lost.clear()
        self.wants = 1.0 if any(j.arm.device.startswith("cuda") for j in jobs) else 0.0
        while left or self.busy:
            if not asked and stop():
                asked = True
                left.clear()
                for actor in self.busy:
                    actor.stop.remote()
                continue
            self._hire(len(left) + len(self.busy))
            for actor in [a for a in self.ready if a not in self.busy][:len(left)]:
                self._give(actor, left.pop())
            for actor in self._spoke():
                again = self._heard(actor, tell)
                if again is not None and asked:
                    tell(Event("stopped", again.trial))
                elif again is not None:
                    left.append(again)
            since = time.monotonic() if self.ready else since
            if time.monotonic() - since > PATIENCE:
                raise StudyError(f"the Ray cluster gave no worker in {PATIENCE:.0f} seconds; see whether it has "
                                 f"{self.threads} free CPU{'s' * (self.threads > 1)}{' and a GPU' * bool(self.wants)}, then resume the study")

    def _hire(self, jobs: int) -> None:
        """Asks for actors until there are as many as may be, or as there are jobs."""
        import ray
        kind: Any = ray.remote(_Actor)
        most = self.most or max(1, int(ray.cluster_resources().get("CPU", 1) // self.threads))
        while len(self.stations) < min(most, jobs):
            # one call waits for events; orders pass it
            made = kind.options(num_cpus=self.threads, num_gpus=self.wants, max_concurrency=3, max_restarts=0)
            actor = made.remote(self.threads, os.getcwd(), *self.home)
            self.stations[actor] = actor.about.remote()

    def _give(self, actor: Any, job: Job) -> None:
        path = pathlib.Path(job.checkpoint).absolute()
        self.busy[actor] = dataclasses.replace(job, checkpoint=str(path))
        actor.give.remote(self.busy[actor].to_dict(), path.read_bytes() if path.exists() else None)

    def _spoke(self) -> list[Any]:
        """Actors that have answered."""
        import ray
        if not self.stations:
            return []
        done, _ = ray.wait(list(self.stations.values()), timeout=WAIT)
        return [actor for actor, answer in self.stations.items() if answer in done]

    def _heard(self, actor: Any, tell: Callable[[Event], None]) -> Job | None:
        """Takes an answer; gives the job that must run again, where the actor is lost with it."""
        import ray
        try:
            answer = ray.get(self.stations[actor])
        except ray.exceptions.RayActorError as error:
            return self._gone(actor, _first(error), tell)
        self.stations[actor] = actor.heard.remote()
        if isinstance(answer, News):
            return self._news(actor, answer, tell)
        _same(answer)
        self.ready.add(actor)
        return None

    def _news(self, actor: Any, news: News, tell: Callable[[Event], None]) -> Job | None:
        self.log.write(news.log)
        self.log.flush()
        job = self.busy.get(actor)
        if job is None:
            return None
        if news.checkpoint is not None:
            _kept(pathlib.Path(job.checkpoint), news.checkpoint, job, tell)
        for event in news.events:
            if event["kind"] in LAST:
                del self.busy[actor]
            tell(Event(trial=job.trial, **event))
        return self._again(actor, job, news.ended, tell) if news.ended and actor in self.busy else None

    def _gone(self, actor: Any, why: str, tell: Callable[[Event], None]) -> Job | None:
        del self.stations[actor]
        if actor not in self.ready:
            raise StudyError(f"a worker on the Ray cluster does not start: {why}; every node needs skipway[lab], as it is here")
        self.ready.remove(actor)
        return self._again(actor, self.busy[actor], why, tell) if actor in self.busy else None

    def _again(self, actor: Any, job: Job, why: str, tell: Callable[[Event], None]) -> Job | None:
        del self.busy[actor]
        self.lost[job.trial.id] += 1
        self.log.write(f"lost the worker of {job.trial}: {why}\n".encode())
        if self.lost[job.trial.id] >= TRIES:
            tell(Event("lost", job.trial, reason=f"{TRIES} workers were lost with it; of the last: {why}"))
            return None
        tell(Event("again", job.trial, reason=why))
        return job

    def _end(self) -> None:
        import ray
        ray.wait([actor.close.remote() for actor in self.ready], num_returns=max(1, len(self.ready)), timeout=CLOSING) if self.ready else None
        for actor in self.stations:
            ray.kill(actor)                             # its worker process ends with it


class _Actor(Station):
    """A station on a node: the study's folder is at hand on the node that the study runs on."""

    def __init__(self, threads: int, folder: str, home: str, keep: str | None) -> None:
        super().__init__(threads, folder, _node() != home, keep)


class _Aside:
    """stdout, but what Ray's own threads print on it goes to the log: a lost worker is told there in many lines."""

    def __init__(self, usual: Any, log: IO[bytes]) -> None:
        self.usual, self.log, self.all = usual, log, False

    def write(self, text: str) -> int:
        if self.all or threading.current_thread().name.startswith("ray_"):
            self.log.write(text.encode())
            return len(text)
        return int(self.usual.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)


@contextlib.contextmanager
def _cluster(address: str | None, workers: int | None, threads: int) -> Iterator[tuple[str, str | None]]:
    """Connects; gives the node that this process is on, and the folder for what actors keep (None: the system's).

    A cluster that the caller is connected to already is used, and left connected.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"         # read by ray.init: no report goes to its makers
    import ray
    if ray.is_initialized():
        yield _home(), None
        return
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {"address": address}
        folder = None
        if address is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="skipway-ray-", ignore_cleanup_errors=True))
            options = {"address": "local", "num_cpus": (workers or os.cpu_count() or 1) * threads, "include_dashboard": False,
                       "object_store_memory": STORE, "_temp_dir": folder}
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            _reached(address)
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"at {address}" if address else "on this machine"
            raise StudyError(f"no Ray cluster {where}: {_first(error)}; see `ray status`, or leave the address out") from error
        if main:
            signal.signal(signal.SIGTERM, before)       # ray.init puts one of its own in its place, and a stop could not be clean
        stack.callback(ray.shutdown)
        yield _home(), folder


def _reached(address: str | None) -> None:
    """Raises OSError where nobody listens at host:port: ray.init would try for a minute and end the process."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=REACH).close()


def _home() -> str:
    """The node of the study's folder."""
    return _node()


def _node() -> str:
    import ray
    return str(ray.get_runtime_context().get_node_id())


def _first(error: BaseException) -> str:
    """The line that says most: of a lost actor, the one with the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if line.startswith("The actor is dead because")), lines[0])[:300]


def _same(answer: dict[str, Any]) -> None:
    """Raises StudyError where a node has other versions than this process: its numbers would be others."""
    for name, here in installed().items():
        if name in ("skipway", "torch", "numpy") and answer[name] != here:
            raise StudyError(f"node {answer['machine']} of the Ray cluster has {name} {answer[name]}, and this process {here}; install the same "
                             "version on every node, since others give other numbers")


def _kept(path: pathlib.Path, data: bytes, job: Job, tell: Callable[[Event], None]) -> None:
    """Keeps a checkpoint that came from a node without the study's folder."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        if error.errno not in FULL:
            raise
        beside.unlink(missing_ok=True)
        tell(Event("full", job.trial, reason=error.strerror or "the disk is full"))
