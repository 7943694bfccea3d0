"""Write directories and files atomically: they appear complete or not at all.

A directory is filled in a private one beside it, whose name cannot be predicted, and takes its name at the end. Nothing
is replaced that was not there at the start, and of that only an artifact without files of the user.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tf2jax_lite.support.errors import ExportError
from tf2jax_lite.support.limits import read_json

METADATA = "metadata.json"
_MAX_LINKS = 40  # as in Linux; links may form a cycle
_MARK, _NEW, _OLD = ".tf2jax_lite", "new", "old"  # in a private directory
_PRIVATE = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.partial")
_CHECKPOINT = re.compile(
    r"_[A-Z_]+|_sharding|array_metadatas|d|manifest\.ocdbt|ocdbt\.process_\d+|descriptor"
)  # of Orbax
_Identity = tuple[int, int]


@contextlib.contextmanager
def new_directory(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a directory to fill; it is renamed to ``path`` at the end.

    Args:
      overwrite: replace an existing artifact. Anything else is never replaced.
    """
    path = Path(os.path.abspath(path))
    with contextlib.suppress(OSError):  # a parent that is missing or unreadable
        _remove_stale(path)
    replaced = refuse_existing(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        private, lock = _private_directory(path)
    except OSError as error:
        raise ExportError(f"cannot write beside {path}: {error.strerror}") from error
    try:
        yield private / _NEW
        _finish(private / _NEW)
        if replaced is None:
            _place(private / _NEW, path)
        else:
            _replace(private, path, replaced)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error}") from error
    finally:
        if (private / _MARK).exists():
            shutil.rmtree(private, ignore_errors=True)
        os.close(lock)


def refuse_existing(path: str | Path, *, overwrite: bool) -> _Identity | None:
    """Check before hours of work that its result can be written.

    Args:
      overwrite: whether an existing artifact may be replaced.

    Returns:
      The identity of the artifact that is there; None if there is none.
    """
    path = Path(path)
    try:
        if not os.path.lexists(path):
            _check_parent(path)
            return None
        if not overwrite:
            raise ExportError(f"{path} exists; choose another name, or pass overwrite=True")
        found = path.lstat()
        foreign = _foreign_files(path) if stat.S_ISDIR(found.st_mode) else None
    except OSError as error:  # a name that is too long, a parent without permission
        raise ExportError(f"cannot write {path}: {error.strerror}") from error
    if foreign is None:
        raise ExportError(f"{path} is not an artifact of tf2jax_lite; it is left as it is")
    if foreign:
        names = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise ExportError(f"{path} has files that are not of the artifact: {names}. Move them, or choose another name.")
    return found.st_dev, found.st_ino


def _foreign_files(folder: Path) -> list[str] | None:
    """Return the files that an artifact did not write; None if it is no artifact."""
    # A directory of artifacts is one, too.
    from .metadata import FAMILY, FAMILY_MEMBERS, FORMAT  # which imports this module

    try:
        metadata = read_json(folder / METADATA, ExportError)
    except ExportError:
        return None
    kind = metadata.get("format") if isinstance(metadata, dict) else None
    files = metadata.get("files", {}) if kind in (FORMAT, FAMILY) else None
    if not isinstance(files, dict):
        return None
    members = metadata.get(FAMILY_MEMBERS) if kind == FAMILY else ()
    foreign: list[str] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_dir(follow_symlinks=False):
            foreign += [] if entry.name in files or entry.name == METADATA else [entry.name]
        elif isinstance(members, list) and entry.name in members:
            inner = _foreign_files(Path(entry.path))
            foreign += [entry.name] if inner is None else [f"{entry.name}/{name}" for name in inner]
        elif entry.name == "__pycache__":
            foreign += [f"{entry.name}/{n}" for n in os.listdir(entry.path) if not n.endswith(".pyc")]
        elif entry.name == "checkpoint" and kind == FORMAT:
            foreign += [f"{entry.name}/{n}" for n in os.listdir(entry.path) if not _CHECKPOINT.fullmatch(n)]
        else:
            foreign.append(entry.name)
    return foreign


