"""Numeric options: accepted values and error messages."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.learning.checks import check_number


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (1, {}),
        (np.float32(0.5), {"above": 0, "most": 1}),
        (jnp.float32(0.5), {"above": 0}),
        (np.array(3), {"whole": True}),
        (np.int64(3), {"whole": True, "least": 3, "most": 3}),
        (math.inf, {"above": 0, "infinite": True}),
    ],
)
def test_accepted_values(value, limits):
    check_number("Factory", "option", value, **limits)


@pytest.mark.parametrize(
    ("value", "limits", "says"),
    [
        (math.nan, {}, "Factory: option is a finite number, not nan"),
        (math.nan, {"infinite": True}, "is a number, not nan"),
        (-math.inf, {"above": 0, "infinite": True}, "is a number above 0, not -inf"),
        (0, {"above": 0}, "is a finite number above 0, not 0"),
        (0.5, {"least": 0, "below": 0.5}, "at least 0 and below 0.5, not 0.5"),
        (9, {"least": 0, "most": 8, "whole": True}, "an integer at least 0 and at most 8, not 9"),
        (1.5, {"whole": True}, "an integer, not 1.5"),
        (1.0, {"whole": True}, "an integer, not 1.0"),
        (True, {}, "not True"),
        (np.bool_(True), {}, "True"),
        ("1", {}, "not '1'"),
        (None, {}, "not None"),
        (np.ones(2), {}, "not array"),
        (1j, {}, "not 1j"),
    ],
)
def test_what_is_refused(value, limits, says):
    with pytest.raises(InputError) as caught:
        check_number("Factory", "option", value, **limits)
    assert says in str(caught.value)
    with pytest.raises(DataError):
        check_number("Factory", "option", value, error=DataError, **limits)
