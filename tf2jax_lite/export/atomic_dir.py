"""Write directories and files atomically: they appear complete or not at all."""

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
_MAX_LINKS = 40  # as in Linux; links may form a cycle


@contextlib.contextmanager
def new_directory(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a directory to fill; it is renamed to ``path`` at the end.

    Args:
      path: the final name.
      overwrite: replace an existing artifact. Anything else is never replaced.

    Raises:
      ExportError: ``path`` exists and must not be replaced, or it cannot be written.
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
    """Check before hours of work that its result can be written.

    Args:
      path: the path of the result.
      overwrite: whether an existing artifact may be replaced.

    Raises:
      ExportError: ``path`` exists and must not be replaced, or it cannot be written.
    """
    path = Path(path)
    try:
        if not (path.exists() or path.is_symlink()):
            _check_parent(path)
            return
        artifact = not path.is_symlink() and (path / METADATA).is_file()
    except OSError as error:  # a name that is too long, a parent without permission
        raise ExportError(f"cannot write {path}: {error.strerror}") from error
    if not overwrite:
        raise ExportError(f"{path} exists; choose another name, or overwrite it (--force)")
    if not artifact:
        raise ExportError(f"{path} is not an artifact of tf2jax_lite; it is left as it is")


def _check_parent(path: Path) -> None:
    """Check the closest existing parent of a path.

    Raises:
      ExportError: it is not a directory, or not writable.
    """
    folder = next(f for f in Path(os.path.abspath(path)).parents if f.exists() or f.is_symlink())
    if not folder.is_dir():
        raise ExportError(f"cannot write {path}: {folder} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(f"cannot write {path}: {folder} may not be written to")


def _is_running(stale: Path) -> bool:
    """Return whether the process that writes a partial directory is running."""
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
    """Write a single file under a temporary name, then rename it.

    A link stays, and its target is written. Pipes, devices and open files of the process (``/dev/stdout``) are written
    directly.

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
    """Return whether a path cannot be replaced: a pipe, a device, an open file."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        return True
    for _ in range(_MAX_LINKS):
        if not path.is_symlink():
            break
        if os.path.realpath(path.parent).startswith("/proc/"):
            return True
        path = path.parent / os.readlink(path)
    return False


def sha256(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
