"""A process that reads inputs, and names each one before it reads it.

The supervisor knows so which input killed it.
"""

from __future__ import annotations

import collections
import json
import mmap
import os
import random
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

__all__ = ["PLACE", "Place", "input_of", "picked", "read_one"]

PLACE = struct.Struct("<qdd")
"""What a worker says before each input: its number, the processor time used so far, and whether it is done."""


class Place:
    """The few bytes that a worker and its supervisor share."""

    def __init__(self, path: Path):
        if not path.exists():
            path.write_bytes(PLACE.pack(-1, 0.0, 0.0))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), PLACE.size)

    def write(self, number: int, done: float = 0.0) -> None:
        """Say which input comes next."""
        self._map[:] = PLACE.pack(number, time.process_time(), done)

    def read(self) -> tuple[int, float, float]:
        """Return the number, the processor time when it began, and whether all is done."""
        return PLACE.unpack(self._map[:])


def picked(seed: int, number: int, names: list[str], weights: list[float]) -> str:
    """Return which target an input is for."""
    return random.Random(f"{seed}/{number}").choices(names, weights)[0]


def input_of(target: Any, name: str, seed: int, number: int) -> tuple[str, bytes]:
    """Return an input, again and again the same."""
    return target.input(random.Random(f"{seed}/{name}/{number}"))


def read_one(target: Any, source: str, data: bytes) -> tuple[str, str]:
    """Read an input.

    Returns:
      ``(outcome, trace)``: outcome is "read", the name of one of our errors, or "finding: ..." with the trace.
    """
    from tf2jax_lite.errors import Tf2JaxError

    try:
        target.run(source, data)
        return "read", ""
    except Tf2JaxError as error:
        stray = _unforeseen(error)
        return (type(error).__name__, "") if stray is None else _finding(stray)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _finding(error)


def _ours(frame: traceback.FrameSummary) -> bool:
    return "tf2jax_lite" in frame.filename or "/ops/" in frame.filename


def _unforeseen(error: BaseException) -> BaseException | None:
    """Return the original error in our code that `limits.reading` converted."""
    # For a user that is an error like others. Here it tells that such a file is not handled; what a library's reader
    # raises about a damaged file is no news.
    raised = traceback.extract_tb(error.__traceback__)
    cause = error.__cause__
    if cause is None or not raised or raised[-1].name != "reading":
        return None
    frames = traceback.extract_tb(cause.__traceback__)
    return cause if frames and _ours(frames[-1]) and not isinstance(cause, (RecursionError, MemoryError)) else None


def _finding(error: BaseException) -> tuple[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if _ours(f)), frames[-1])
    where = f"{Path(last.filename).name}:{last.name}"
    return f"finding: {type(error).__name__} in {where}", "".join(traceback.format_exception(error))[-4000:]


def main(options: dict[str, Any]) -> None:
    """Read inputs from ``start`` on until the time is over, or ``count`` are read."""
    from .targets import limits, make_targets

    work = Path(options["work"])
    targets = make_targets(Path(options["corpus"]), work, tuple(options["targets"]))
    names, weights = list(targets), [t.weight for t in targets.values()]
    counts: collections.Counter[str] = collections.Counter()
    place = Place(Path(options["place"]))
    number, end = options["start"], options["end"]
    last_written = time.monotonic()

    def write_counts() -> None:
        path = Path(options["counts"])
        path.with_suffix(".new").write_text(json.dumps(counts))
        os.replace(path.with_suffix(".new"), path)

    seen: set[str] = set()
    with limits():
        while time.time() < end and number < options["stop"]:
            name = picked(options["seed"], number, names, weights)
            place.write(number)
            source, data = input_of(targets[name], name, options["seed"], number)
            outcome, trace = read_one(targets[name], source, data)
            counts[f"{name}\t{outcome}"] += 1
            if trace and outcome not in seen:
                seen.add(outcome)
                finding = {"target": name, "source": source, "number": number, "outcome": outcome, "trace": trace}
                with open(options["findings"], "a") as file:
                    file.write(json.dumps({**finding, "data": data.hex()}) + "\n")
            number += 1
            if time.monotonic() - last_written > 2:
                last_written = time.monotonic()
                write_counts()
    write_counts()
    place.write(number, 1.0)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(json.loads(sys.argv[1]))
