"""Payloads that crash MLIR: another process reads them first, and this one lives."""

import resource
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite.errors import ExportError, InvalidModelError, LimitError
from tf2jax_lite.export import export_functions, load
from tf2jax_lite.stablehlo.parsing import isolation

FINDINGS = Path(__file__).parent.parent.parent.parent / "testdata" / "fuzz"


@pytest.fixture(scope="module")
def payload():
    fn = jax.jit(lambda x: jax.numpy.tanh(x) * 2)
    return jax.export.export(fn)(jax.ShapeDtypeStruct((3,), np.float32)).mlir_module_serialized


def damaged():
    """Return a payload with a source name that is not UTF-8.

    Asking jaxlib for it ends the process.
    """
    return (FINDINGS / "stablehlo_bytes-location-utf8.bin").read_bytes()


@pytest.mark.full
def test_a_payload_that_crashes_mlir_is_an_error(payload):
    with pytest.raises(InvalidModelError, match="MLIR crashes"):
        tf2jax_lite.from_stablehlo(damaged())
    # The process was restarted; cached results need none.
    np.testing.assert_allclose(tf2jax_lite.from_stablehlo(payload)(np.ones(3, np.float32)), np.tanh(1) * 2, rtol=1e-6)
    with pytest.raises(InvalidModelError, match="MLIR crashes"):
        isolation.check_payload(damaged())


def test_bytecode_that_asks_for_gigabytes(payload):
    """Fuzzing found 1.7 kB for which MLIR allocates 3.4 GiB, in the child."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidModelError, match="MLIR"):
        tf2jax_lite.from_stablehlo((FINDINGS / "stablehlo_bytes-gigabytes.bin").read_bytes())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
    isolation.check_payload(payload)


def test_a_process_that_was_killed_is_started_again(payload):
    isolation.check_payload(payload)
    running = isolation._parser._running()
    running.kill()
    running.wait()
    isolation._parser._known.clear()
    isolation.check_payload(payload)


def test_an_artifact_with_such_a_payload(tmp_path, payload):
    import tensorflow as tf

    converted = tf2jax_lite.convert(tf.function(lambda x: tf.tanh(x)), tf.TensorSpec([3], tf.float32))
    export_functions({"f": converted}, tmp_path / "a", platforms=["cpu"])
    exported = jax.export.deserialize(bytearray((tmp_path / "a" / "model.stablehlo").read_bytes()))
    object.__setattr__(exported, "mlir_module_serialized", damaged())
    (tmp_path / "a" / "model.stablehlo").write_bytes(exported.serialize())
    with pytest.raises(ExportError, match="MLIR crashes"):
        load(tmp_path / "a", verify_hashes=False)


@pytest.mark.parametrize(
    "line",
    [
        "%0 = stablehlo.constant dense<1.0> : tensor<262144x262144xf32>",
        "%0 = stablehlo.iota dim = 0 : tensor<262144x262144xf32>",
    ],
)
def test_constants_that_a_few_words_declare(line):
    text = (
        "module {\n func.func public @main(%arg0: tensor<f32>) -> tensor<262144x262144xf32> {\n"
        f"  {line}\n  return %0 : tensor<262144x262144xf32>\n }}\n}}"
    )
    with pytest.raises(LimitError, match="max_constant_bytes"):
        tf2jax_lite.from_stablehlo(text)


@pytest.mark.full
def test_regions_nest_only_so_deep():
    inner = "stablehlo.return %arg0 : tensor<f32>"
    for i in range(400):
        inner = (
            f'%r{i} = "stablehlo.case"(%i) ({{\n{inner}\n}}) : (tensor<i32>) -> tensor<f32>\n'
            f"stablehlo.return %r{i} : tensor<f32>"
        )
    inner = inner.rsplit("stablehlo.return", 1)[0] + "func.return %r399 : tensor<f32>"
    text = f"module {{ func.func @main(%arg0: tensor<f32>, %i: tensor<i32>) -> tensor<f32> {{\n{inner}\n}} }}"
    with pytest.raises(InvalidModelError):
        tf2jax_lite.from_stablehlo(text)


def test_without_another_process_there_is_a_way(monkeypatch):
    # If no process can be started, trusted payloads are still read, and others are refused with the workaround.
    monkeypatch.setattr(isolation.sys, "executable", "")
    monkeypatch.setattr(isolation, "_parser", isolation._Parser())
    with pytest.raises(InvalidModelError, match=r'"trusted", "StableHLO"'):
        isolation.check_payload(b"ML\xefR new")
    with tf2jax_lite.override_config("trusted", "StableHLO"):
        isolation.check_payload(b"ML\xefR new")


@pytest.mark.full
def test_text_is_read_by_the_other_process_too():
    """MLIR allocates gigabytes for a dimension; this process never sees it."""
    text = jax.jit(lambda x: jax.lax.conv(x, x[:, :, :2, :2], (1, 1), "SAME")).lower(np.zeros((1, 1, 4, 4))).as_text()
    assert isolation._Parser().answer(text.encode())["bytes"] > 0
    assert "[b, f, 0, 1]x" in text
    damaged = text.replace("[b, f, 0, 1]x", "[b, f, 2147483647, 1]x")
    with pytest.raises(InvalidModelError, match="takes too much"):
        tf2jax_lite.from_stablehlo(damaged)


@pytest.mark.full
@pytest.mark.parametrize("dims", ["2305843009213693952", "1099511627776"])
def test_tensors_that_end_xla(dims):
    """XLA ends the process if sizes overflow."""
    text = f"""
    func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{dims}xf32>
      %1 = stablehlo.slice %0 [0:1] : (tensor<{dims}xf32>) -> tensor<1xf32>
      %2 = stablehlo.reshape %1 : (tensor<1xf32>) -> tensor<f32>
      return %2 : tensor<f32>
    }}"""
    with pytest.raises(LimitError, match="1099511627776 bytes, the maximum"):
        tf2jax_lite.from_stablehlo(text)
