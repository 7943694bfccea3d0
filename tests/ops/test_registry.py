"""The registry reads options and signatures once, and raises if unclear."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.errors import RegistrationError
from tf2jax_lite.ops import registry, traits
from tf2jax_lite.ops.registry import REQUIRED, Static, lookup, op, override_op
from tf2jax_lite.ops.traits import Bound, Key, OpOptions, Option, Unconditional, Update, partial_fold


def _described(fn, **options):
    with override_op("TestOnly", fn, **options):
        return lookup("TestOnly")


def test_signature_is_read():
    def fn(x, axis: Static, *, keep_dims=False, T, key: Key | None = None):
        return x

    entry = _described(fn, draws=lambda attrs: attrs["keep_dims"])
    assert entry.inputs == ("x", "axis")
    assert entry.static == {"axis"}
    assert (entry.attrs, entry.required_attrs) == ({"keep_dims", "T"}, {"T"})
    assert entry.key == "key"
    assert [entry.draws_random({"keep_dims": v}) for v in (False, True)] == [False, True]
    assert not entry.plain
    assert lookup("TestOnly") is None


def test_defaults_are_those_of_an_elementwise_op():
    entry = _described(lambda x: x)
    assert {f.name: getattr(entry, f.name) for f in dataclasses.fields(OpOptions)} == vars(OpOptions())
    assert entry.plain
    assert not (entry.effectful or entry.needs_context or entry.folds_partially or entry.draws_random({}))
    assert entry.key is entry.bound is entry.shapes is entry.unconditional is None


def test_variables_are_read_and_written():
    def fn(a: traits.Write, b: traits.Read, c: Update, d: traits.UpdateInt64, e):
        return a, c, d

    entry = _described(fn)
    assert entry.reads == ("b", "c", "d")
    assert entry.writes == ("a", "c", "d")
    assert entry.int64_state == ("d",)
    assert entry.effectful
    assert not entry.plain


def test_keywords_of_the_lowering_are_no_attributes():
    def fn(
        ctx: traits.Context,
        x,
        *,
        n=0,
        bound: Bound,
        dynamic: DynamicShapes | None,
        sure: Unconditional,
        o: Option[bool],
    ):
        return x

    entry = _described(fn, fold=lambda ctx, x: x)
    assert entry.needs_context
    assert entry.folds_partially
    assert entry.inputs == ("x",)
    assert entry.attrs == {"n"}
    assert (entry.bound, entry.always_pads, entry.shapes, entry.unconditional) == ("bound", False, "dynamic", "sure")
    assert entry.config_options == ("o",)


def test_partial_fold_is_unwrapped():
    def fold(x):
        return x

    assert _described(lambda x: x, fold=fold).fold is fold
    entry = _described(lambda x: x, fold=partial_fold(fold))
    assert entry.fold is fold
    assert entry.folds_partially
    assert partial_fold(fold)(3) == 3


def test_fold_gets_the_attributes_that_it_names():
    def fold(x, *, n, m):
        return x, n, m

    def fn(x, *, n=1, m, other=0, bound: Bound):
        return x

    assert _described(fn, fold=fold).fold(0, m=2, other=5, bound=3) == (0, 1, 2)
    assert _described(fn, fold=lambda x, **attrs: attrs).fold(0, m=2, bound=3) == {"n": 1, "m": 2, "other": 0}


def test_variants_of_an_op_share_a_function():
    def fn(*, x, size=None, n):
        return x, size, n

    with override_op("TestV1", fn, inputs="x", attributes={"n": 4}):
        entry = lookup("TestV1")
        assert (entry.inputs, entry.attrs, entry.required_attrs) == (("x",), {"n"}, frozenset())
        assert entry.fn(1) == (1, None, 4)
    with override_op("TestV2", fn, inputs="x size:Static", attributes={"n": REQUIRED, "key:Key": None}):
        entry = lookup("TestV2")
        assert (entry.static, entry.required_attrs, entry.key) == ({"size"}, {"n"}, "key")


def test_check_gets_attributes_and_dtypes_of_inputs():
    found = []

    def check(attrs, dtypes):
        found.append((attrs, dtypes))

    with override_op("BiasAdd", lambda value, bias, *, data_format: value, check=check):
        tf2jax.convert(tf.function(lambda x: tf.nn.bias_add(x, tf.ones(2))), np.ones((1, 2), np.float32))
    (attrs, dtypes), *_ = found
    assert attrs == {"data_format": "NHWC"} and dtypes == {"value": np.float32, "bias": np.float32}


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        ("Static", {"Static": Static}, "STATIC"),
        ("traits.Update", {"traits": traits}, "UPDATE"),
        ("Key | None", {"Key": Key}, "KEY"),
        ("Update[np.ndarray]", {"Update": Update, "np": np}, "UPDATE"),
        ("Static", {}, "STATIC"),
        ("traits.Option[bool]", {}, "OPTION"),
        (f"{DynamicShapes.__name__} | None", {}, "SHAPES"),
        ("Key", {"Key": int}, None),
        ("dict[str, Key]", {}, None),
        ("list[Static]", {"Static": Static}, None),
        ("int | None", {}, None),
    ],
)
def test_marker_of_text_is_found(text, namespace, expected):
    marker = traits.marker_of(text, namespace)
    assert (marker and marker.name) == expected


def test_second_registration_names_the_first():
    @op("TestTwice")
    def first(x):
        return x

    try:
        with pytest.raises(RegistrationError, match=r"already registered at .*test_registry\.py"):
            op("TestTwice")(first)
    finally:
        del registry._registry["TestTwice"]


def test_swallowing_attributes_is_refused():
    with pytest.raises(RegistrationError, match="swallow"):

        @op("TestSwallow")
        def swallow(x, **kwargs):
            return x


def test_unknown_option_names_those_that_exist():
    with pytest.raises(RegistrationError, match=r"unknown option \['haevy'\]; options are \['check', 'draws'"):
        op("TestUnknown", haevy=True)(lambda x: x)


@pytest.mark.parametrize("options", [{"pattern": "contraction"}, {"int64": "whole"}])
def test_wrong_value_of_an_option_is_refused(options):
    with pytest.raises(RegistrationError, match="is not"):
        op("TestValue", **options)(lambda x: x)


def test_marker_at_the_wrong_kind_of_parameter_is_refused():
    def key_as_input(x, key: Key):
        return x

    def static_as_attribute(x, *, n: Static):
        return x

    with pytest.raises(RegistrationError, match="KEY 'key' is not a keyword-only"):
        op("TestMarker")(key_as_input)
    with pytest.raises(RegistrationError, match="STATIC 'n' is not an input"):
        op("TestMarker")(static_as_attribute)


def test_override_holds_for_its_scope_only():
    before = lookup("Sum")
    with override_op("Sum", lambda x, axis, *, keep_dims=False: np.zeros(())):
        assert lookup("Sum") is not before
    assert lookup("Sum") is before


@pytest.mark.full
@pytest.mark.parametrize("name", [None, 3, "", lambda x: x])
def test_a_name_is_a_text(name):
    # The last is `@register_op` without a name: it would register nothing.
    with pytest.raises(RegistrationError, match="name is a text"):
        op(name)
    with pytest.raises(RegistrationError, match="name is a text"), override_op(name, lambda x: x):
        pass


def test_import_of_ops_registers_each_family():
    modules = {entry.fn.__module__.split(".")[2] for entry in registry.known_ops().values() if "ops" in entry.source}
    families = {"arrays", "containers", "image", "linalg", "math", "nn", "quantization", "ragged", "random", "sparse"}
    assert families | {"state", "strings", "xla"} <= modules


_FRESH = """
import sys

import numpy as np

from tf2jax_lite.ops import registry

rare = {"tf2jax_lite.ops.sparse.csr", "tf2jax_lite.ops.nn.cudnn_rnn", "tf2jax_lite.ops.quantization.tf1"}
ops = registry.ops_in_force()
assert registry.lookup("Conv2D") and "MatMul" in ops and not rare & sys.modules.keys()
assert registry.lookup("CudnnRNN") and rare <= sys.modules.keys()
assert "UniformQuantize" in ops and registry.lookup("NoSuchOp") is None and "NoSuchOp" not in ops
"""

_TAKEN = """
from tf2jax_lite.errors import RegistrationError
from tf2jax_lite.ops import registry

try:
    registry.register_op("CudnnRNN")(lambda x: x)
except RegistrationError as error:
    assert "already registered" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.parametrize("program", [_FRESH, _TAKEN], ids=["lookup", "name taken"])
def test_rare_ops_are_imported_when_they_are_needed(program):
    subprocess.run([sys.executable, "-c", program], check=True)
