"""The command `serve` on the bundled model: requests, batches, limits, its end."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

import tf2jax_lite as tf2jax
import tf2jax_lite.demo

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[2]
IMAGES = np.random.default_rng(0).random((40, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="package")
def digits(tmp_path_factory):
    """Return the artifact of the bundled model, and its probabilities."""
    from typer.testing import CliRunner

    from tf2jax_lite.cli.app import app

    out = tmp_path_factory.mktemp("digits") / "digits"
    model = Path(tf2jax_lite.demo.__file__).parent / "digits_cnn"
    result = CliRunner().invoke(app, ["convert", str(model), str(out), "--platforms", "cpu", "--quiet"])
    assert result.exit_code == 0, result.output
    fn, params = tf2jax.load(out, "serving_default")
    return out, np.asarray(next(iter(fn(params, IMAGES)[0].values())))


@contextlib.contextmanager
def serving(*options):
    """Run the command; yield its port and process when it is ready."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tf2jax_lite", "serve", *map(str, options), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = int(re.search(r"http://127.0.0.1:(\d+), compiling", process.stdout.readline())[1])
            assert "is ready" in process.stdout.readline()
            yield port, process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(digits):
    with serving(
        digits[0], "--max-batch", 8, "--batch-ms", 20, "--max-request-bytes", 100_000, "--max-request-examples", 40
    ) as (port, _):
        yield port


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        return response.read()


