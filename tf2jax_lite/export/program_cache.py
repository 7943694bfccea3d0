"""Compiled programs of artifacts, in the user's cache directory.

JAX's serialized programs are pickles, which run code when they are read. They are never beside an artifact, which may
come from others, and are read only from a directory and files that belong to the user and that no one else can write.
An entry begins with a MAC, whose secret is outside of the cache: a cache that was copied or cloned brings no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import importlib.metadata
import json
import os
import pickle
import platform
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from tf2jax_lite.support.extras import installed_version

CACHE = "TF2JAX_LITE_CACHE"
"""The environment variable with the absolute path of the cache directory; empty for no cache."""

_MAX_PROGRAMS = 64
_MAX_BYTES = 2 << 30
_SUFFIX = ".program"
_MAC_BYTES = 32  # of SHA-256
_FORMAT = 2  # changes with the arguments of stored programs


def directory() -> Path | None:
    """Return the directory of programs; None without a cache.

    It is ``programs`` in the directory that `CACHE` names, in ``$XDG_CACHE_HOME/tf2jax-lite``, or in
    ``~/.cache/tf2jax-lite``. A relative path counts as none: it would be in any directory that a command runs in.
    """
    given = os.environ.get(CACHE)
    root = Path(given) if given is not None else _user_directory("XDG_CACHE_HOME", "~/.cache")
    return root / "programs" if root.is_absolute() else None


def _user_directory(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or os.path.expanduser(default)) / "tf2jax-lite"


def _secret(folder: Path) -> bytes | None:
    """Return the key of MACs; None if there is none that only the user can read."""
    # The first call makes it. It is ``key`` in ``$XDG_STATE_HOME/tf2jax-lite`` or ``~/.local/state/tf2jax-lite``, never
    # in the cache.
    state = _user_directory("XDG_STATE_HOME", "~/.local/state")
    if not state.is_absolute() or state.resolve().is_relative_to(folder.parent.resolve()):
        return None
    file = state / "key"
    if not os.path.lexists(file):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=state)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(os.urandom(_MAC_BYTES))
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(temporary, file)
        finally:
            os.unlink(temporary)
    secret = _read_private(file, others=0o077) if _is_private(state) else None
    return secret if secret is not None and len(secret) == _MAC_BYTES else None


def _mac(secret: bytes, key: str, payload: bytes) -> bytes:
    return hmac.digest(secret, key.encode() + b"\0" + payload, "sha256")


def program_key(metadata: Mapping[str, Any], signature: str, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the key of a program: a hash of all that it depends on.

    These are the artifact, by its metadata, which has the hash of each file that is read; the function and the shapes
    of its arguments; the versions of JAX, jaxlib and this package; the device and its runtime; and JAX's and XLA's
    options.

    Args:
      metadata: the artifact's, as `read_metadata` returns it; the caller compares its hashes with the files.
    """
    device = jax.devices()[0]
    parts = {
        "format": _FORMAT,
        "artifact": hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest(),
        "signature": signature,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "versions": [jax.__version__, importlib.metadata.version("jaxlib"), installed_version(), sys.version],
        "device": [device.platform, device.device_kind, device.client.platform_version, len(jax.devices())],
        "processor": [platform.machine(), _processor_features()],
        "flags": [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")],
        "options": {name: repr(value) for name, value in jax.config.values.items()},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _processor_features() -> str:
    """Return the processor's features if the system reports them: programs use them."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        return next((line for line in file if line.startswith(("flags", "Features"))), "")
    return platform.processor()


def read_program(key: str) -> tuple[Any, Any] | None:
    """Return a compiled program and what was stored with it; None if there is none.

    A damaged or unreadable one counts as none.
    """
    folder = directory()
    if folder is None or not _is_private(folder):
        return None
    file = folder / f"{key}{_SUFFIX}"
    try:
        content = _read_private(file)
        secret = None if content is None else _secret(folder)
        if content is None or secret is None:
            return None
        mac, payload = content[:_MAC_BYTES], content[_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(secret, key, payload)):
            return None
        program, in_tree, out_tree, more = pickle.loads(payload)
        loaded = serialize_executable.deserialize_and_load(
            program, in_tree, out_tree, execution_devices=jax.devices()[:1]
        )
        with contextlib.suppress(OSError):
            os.utime(file)  # the least recently used are removed first
        return loaded, more
    except Exception:  # of another version, or cut short: it is compiled again
        return None


def write_program(key: str, compiled: Any, more: Any) -> None:
    """Store a compiled program, with a picklable value; do nothing where that fails."""
    folder = directory()
    if folder is None:
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
        secret = _secret(folder)
        if secret is None:
            return
        payload = pickle.dumps((*serialize_executable.serialize(compiled), more))
        descriptor, partial = tempfile.mkstemp(prefix=".", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_mac(secret, key, payload) + payload)
            os.replace(partial, folder / f"{key}{_SUFFIX}")
        except BaseException:
            os.unlink(partial)
            raise
        _remove_old(folder)
    except Exception:  # a full disk, or a program that JAX cannot serialize
        return


def _is_private(path: Path) -> bool:
    """Return whether only the user can write a directory, which is no link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _is_own(found, stat.S_IWGRP | stat.S_IWOTH)


def _read_private(file: Path, others: int = stat.S_IWGRP | stat.S_IWOTH) -> bytes | None:
    """Return the content of a regular file of the user; None of any other file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        return stream.read() if stat.S_ISREG(found.st_mode) and _is_own(found, others) else None


def _is_own(found: os.stat_result, others: int) -> bool:
    return found.st_uid == os.getuid() and not found.st_mode & others


def _remove_old(folder: Path) -> None:
    """Remove the programs that were not used for longest, beyond the limits."""
    files = sorted(((file.stat(), file) for file in folder.glob(f"*{_SUFFIX}")), key=lambda item: -item[0].st_mtime)
    total = 0
    for number, (found, file) in enumerate(files):
        total += found.st_size
        if number >= _MAX_PROGRAMS or (number and total > _MAX_BYTES):
            file.unlink(missing_ok=True)
