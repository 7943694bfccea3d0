"""The routes of a server, their statuses, and its metrics."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.extras import installed_version

from . import requests
from .batching import Batcher, OverloadedError
from .function import ServedFunction

VERSION = "1"
"""The version of every model: an artifact has one."""
_log = logging.getLogger("tf2jax_lite")
_HEADER_LENGTH = "Inference-Header-Content-Length"


class Metrics:
    """The metrics of a server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "tf2jax_lite_requests", "Requests by route and status.", ["route", "code"], registry=self.registry
        )
        self.seconds = Histogram(
            "tf2jax_lite_request_seconds", "Time of predictions.", ["route"], registry=self.registry
        )
        self.batches = Histogram(
            "tf2jax_lite_batch_examples",
            "Examples of batches.",
            buckets=[2**n for n in range(12)],
            registry=self.registry,
        )
        self.waiting = Gauge("tf2jax_lite_waiting_requests", "Requests that wait or run.", registry=self.registry)
        self.ready = Gauge("tf2jax_lite_ready", "1 when all programs are compiled.", registry=self.registry)


class Server:
    """The application of one model: its functions, and whether they are ready.

    Attributes:
      app: the ASGI application.
      failure: the error that compiling raised, if it did.
    """

    def __init__(
        self,
        name: str,
        functions: Mapping[str, ServedFunction],
        default: str,
        *,
        wait_seconds: float,
        max_waiting: int,
        max_bytes: int,
        max_examples: int,
        read_seconds: float,
        on_ready: Callable[[], None] = lambda: None,
        on_failure: Callable[[], None] = lambda: None,
    ):
        """Make an application, which compiles when it starts.

        Args:
          name: of the model in addresses.
          functions: by signature.
          default: the signature of requests that name none.
          wait_seconds: for `Batcher`.
          max_waiting: for `Batcher`.
          max_bytes: maximum size of a request's body.
          max_examples: maximum number of examples of a request.
          read_seconds: time in which a client has to send the body.
          on_ready: called when all programs are compiled.
          on_failure: called when one cannot be compiled.
        """
        self._name, self._functions, self._default = name, functions, default
        self._max_bytes, self._max_examples, self._read_seconds = max_bytes, max_examples, read_seconds
        self._on_ready, self._on_failure = on_ready, on_failure
        self._executor = concurrent.futures.ThreadPoolExecutor(1)
        self.failure: BaseException | None = None
        self.metrics = Metrics()
        self._batchers = {
            signature: Batcher(
                function,
                wait_seconds=wait_seconds,
                max_waiting=max_waiting,
                executor=self._executor,
                observe=self.metrics.batches.observe,
            )
            for signature, function in functions.items()
        }
        self.metrics.waiting.set_function(lambda: sum(b.waiting for b in self._batchers.values()))
        self._is_ready = False
        self.app = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused, Exception: _failed},  # type: ignore[dict-item]
        )

    def _routes(self) -> list[Route]:
        v1, v2 = "/v1/models/{name}", "/v2/models/{name}"
        posts: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            (f"{v1}:predict", "v1/predict", self._predict_v1),
            (f"{v1}/versions/{VERSION}:predict", "v1/predict", self._predict_v1),
            (f"{v2}/infer", "v2/infer", self._infer_v2),
            (f"{v2}/versions/{VERSION}/infer", "v2/infer", self._infer_v2),
        ]
        gets: list[tuple[str, Callable[[Request], Awaitable[Response]]]] = [
            ("/metrics", self._metrics),
            ("/v2", self._server),
            ("/v2/health/live", self._live),
            ("/v2/health/ready", self._ready),
        ]
        for base in (v2, f"{v2}/versions/{VERSION}"):
            gets += [(base, self._model_v2), (f"{base}/ready", self._model_ready)]
        for base in (v1, f"{v1}/versions/{VERSION}"):
            gets += [(f"{base}/metadata", self._metadata_v1), (base, self._status_v1)]
        return [
            *(Route(path, self._measured(name, endpoint), methods=["POST"]) for path, name, endpoint in posts),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets),
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        compiling = asyncio.create_task(self._compile())
        yield
        compiling.cancel()
        for batcher in self._batchers.values():
            batcher.close()
        self._executor.shutdown(cancel_futures=True)

    async def _compile(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            for function in self._functions.values():
                await loop.run_in_executor(self._executor, function.compile)
        except Exception as error:
            self.failure = error
            self._on_failure()
            return
        self._is_ready = True
        self.metrics.ready.set(1)
        self._on_ready()

    # ---- predictions ----

    def _measured(
        self, route: str, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint with metrics, and statuses for errors."""

        async def handle(request: Request) -> Response:
            begin, code = time.perf_counter(), 500
            try:
                self._check_model(request)
                response = await endpoint(request)
                code = response.status_code
                return response
            except HTTPException as error:
                code = error.status_code
                raise
            except InputError as error:
                code = 400
                raise HTTPException(code, str(error)) from None
            except OverloadedError:
                code = 503
                raise HTTPException(code, "too many requests wait; try again.", {"Retry-After": "1"}) from None
            except TimeoutError:
                code = 408
                raise HTTPException(code, f"the body did not come within {self._read_seconds:g} seconds.") from None
            except ClientDisconnect:
                code = 499
                raise HTTPException(400, "the client has gone.") from None
            finally:
                self.metrics.requests.labels(route, str(code)).inc()
                self.metrics.seconds.labels(route).observe(time.perf_counter() - begin)

        return handle

    async def _predict_v1(self, request: Request) -> Response:
        body = requests.parse_json(await self._body(request))
        signature = body.get("signature_name", self._default)
        function = self._function(signature or self._default, "signature_name")
        given = requests.parse_v1(body, function)
        return _json(requests.format_v1(given, await self._run(function, given), function))

    async def _infer_v2(self, request: Request) -> Response:
        body = await self._body(request)
        function = self._functions[self._default]
        given = requests.parse_v2(body, request.headers.get(_HEADER_LENGTH), function)
        results = await self._run(function, given)
        content, length = requests.format_v2(given, results, self._name, VERSION)
        if length is None:
            return _json(content)
        return Response(content, headers={_HEADER_LENGTH: str(length)}, media_type="application/octet-stream")

    async def _run(self, function: ServedFunction, given: requests.Request) -> dict[str, Any]:
        if function.has_host:  # TensorFlow runs
            checked = await asyncio.to_thread(function.check, given.arrays, given.field)
        else:
            checked = function.check(given.arrays, given.field)
        if checked.count is not None and checked.count > self._max_examples:
            raise HTTPException(413, f"the request has {checked.count} examples; at most {self._max_examples} may be.")
        return await self._batchers[function.name](checked)

    async def _body(self, request: Request) -> bytes:
        """Return a request's body.

        Raises:
          HTTPException: the model is not ready, or the body is too large or compressed.
        """
        if not self._is_ready:
            raise HTTPException(503, "the model is not ready: it compiles.", {"Retry-After": "1"})
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise HTTPException(415, "the body is compressed; send it as it is.")
        declared = request.headers.get("Content-Length", "0")
        parts, size = [], 0
        async with asyncio.timeout(self._read_seconds):
            if not declared.isdecimal() or int(declared) <= self._max_bytes:
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > self._max_bytes:
                        break
                else:
                    return b"".join(parts)
        raise HTTPException(413, f"the body has more than {self._max_bytes} bytes.", {"Connection": "close"})

    def _function(self, signature: Any, field: str) -> ServedFunction:
        if not isinstance(signature, str) or signature not in self._functions:
            raise InputError(f"{field} is {str(signature)[:100]!r}; served are {', '.join(self._functions)}.")
        return self._functions[signature]

    # ---- health and metadata ----

    async def _live(self, request: Request) -> Response:
        return _json(b'{"live": true}')

    async def _ready(self, request: Request) -> Response:
        return _json(json.dumps({"ready": self._is_ready}).encode(), 200 if self._is_ready else 503)

    async def _server(self, request: Request) -> Response:
        found = {"name": "tf2jax-lite", "version": installed_version(), "extensions": ["binary_tensor_data"]}
        return _json(json.dumps(found).encode())

    async def _metrics(self, request: Request) -> Response:
        content = prometheus_client.generate_latest(self.metrics.registry)
        return Response(content, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    def _check_model(self, request: Request) -> None:
        name = request.path_params["name"]
        if name != self._name:
            raise HTTPException(404, f"there is no model {name[:100]!r}; served is {self._name!r}.")

    async def _model_ready(self, request: Request) -> Response:
        self._check_model(request)
        return await self._ready(request)

    async def _model_v2(self, request: Request) -> Response:
        self._check_model(request)
        function = self._functions[self._default]
        found = {
            "name": self._name,
            "versions": [VERSION],
            "platform": "jax_stablehlo",
            "inputs": [requests.tensor_v2(tensor) for tensor in function.inputs],
            "outputs": [requests.tensor_v2(tensor) for tensor in function.outputs],
        }
        return _json(json.dumps(found).encode())

    async def _status_v1(self, request: Request) -> Response:
        self._check_model(request)
        state = "AVAILABLE" if self._is_ready else "LOADING"
        status = {"version": VERSION, "state": state, "status": {"error_code": "OK", "error_message": ""}}
        return _json(json.dumps({"model_version_status": [status]}).encode())

    async def _metadata_v1(self, request: Request) -> Response:
        self._check_model(request)
        signatures = {
            name: {
                "inputs": {tensor.name: requests.tensor_v1(tensor) for tensor in function.inputs},
                "outputs": {tensor.name: requests.tensor_v1(tensor) for tensor in function.outputs},
                "method_name": "tensorflow/serving/predict",
            }
            for name, function in self._functions.items()
        }
        found = {
            "model_spec": {"name": self._name, "signature_name": "", "version": VERSION},
            "metadata": {"signature_def": {"signature_def": signatures}},
        }
        return _json(json.dumps(found).encode())


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type="application/json")


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


async def _refused(request: Request, error: HTTPException) -> Response:
    response = _json(_error(error.detail), error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return _json(_error("the server failed; its log has the reason."), 500)
