"""The command ``serve``: an artifact over HTTP."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.artifacts.options import ServeOptions
from tf2jax_lite.export.hub import local_artifact
from tf2jax_lite.export.metadata import named_signature, read_metadata
from tf2jax_lite.serving.function import ServedFunction
from tf2jax_lite.support.errors import ExportError, InputError, MissingLibraryError
from tf2jax_lite.support.extras import require_device
from tf2jax_lite.support.limits import reading
from tf2jax_lite.support.options import takes

_LIBRARIES = ("starlette", "uvicorn", "prometheus_client")


@takes(ServeOptions)
def serve_artifact(path: str | Path, *, progress: Callable[[str], None] = lambda line: None, **options: Any) -> None:
    """Serve an artifact over HTTP until the process gets SIGTERM or SIGINT.

    Requests that have begun are answered before it returns. The routes are those of KServe V2 and of TensorFlow
    Serving's REST, and ``/metrics``. Its address has neither encryption nor accounts.

    Args:
      path: the artifact, as for `tf2jax_lite.load`.
      progress: called with a line when the server listens, and when it is ready.
      **options: of `ServeOptions`.

    Raises:
      MissingLibraryError: the libraries of the extra ``serve`` are missing.
      ExportError: the artifact is damaged, or a program cannot be compiled.
      InputError: an option does not fit the artifact, or the address is taken.
    """
    given = ServeOptions(**options)
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingLibraryError(f"serve needs {', '.join(missing)}: pip install 'tf2jax-lite[serve]'")
    require_device()
    folder = local_artifact(path)
    name = given.name or Path(folder).resolve().name
    with reading(str(folder), ExportError):
        default, functions = _functions(folder, given)
    count = sum(function.number_of_programs for function in functions.values())
    _run(name, functions, default, given, lambda line: progress(line.format(name=name, count=count)))


def _functions(folder: Path, given: ServeOptions) -> tuple[str, dict[str, ServedFunction]]:
    """Return the default signature, and the functions by signature."""
    metadata = read_metadata(folder)
    chosen = list(given.signatures) or [named_signature(metadata, None)[0]]
    for signature in chosen:
        named_signature(metadata, signature)
    default = "serving_default" if "serving_default" in chosen else chosen[0]
    dimensions = _dimensions(given.dimensions)
    functions = {
        signature: ServedFunction(
            folder,
            signature,
            batch_sizes=given.padded_sizes,
            dimensions=dimensions,
            backend=given.backend,
            seed=given.seed,
            cache=given.cache,
        )
        for signature in chosen
    }
    return default, functions


def _dimensions(given: Sequence[str]) -> Mapping[str, list[int]]:
    """Return sizes of dimensions by name, of texts ``s=128``."""
    found: dict[str, list[int]] = {}
    for text in given:
        name, equals, size = text.partition("=")
        if not equals or not size.isdecimal() or not int(size):
            raise InputError(f"dimensions= takes NAME=SIZE, such as s=128, not {text!r}.")
        found.setdefault(name.strip(), []).append(int(size))
    return found


def _run(
    name: str,
    functions: Mapping[str, ServedFunction],
    default: str,
    given: ServeOptions,
    progress: Callable[[str], None],
) -> None:
    """Serve functions until a signal ends it."""
    import uvicorn

    from tf2jax_lite.serving.http import Server

    server = Server(
        name,
        functions,
        default,
        wait_seconds=given.batch_ms / 1000,
        max_waiting=given.max_waiting,
        max_bytes=given.max_request_bytes,
        max_examples=given.max_request_examples,
        read_seconds=given.read_seconds,
        on_ready=lambda: progress("{name} is ready; {count} programs are compiled"),
        on_failure=lambda: setattr(running, "should_exit", True),
    )
    config = uvicorn.Config(
        server.app,
        host=given.host,
        port=given.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=given.grace_seconds,
        limit_concurrency=4 * given.max_waiting,
        h11_max_incomplete_event_size=1 << 16,
    )
    running = uvicorn.Server(config)
    try:
        socket = config.bind_socket()
    except SystemExit as error:  # uvicorn has logged the reason
        raise InputError(f"{given.host}:{given.port} cannot be bound; choose another port.") from error
    address = socket.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    progress(f"{{name}} at http://{host}:{address[1]}, compiling {{count}} programs")
    # uvicorn raises the signal again when it has ended, for the handler that was there before.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        running.run(sockets=[socket])
    finally:
        signal.signal(signal.SIGTERM, before)
        socket.close()
    if server.failure is not None:
        raise server.failure