def _check_parent(path: Path) -> None:
    """Check the closest existing parent of a path."""
    folder = next(f for f in Path(os.path.abspath(path)).parents if f.exists() or f.is_symlink())
    if not folder.is_dir():
        raise ExportError(f"cannot write {path}: {folder} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(f"cannot write {path}: {folder} may not be written to")


def _private_directory(path: Path) -> tuple[Path, int]:
    """Make a private directory beside a path; return it and its open lock."""
    # In it, ``new`` is to be filled.
    #
    # The lock lasts as long as the process, which tells `_remove_stale` whether it is running.
    while True:
        private = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        lock = _locked(private)
        if lock is not None:
            break
    try:
        (private / _MARK).touch()
        (private / _NEW).mkdir()
    except OSError:
        os.close(lock)
        raise
    return private, lock


def _locked(private: Path) -> int | None:
    """Return a private directory's lock; None if another process has it."""
    # None as well if another process removed the directory.
    try:
        lock = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), private.lstat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove_stale(path: Path) -> None:
    """Remove the private directories of killed processes beside a path."""
    # An artifact that one of them was about to replace gets its name back.
    for entry in list(os.scandir(path.parent)):
        match = _PRIVATE.fullmatch(entry.name)
        if not match or match[1] != path.name or (lock := _locked(Path(entry.path))) is None:
            continue
        private = Path(entry.path)
        try:
            names = set(os.listdir(private))
            if _MARK in names and names <= {_MARK, _NEW, _OLD}:
                if _OLD in names and not os.path.lexists(path):
                    _place(private / _OLD, path)
                shutil.rmtree(private, ignore_errors=True)
            elif not names:
                private.rmdir()
        except OSError:
            pass
        finally:
            os.close(lock)


def _finish(work: Path) -> None:
    mode = work.stat().st_mode & 0o666
    for file in work.rglob("*"):
        if file.is_file():
            os.chmod(file, mode)  # safetensors makes files that only their owner may read
            _sync(file)


def _place(folder: Path, path: Path) -> None:
    """Rename a directory to a name that does not exist."""
    # A rename replaces an empty directory. This one is claimed before, which fails if anything has the name.
    try:
        path.mkdir()
    except FileExistsError:
        raise ExportError(f"{path} was made meanwhile; it is left as it is") from None
    try:
        os.rename(folder, path)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise


def _replace(private: Path, path: Path, replaced: _Identity) -> None:
    """Rename the new directory to that of an artifact, if that one is still the same."""
    old = private / _OLD
    os.rename(path, old)
    found = old.lstat()
    try:
        if (found.st_dev, found.st_ino) != replaced or _foreign_files(old) != []:
            raise ExportError(f"{path} changed meanwhile; it is left as it is")
        _place(private / _NEW, path)
    except Exception as error:
        try:
            _place(old, path)
        except (ExportError, OSError):
            (private / _MARK).unlink()  # nothing removes the directory then
            raise ExportError(f"{path} changed meanwhile; the artifact that it was is now {old}") from error
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Write a single file under a temporary name, then rename it.

    A link stays, and its target is written. Pipes, devices and open files of the process (``/dev/stdout``) are written
    directly.
    """
    path = Path(os.path.abspath(path))
    try:
        if _is_stream(path):
            path.write_bytes(content)
            return
        path = Path(os.path.realpath(path))
        temporary = path.parent / f".{secrets.token_hex(8)}.partial"
        try:
            with os.fdopen(_created(temporary), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            move_file(temporary, path, overwrite=overwrite)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from error


def move_file(temporary: Path, path: Path, *, overwrite: bool) -> None:
    """Rename a file; without ``overwrite`` only to a name that does not exist.

    Raises:
      OSError: it exists, or cannot be renamed.
    """
    if not overwrite:
        os.close(_created(path))  # claimed, as a rename would replace a file
    try:
        os.replace(temporary, path)
    except OSError:
        if not overwrite:
            path.unlink()
        raise


def _created(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


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
