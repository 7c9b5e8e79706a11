"""The worker process as a far engine has it: events, checkpoints that travel, and a process that is lost."""

import os
import pathlib
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from small import arm, trial

from skipway.lab import _trial, tasks
from skipway.lab._machine import settings
from skipway.lab.engines import Job
from skipway.lab.engines._station import News, Station
from skipway.lab.records import Outcome

LONG = replace(arm(), steps=4000, probes=(), checkpoint=10, evaluate=1000)
TASK = tasks.build(LONG.task)


@pytest.fixture
def stations(tmp_path: pathlib.Path) -> "Iterator[list[Station]]":
    made = [Station(1, str(tmp_path), apart=True, keep=str(tmp_path)) for _ in range(2)]
    yield made
    for station in made:
        station.close()


def heard(station: Station, until: str) -> "tuple[list[dict], News]":
    """Events until one of this kind (or "gone"), and the last news; the newest checkpoint is kept in it."""
    events, kept, end = [], None, time.monotonic() + 120
    while time.monotonic() < end:
        news = station.heard()
        events += news.events
        kept = news.checkpoint or kept
        if (until == "gone" and news.ended) or any(e["kind"] == until for e in news.events):
            return events, replace(news, checkpoint=kept)
    raise AssertionError(f"no {until} in two minutes: {events[-3:]}")


def job(steps: int = 4000) -> dict:
    made = replace(LONG, steps=steps)
    return Job(made, trial(made.name), "/nowhere/here/abc.safetensors").to_dict()


def test_a_checkpoint_travels_to_another_station(stations: "list[Station]", tmp_path: pathlib.Path) -> None:
    first, second = stations
    first.give(job(600))
    events: list[dict] = []
    while not any(e["kind"] == "step" for e in events):
        events += first.heard().events
    first.stop()
    events, news = heard(first, "stopped")
    assert news.checkpoint is not None and not pathlib.Path("/nowhere").exists()
    second.give(job(600), news.checkpoint)
    events, _ = heard(second, "ended")
    out = Outcome.from_dict(events[-1]["outcome"])
    settings(1)
    whole = _trial.run(replace(LONG, steps=600), trial(LONG.name), TASK)
    assert whole is not None and out.resumed == 1 and (out.points, out.final) == (whole.points, whole.final)
    assert not list(tmp_path.glob("*/abc.safetensors*"))             # nothing is left of it


def test_a_lost_process_is_told_and_replaced(stations: "list[Station]") -> None:
    station = stations[0]
    station.give(job())
    heard(station, "step")
    assert station.process is not None
    os.kill(station.process.process.pid, 9)
    _, news = heard(station, "gone")
    assert "ended by SIGKILL" in news.ended and station.process is None
    station.give(job(5))
    events, _ = heard(station, "ended")
    assert events[-1]["outcome"]["state"] == "finished"


def test_what_a_station_says_of_itself(stations: "list[Station]") -> None:
    import torch
    about = stations[0].about()
    assert about["process"] == os.getpid() and str(torch.__version__).startswith(about["torch"].partition("+")[0])
