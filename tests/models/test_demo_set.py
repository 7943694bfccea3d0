"""The demo set from file to artifact: all forms agree; faults are found."""

import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.model_files import convert_file

from .demo_set import DEMO_SET

NAMES = [pytest.param(name, marks=pytest.mark.full) if demo.slow else name for name, demo in DEMO_SET.items()]


@pytest.mark.default_cases("digits_cnn")
@pytest.mark.parametrize("name", NAMES)
def test_every_form_agrees_with_tensorflow(name, tmp_path):
    path, inputs = DEMO_SET[name].make(tmp_path)
    functions = convert_file(path, signatures=["serving_default"])
    shapes = [",".join(["b", *map(str, x.shape[1:])]) for x in inputs.values()]
    report = tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"], shapes=shapes)
    assert not report.warnings  # source, and StableHLO with derivatives
    # In-process and both backends against TensorFlow itself.
    options = {"signatures": ["serving_default"], "backends": ("stablehlo", "source")}
    (signature,) = tf2jax.verify(path, tmp_path / "out", inputs=inputs, **options).signatures
    assert signature.ok, signature
    assert {o.against for o in signature.outputs} == {"jax", "stablehlo", "source"}
    assert max(output.max_rel_error for output in signature.outputs) <= 1e-5


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_located(name, tmp_path):
    demo = DEMO_SET[name]
    path, inputs = demo.make(tmp_path)
    with tf2jax.override_op(demo.op, demo.wrong, **demo.options):
        (signature,) = tf2jax.verify(path, inputs=inputs, signatures=["serving_default"]).signatures
    assert not signature.ok and not signature.error
    first = signature.bisection.suspects[0]
    assert first.op == demo.op and demo.within in first.path, signature.bisection.summary
    assert {s.op for s in signature.bisection.suspects} == {demo.op}
