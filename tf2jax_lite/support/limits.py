"""What keeps strangers' files within bounds: sizes are looked at before memory is taken, stray errors get a place."""

from __future__ import annotations

import contextlib
import math
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .config import current_config
from .errors import InvalidModelError, LimitError, Tf2JaxError

__all__ = ["check_bytes", "is_trusted", "read_bytes", "reading", "regular", "trusted_names"]

MAX_PROTO_BYTES = (1 << 31) - 1
"""Protocol buffers are no larger; protobuf itself would only say so after the whole file is in memory."""


def check_bytes(
    shape: Iterable[int], itemsize: int, what: str, *, limit: int | None = None, option: str = "max_constant_bytes"
) -> int:
    """Returns how many bytes an array takes, before it is made.

    Args:
      shape: its sizes.
      itemsize: bytes of one element.
      what: what the error calls it.
      limit: the most that is allowed; what the option says if left out.
      option: the option that sets it.

    Raises:
      InvalidModelError: a size is negative.
      LimitError: it takes more.
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


def _short(number: int) -> str:
    return str(number) if number < 10**18 else f"more than 10^{int(math.log10(number))}"


def regular(file: Path, kind: type[Tf2JaxError] = InvalidModelError) -> Path:
    """Returns the file if it is absent or a plain one: pipes and devices never end, and never say so.

    Args:
      file: a file from somewhere else; a link counts as what it leads to.
      kind: the error that is raised.

    Raises:
      Tf2JaxError: ``kind``: there is something else.
    """
    try:
        mode = file.stat().st_mode
    except OSError:
        return file  # whoever opens it says what is wrong
    if not stat.S_ISREG(mode):
        raise kind(f"{file} is no plain file.")
    return file


def read_bytes(file: Path) -> bytes:
    """Returns the contents of a file that holds a protocol buffer.

    Raises:
      InvalidModelError: it cannot be read, or is no plain file.
      LimitError: it is larger than any protocol buffer.
    """
    try:
        size = regular(file).stat().st_size
        if size > MAX_PROTO_BYTES:
            raise LimitError(f"{file}: {size} bytes; no protocol buffer has more than {MAX_PROTO_BYTES}.")
        return file.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"{file}: cannot be read ({error.strerror or error}).") from error


@contextlib.contextmanager
def reading(where: str, kind: type[Tf2JaxError] = InvalidModelError) -> Iterator[None]:
    """Holds while a file from somewhere else is read: whatever fails is the file's fault, and says so.

    Args:
      where: which file, or what is read.
      kind: the error that it becomes.

    Raises:
      Tf2JaxError: ``kind`` for any error that is not one of ours; ours pass as they are.
    """
    try:
        yield
    except Tf2JaxError:
        raise
    except RecursionError as error:
        raise kind(f"{where}: nested too deeply to be read.") from error
    except MemoryError as error:
        raise kind(f"{where}: takes more memory than there is ({str(error)[:200]}).") from error
    except Exception as error:
        text = " ".join(str(error).split())
        raise kind(f"{where}: damaged ({type(error).__name__}: {text[:300]}).") from error


def trusted_names() -> frozenset[str]:
    """Returns the names that ``config.trusted`` lists."""
    return frozenset(name.strip() for name in current_config().trusted.split(",") if name.strip())


def is_trusted(name: Any) -> bool:
    """Whether an op or a path was asked for by name."""
    return str(name) in trusted_names()
