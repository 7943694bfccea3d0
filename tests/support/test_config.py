import pytest

import tf2jax_lite
from tf2jax_lite.errors import ConfigError


def test_override_holds_inside_the_block_only():
    assert tf2jax_lite.get_config("strict_shape_check") is True
    with tf2jax_lite.override_config("strict_shape_check", False):
        assert tf2jax_lite.get_config("strict_shape_check") is False
    assert tf2jax_lite.get_config("strict_shape_check") is True


def test_options_of_tf2jax_have_its_names_and_defaults():
    defaults = {
        "strict_shape_check": True,
        "strict_dtype_check": False,
        "force_const_float32_to_bfloat16": False,
        "force_const_float64_to_bfloat16": False,
        "convert_custom_gradient": True,
        "infer_relu_from_jax2tf": True,
        "infer_cumulative_reduction_from_jax2tf": True,
        "raise_on_prevent_gradient": True,
        "resize_bilinear_precision": "highest",
        "enable_checkify_for_asserts": False,
        "xlacallmodule_strict_checks": True,
    }
    assert {name: tf2jax_lite.get_config(name) for name in defaults} == defaults


@pytest.mark.full
@pytest.mark.parametrize(("name", "value"), [("no_such_option", 1), ("strict_shape_check", "yes"), ([], 1)])
def test_bad_options_raise(name, value):
    with pytest.raises(ConfigError):
        tf2jax_lite.update_config(name, value)


LISTS = [("passes", "cse"), ("passes", "dilated_conv"), ("passes", "drop_unit_axes"), ("xla_cpu_rules", "depthwise")]


@pytest.mark.parametrize(("option", "name"), LISTS)
def test_options_that_choose_names_take_the_same_values(option, name):

    def found(value):
        with tf2jax_lite.override_config(option, value):
            return tf2jax_lite.get_config(option)

    assert tf2jax_lite.get_config(option) is found(True) is found("all") is True
    assert found(False) is found("none") is found(()) is False
    assert found(name) == found({name}) == found(f" {name}") and name in found(name)
    others = found(f"-{name}")
    assert name not in others and found(others) == others and found([*others, name]) is True
    for value, message in (
        (name[:-1], f"{option!r} has no name .*Did you mean {name!r}"),
        ("", f"{option!r} has no name ''. The names are "),
        (f"{name},-{name}", f"{option!r} takes names all or none of which have a '-'"),
        (1, f"{option!r} takes 'all', 'none' or names, got 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            tf2jax_lite.update_config(option, value)
