"""Limits for untrusted files, checked before memory is allocated.

Other errors get the file's name.
"""

from __future__ import annotations

import contextlib
import json
import math
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .config import current_config
from .errors import InvalidModelError, LimitError, Tf2JaxError

MAX_PROTO_BYTES = (1 << 31) - 1
"""Maximum size of a protocol buffer; protobuf itself checks it after the whole file is in memory."""

MAX_JSON_BYTES = 1 << 25
"""Maximum size of a JSON text: parsed, it takes up to 22 times as much (``[],[],``, CPython 3.11)."""

MAX_DIMENSIONS = 64
"""Maximum number of dimensions of NumPy's arrays."""


MAX_RESULT_BYTES = 1 << 40
"""Maximum size of a node's result, and of any tensor of a StableHLO module: XLA ends the process on overflow."""


def check_bytes(
    shape: Iterable[int], itemsize: int, what: str, *, limit: int | None = None, option: str = "max_constant_bytes"
) -> int:
    """Return the number of bytes of an array that is not allocated yet.

    Args:
      limit: maximum number of bytes; the option's value if left out.
    """
    sizes = [int(d) for d in shape]
    if any(d < 0 for d in sizes):
        raise InvalidModelError(f"{what} has the shape {sizes[:8]}.")
    needed = math.prod(sizes) * itemsize
    allowed = getattr(current_config(), option) if limit is None else limit
    if needed > allowed:
        raise LimitError(
            f"{what} of shape {sizes[:8]} takes {_short(needed)} bytes; {option} allows {allowed}. Raise it "
            "if you trust the model."
        )
    return needed


def check_result(shape: Iterable[int], itemsize: int, what: str) -> None:
    """Check the size of a result, which no option raises."""
    sizes = [int(d) for d in shape]
    if math.prod(sizes) * itemsize > MAX_RESULT_BYTES:
        raise LimitError(f"{what} of shape {sizes[:8]} takes more than {MAX_RESULT_BYTES} bytes, the maximum.")


def _short(number: int) -> str:
    return str(number) if number < 10**18 else f"more than 10^{int(math.log10(number))}"


def regular(file: Path, kind: type[Tf2JaxError] = InvalidModelError) -> Path:
    """Return an absent or regular file: reads of pipes and devices may not end.

    Args:
      file: an untrusted file; of a link the target counts.
    """
    try:
        mode = file.stat().st_mode
    except OSError:
        return file  # opening it raises the specific error
    if not stat.S_ISREG(mode):
        raise kind(f"{file} is not a regular file.")
    return file


def read_bytes(file: Path) -> bytes:
    """Return the contents of a file with a protocol buffer."""
    try:
        size = regular(file).stat().st_size
        if size > MAX_PROTO_BYTES:
            raise LimitError(f"{file}: {size} bytes; no protocol buffer has more than {MAX_PROTO_BYTES}.")
        return file.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"{file}: cannot be read ({error.strerror or error}).") from error


def parse_json(
    text: str | bytes, where: str, kind: type[Tf2JaxError] = InvalidModelError, *, limit: int = MAX_JSON_BYTES
) -> Any:
    """Parse untrusted JSON."""
    if len(text) > limit:
        raise kind(f"{where}: {len(text)} bytes of JSON; at most {limit} are read.")
    with reading(where, kind):
        return json.loads(text)


def read_json(file: Path, kind: type[Tf2JaxError] = InvalidModelError, *, limit: int = MAX_JSON_BYTES) -> Any:
    """Read an untrusted JSON file; see `parse_json`."""
    with reading(str(file), kind):
        size = regular(file, kind).stat().st_size
        if size > limit:
            raise kind(f"{file}: {size} bytes of JSON; at most {limit} are read.")
        return parse_json(file.read_bytes(), str(file), kind, limit=limit)


@contextlib.contextmanager
def reading(where: str, kind: type[Tf2JaxError] = InvalidModelError) -> Iterator[None]:
    """Convert errors of reading an untrusted file to errors that name it.

    Args:
      where: the file, or a description of it.
      kind: the type of the new errors.

    Raises:
      Tf2JaxError: ``kind`` for any other error; a `Tf2JaxError` passes unchanged.
    """
    try:
        yield
    except Tf2JaxError:
        raise
    except RecursionError as error:
        raise kind(f"{where}: nested too deeply to be read.") from error
    except MemoryError as error:
        raise kind(f"{where}: out of memory ({str(error)[:200]}).") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise kind(f"{where}: cannot be read ({type(error).__name__}: {text[:300]}).") from error


def trusted_names() -> frozenset[str]:
    """Return the names that ``config.trusted`` lists."""
    return frozenset(name.strip() for name in current_config().trusted.split(",") if name.strip())


def is_trusted(name: Any) -> bool:
    """Whether ``config.trusted`` names an op or a path."""
    return str(name) in trusted_names()
