import pytest

import tf2jax_lite
from tf2jax_lite.errors import ConfigError


def test_override_holds_inside_the_block_only():
    assert tf2jax_lite.get_config("strict_shape_check") is True
    with tf2jax_lite.override_config("strict_shape_check", False):
        assert tf2jax_lite.get_config("strict_shape_check") is False
    assert tf2jax_lite.get_config("strict_shape_check") is True


@pytest.mark.full
@pytest.mark.parametrize(("name", "value"), [("no_such_option", 1), ("strict_shape_check", "yes"), ([], 1)])
def test_bad_options_raise(name, value):
    with pytest.raises(ConfigError):
        tf2jax_lite.update_config(name, value)
