"""The registry reads an op's signature once, and refuses what it cannot mean."""

import numpy as np
import pytest

from tf2jax_lite.errors import RegistrationError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.registry import Static, lookup, op, override_op


def test_signature_is_read():
    def fn(x, axis: Static, *, keep_dims=False, key=None):
        return x

    with override_op("TestOnly", fn, needs_key=True):
        entry = lookup("TestOnly")
        assert entry.inputs == ("x", "axis")
        assert entry.static == {"axis"}
        assert entry.attrs == {"keep_dims"}
        assert entry.needs_key
    assert lookup("TestOnly") is None


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


def test_unknown_variable_input_is_refused():
    with pytest.raises(RegistrationError, match="not an input"):
        op("TestReads", reads=("var",))(lambda x: x)


def test_override_holds_for_its_scope_only():
    before = lookup("Sum")
    with override_op("Sum", lambda x, axis, *, keep_dims=False: np.zeros(())):
        assert lookup("Sum") is not before
    assert lookup("Sum") is before


@pytest.mark.full
@pytest.mark.parametrize("name", [None, 3, "", lambda x: x])
def test_a_name_is_a_text(name):
    # The last is what `@register_op` without a name comes to: it would register nothing.
    with pytest.raises(RegistrationError, match="name is a text"):
        op(name)
    with pytest.raises(RegistrationError, match="name is a text"), override_op(name, lambda x: x):
        pass
