"""Directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tf2jax_lite.support.errors import ExportError

__all__ = ["METADATA", "new_directory", "refuse_existing", "sha256", "write_file"]

METADATA = "metadata.json"
_MOST_LINKS = 40  # as many as Linux follows; links may go round in a circle


@contextlib.contextmanager
def new_directory(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yields a directory to fill, which takes the name ``path`` when all is done.

    Args:
      path: the final name.
      overwrite: replace an artefact that is there. Anything else is never replaced.

    Raises:
      ExportError: something is at ``path`` that must not be replaced, or it cannot be written.
    """
    path = Path(os.path.abspath(path))
    refuse_existing(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            if not _is_running(stale):
                shutil.rmtree(stale, ignore_errors=True)
        work = path.parent / f".{path.name}.{os.getpid()}.partial"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    except OSError as error:
        raise ExportError(f"cannot write beside {path}: {error.strerror}") from error
    try:
        yield work
        _move(work, path)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def refuse_existing(path: str | Path, *, overwrite: bool) -> None:
    """Says before hours of work, not after, that its result has no place.

    Args:
      path: where it is to be.
      overwrite: an artefact that is there may be replaced.

    Raises:
      ExportError: something is there that must not be replaced, or there can be nothing.
    """
    path = Path(path)
    try:
        if not (path.exists() or path.is_symlink()):
            _refuse_place(path)
            return
        artefact = not path.is_symlink() and (path / METADATA).is_file()
    except OSError as error:  # a name that is too long, a folder on the way that may not be entered
        raise ExportError(f"cannot write {path}: {error.strerror}") from error
    if not overwrite:
        raise ExportError(f"{path} exists; choose another name, or overwrite it (--force)")
    if not artefact:
        raise ExportError(f"{path} is not an artefact of tf2jax_lite; it is left as it is")


def _refuse_place(path: Path) -> None:
    """Refuses a name that the first folder that is there on the way to it cannot hold, nor what is to be made in it.

    Raises:
      ExportError: that is no folder, or nothing may be written in it.
    """
    folder = next(f for f in Path(os.path.abspath(path)).parents if f.exists() or f.is_symlink())
    if not folder.is_dir():
        raise ExportError(f"cannot write {path}: {folder} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(f"cannot write {path}: {folder} may not be written to")


def _is_running(stale: Path) -> bool:
    """Whether the process that makes a directory is still there."""
    number = stale.name.split(".")[-2]
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):
        return True
    return True


def _move(work: Path, path: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for file in work.rglob("*"):
        if not file.is_file():
            continue
        os.chmod(file, 0o666 & ~mask)  # safetensors makes files that only their owner may read
        _sync(file)
    if path.exists():
        old = path.parent / f".{path.name}.{os.getpid()}.old.partial"
        shutil.rmtree(old, ignore_errors=True)
        os.rename(path, old)
        os.rename(work, path)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(work, path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Writes a single file: beside its name first, then renamed. What a link leads to is written, and the link stays.

    Pipes, devices and what the process has open (``/dev/stdout``) are written to as they are.

    Raises:
      ExportError: it cannot be written.
    """
    path = Path(os.path.abspath(path))
    try:
        if _is_stream(path):
            path.write_bytes(content)
            return
        path = Path(os.path.realpath(path))
        temporary = path.parent / f".{path.name}.{os.getpid()}.partial"
        try:
            temporary.write_bytes(content)
            _sync(temporary)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from error


def _is_stream(path: Path) -> bool:
    """Whether no file may take the name: a pipe, a device, or a link to an open file (``/dev/stdout``)."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        return True
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            break
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        path = path.parent / os.readlink(path)
    return False


def sha256(path: Path) -> str:
    """Returns a file's SHA-256 as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