def post(port, path, body, headers=None):
    """Return status, parsed body, headers."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", content, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_health_and_metadata(server):
    assert json.loads(get(server, "/v2/health/live")) == {"live": True}
    for path in ("/v2/health/ready", "/v2/models/digits/ready", "/v2/models/digits/versions/1/ready"):
        assert json.loads(get(server, path)) == {"ready": True}
    found = json.loads(get(server, "/v2/models/digits"))
    assert found["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 8, 8, 1]}]
    (output,) = found["outputs"]
    assert output["datatype"] == "FP32" and output["shape"] == [-1, 10]
    assert json.loads(get(server, "/v1/models/digits"))["model_version_status"][0]["state"] == "AVAILABLE"
    described = json.loads(get(server, "/v1/models/digits/metadata"))
    signature = described["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["image"]["dtype"] == "DT_FLOAT"
    assert [d["size"] for d in signature["inputs"]["image"]["tensor_shape"]["dim"]] == ["-1", "8", "8", "1"]


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("form", ["rows", "rows by name", "columns", "columns by name", "v2", "v2 nested", "v2 binary"])
def test_predictions_are_those_of_the_artifact(form, count, server, digits):
    """20 examples are more than a batch."""
    images, expected = IMAGES[:count], digits[1][:count]
    name = json.loads(get(server, "/v2/models/digits"))["outputs"][0]["name"]
    if form.startswith("v2"):
        data = images.tolist() if form == "v2 nested" else images.ravel().tolist()
        entry = {"name": "image", "shape": list(images.shape), "datatype": "FP32", "data": data}
        body, headers = {"id": "7", "inputs": [entry]}, {}
        if form == "v2 binary":
            del entry["data"]
            entry["parameters"] = {"binary_data_size": images.nbytes}
            body["parameters"] = {"binary_data_output": True}
            header = json.dumps(body).encode()
            body, headers = header + images.tobytes(), {"Inference-Header-Content-Length": str(len(header))}
        status, content, given = post(server, "/v2/models/digits/infer", body, headers)
        assert status == 200, content
        length = int(given.get("Inference-Header-Content-Length", len(content)))
        found = json.loads(content[:length])
        assert found["id"] == "7" and found["model_name"] == "digits"
        (output,) = found["outputs"]
        values = np.frombuffer(content[length:], np.float32) if form == "v2 binary" else output["data"]
        scores = np.reshape(values, output["shape"])
    else:
        rows = [{"image": image} for image in images.tolist()] if "name" in form else images.tolist()
        columns = {"image": images.tolist()} if "name" in form else images.tolist()
        body = {"instances": rows} if "rows" in form else {"inputs": columns}
        status, content, _ = post(server, "/v1/models/digits:predict", {**body, "signature_name": "serving_default"})
        assert status == 200, content
        scores = json.loads(content)["predictions" if "rows" in form else "outputs"]
    assert name and np.shape(scores) == (count, 10)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_concurrent_requests_run_in_batches(server, digits):
    def samples():
        text = get(server, "/metrics").decode()
        return {
            kind: float(re.search(rf"^tf2jax_lite_batch_examples_{kind} (\S+)$", text, re.MULTILINE)[1])
            for kind in ("count", "sum")
        }

    def ask(number):
        status, content, _ = post(server, "/v1/models/digits:predict", {"instances": [IMAGES[number].tolist()]})
        assert status == 200, content
        return json.loads(content)["predictions"][0]

    before = samples()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(40)))
    after = samples()
    np.testing.assert_allclose(found, digits[1], rtol=1e-5, atol=1e-6)
    assert after["sum"] - before["sum"] == 40 and after["count"] - before["count"] < 30


V1, V2 = "/v1/models/digits:predict", "/v2/models/digits/infer"
IMAGE = IMAGES[0].tolist()
ENTRY = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "FP32", "data": [0.0] * 64}
LENGTH = "Inference-Header-Content-Length"


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "says"),
    [
        (V1, b"", {}, 400, "the body is not JSON"),
        (V1, b"[" * 50_000, {}, 400, "the body is not JSON"),
        (V1, b"\xff\xfe{}", {}, 400, "the body is not JSON"),
        (V1, [1], {}, 400, "the body is a JSON object, not a list"),
        (V1, {}, {}, 400, "either instances"),
        (V1, {"instances": [IMAGE], "inputs": [IMAGE]}, {}, 400, "either instances"),
        (V1, {"instances": []}, {}, 400, "instances is empty"),
        (V1, {"instances": 3}, {}, 400, "instances is a list, not a number"),
        (V1, {"instances": [[1, 2], [3]]}, {}, 400, "instances is no array"),
        (V1, {"instances": [["a"]]}, {}, 400, "instances has elements that are not numbers"),
        (V1, {"instances": [[1, 2]]}, {}, 400, "instances has the shape [1, 2]; for 1 examples the model takes"),
        (V1, {"instances": [{"image": IMAGE}, {"x": 1}]}, {}, 400, "instances[1] is an object with the keys"),
        (V1, {"instances": [{"picture": IMAGE}]}, {}, 400, "instances[*].picture is no input of the model"),
        (V1, {"inputs": {"image": [10**30]}}, {}, 400, "inputs.image has elements that are not numbers of up"),
        (V1, {"inputs": {}}, {}, 400, "the input 'image' is missing"),
        (V1, {"instances": [IMAGE], "signature_name": "x"}, {}, 400, "signature_name is 'x'; served are serving_d"),
        (V1, {"instances": [IMAGE] * 41}, {}, 413, "the request has 41 examples; at most 40 may be"),
        (V1, b" " * 100_001, {}, 413, "the body has more than 100000 bytes"),
        (V1, {"instances": [IMAGE]}, {"Content-Encoding": "gzip"}, 415, "the body is compressed"),
        ("/v1/models/other:predict", {"instances": [IMAGE]}, {}, 404, "no model 'other'; served is 'digits'"),
        ("/v1/models/digits:classify", {}, {}, 405, "Method Not Allowed"),
        ("/v2/health/live", {}, {}, 405, "Method Not Allowed"),
        (V2, {}, {}, 400, "inputs is a list, not missing or null"),
        (V2, {"inputs": [{}]}, {}, 400, "inputs[0].name is text, not missing or null"),
        (V2, {"inputs": [ENTRY, ENTRY]}, {}, 400, "inputs[1].name is 'image' a second time"),
        (V2, {"inputs": [{**ENTRY, "shape": [1, -8]}]}, {}, 400, "inputs[0].shape is a list of at most"),
        (V2, {"inputs": [{**ENTRY, "shape": [2**30, 2**30, 0]}]}, {}, 400, "inputs[0].data has 64 elements"),
        (V2, {"inputs": [{**ENTRY, "datatype": "STRING"}]}, {}, 400, "inputs[0].datatype is one of"),
        (V2, {"inputs": [{**ENTRY, "datatype": "BYTES"}]}, {}, 400, "inputs[0].data[0] is text, not a number"),
        (V2, {"inputs": [{**ENTRY, "datatype": "INT8"}]}, {}, 400, "inputs[0].data has elements that INT8 cannot"),
        (V2, {"inputs": [{**ENTRY, "data": [0.0]}]}, {}, 400, "inputs[0].data has 1 elements"),
        (V2, {"inputs": [{**ENTRY, "shape": [64]}]}, {}, 400, "inputs[0] ('image') has the shape [64]"),
        (
            V2,
            {"inputs": [{**ENTRY, "shape": [0, 8, 8, 1], "data": []}]},
            {},
            400,
            "inputs[0] ('image') has the shape [0",
        ),
        (V2, {"inputs": [ENTRY], "outputs": [{"name": "x"}]}, {}, 400, "outputs[0].name is 'x'; the model has"),
        (V2, {"inputs": [ENTRY], "id": 7}, {}, 400, "id is text, not a number"),
        (V2, {"inputs": [ENTRY]}, {LENGTH: "999999"}, 400, "Inference-Header-Content-Length is the size"),
        (V2, b"{}x", {LENGTH: "2"}, 400, "inputs is a list"),
        (V2, {"inputs": [{**ENTRY, "parameters": {"binary_data_size": 4}}]}, {}, 400, "binary_data_size is 4; FP32 of"),
    ],
)
def test_request_that_does_not_fit_names_its_field(path, body, headers, status, says, server):
    code, content, _ = post(server, path, body, headers)
    error = json.loads(content)["error"]
    assert (code, says in error) == (status, True), error


def test_body_without_a_length_is_limited(server):
    connection = HTTPConnection("127.0.0.1", server, timeout=60)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server does not read the rest
        connection.request("POST", V1, iter([b" " * 50_000] * 3), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert post(server, V1, {"instances": [IMAGE]})[0] == 200


def test_metrics_count_requests_by_status(server):
    post(server, V1, {"instances": [IMAGE]})
    post(server, V1, {})
    text = get(server, "/metrics").decode()
    for code in (200, 400):
        assert float(re.search(rf'requests_total{{code="{code}",route="v1/predict"}} (\S+)', text)[1]) >= 1
    assert "tf2jax_lite_ready 1.0" in text and "process_resident_memory_bytes" in text


def test_sigterm_answers_running_requests(digits):
    """They wait for others when the signal comes; the process ends with 0."""
    answers = []
    with serving(digits[0], "--batch-ms", 1500, "--name", "other") as (port, process):

        def ask():
            answers.append(post(port, "/v1/models/other:predict", {"instances": [IMAGE]})[0])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and b"waiting_requests 3.0" not in get(port, "/metrics"):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert answers == [200] * 3
        assert process.wait(60) == 0


def test_options_that_do_not_fit(digits, tmp_path):
    from tf2jax_lite.artifacts.serve import serve_artifact
    from tf2jax_lite.errors import ExportError, InputError

    for options, kind, says in (
        ({"signatures": ["x"]}, ExportError, "no signature 'x'"),
        ({"batch_sizes": [0]}, InputError, "batch_sizes are integers"),
        ({"dimensions": ["s"]}, InputError, "dimensions= takes NAME=SIZE"),
        ({"port": 65536}, InputError, "port is an integer"),
        ({"host": "192.0.2.1"}, InputError, "cannot be bound"),
    ):
        with pytest.raises(kind, match=says):
            serve_artifact(digits[0], **options)
    with pytest.raises(ExportError, match="is not an artifact"):
        serve_artifact(tmp_path)


def test_kserve_file_of_the_page_names_what_the_server_has(digits):
    """Its arguments start the command; its ports, probes and metrics are the server's."""
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "docs" / "serving.md").read_text()
    file = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    (container,) = file["spec"]["predictor"]["containers"]
    command, _, *args = container["args"]
    given = dict(zip(args[::2], args[1::2], strict=True))
    assert (
        command == "serve"
        and int(given["--grace-seconds"]) < file["spec"]["predictor"]["terminationGracePeriodSeconds"]
    )
    annotations = file["metadata"]["annotations"]
    ports = {container["ports"][0]["containerPort"], int(annotations["prometheus.kserve.io/port"])}
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert ports | {probe["port"] for probe in probes} == {int(given["--port"])}
    with serving(digits[0], *args, "--host", "127.0.0.1") as (port, _):
        for path in (annotations["prometheus.kserve.io/path"], *(probe["path"] for probe in probes)):
            assert get(port, path)
        name = file["metadata"]["name"]
        assert post(port, f"/v2/models/{name}/infer", {"inputs": [ENTRY]})[0] == 200
