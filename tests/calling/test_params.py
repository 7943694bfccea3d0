"""Params remember which variables train, through jit, grad and pickling."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite import Variable, VariableName, flatten_params, merge_params, nest_params, split_params
from tf2jax_lite.errors import InputError


def _params():
    return {
        VariableName("w", True): Variable(np.ones((2, 3), np.float32), True, "w"),
        VariableName("mean", False): Variable(np.zeros(3, np.float32), False, "mean"),
    }


def test_split_and_merge():
    trainable, other = split_params(_params())
    assert list(trainable) == ["w"]
    assert list(other) == ["mean"]
    merged = merge_params(trainable, other)
    assert set(merged) == {"w", "mean"}


@pytest.mark.full
def test_trainable_survives_jit_grad_and_tree_map():
    params = jax.tree.map(lambda v: v * 2, _params())
    params = jax.jit(lambda p: {**p})(params)
    trainable, other = split_params(params)
    assert (list(trainable), list(other)) == (["w"], ["mean"])
    grads = jax.grad(lambda p: jnp.sum(p["w"] ** 2))(trainable)
    assert split_params(grads)[0].keys() == {"w"}


def test_variable_survives_pickling_and_views():
    value = pickle.loads(pickle.dumps(Variable(np.arange(3.0), True, "v")))
    assert value.trainable and value.name == "v"
    assert value[1:].trainable
    key = pickle.loads(pickle.dumps(VariableName("v", True)))
    assert key == "v" and key.trainable


def test_assigned_variables_keep_name_and_kind():
    value = Variable(np.arange(3.0), True, "v").assign(np.float32([1, 2]))
    assert isinstance(value, Variable) and value.trainable and value.name == "v" and value.dtype == np.float32
    np.testing.assert_array_equal(value, [1, 2])


def test_params_without_trainable_flag_raise():
    with pytest.raises(InputError, match="whether these params train"):
        split_params({"w": np.ones(3)})


@pytest.mark.full
def test_merging_a_variable_twice_raises():
    with pytest.raises(InputError, match="more than one part"):
        merge_params(_params(), _params())


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a/b/c": 1, "a/b/d": 2, "e": 3}, {"a": {"b": {"c": 1, "d": 2}}, "e": 3}),
        ({"a": 1, "a/b": 2}, {"a": 1, "a/b": 2}),
        ({"a/b/c": 1, "a/b": 2, "a/b/c/d": 3}, {"a": {"b": 2, "b/c": 1, "b/c/d": 3}}),
        ({"": 1, "/": 2, "/x//y": 3}, {"": 1, "/": 2, "/x": {"": {"y": 3}}}),
        ({}, {}),
    ],
)
def test_nested_params(flat, nested):
    """A param whose name is also a scope stays beside the params of that scope."""
    assert nest_params(flat) == nested
    assert flatten_params(nested) == flat
    backwards = dict(reversed(flat.items()))
    assert nest_params(backwards) == nested


@pytest.mark.full
def test_nested_params_remember_which_train():
    flat = {VariableName("a/b", True): 1, VariableName("a/c", False): 2, "d": 3}
    found = jax.tree.map(lambda x: x, nest_params(flat))
    assert {key: key.trainable for key in found["a"]} == {"b": True, "c": False}
    again = flatten_params(found)
    assert again == flat
    assert {k: getattr(k, "trainable", None) for k in again} == {"a/b": True, "a/c": False, "d": None}


def test_nested_params_of_one_name():
    with pytest.raises(InputError, match="the name 'a/b'"):
        flatten_params({"a/b": 1, "a": {"b": 2}})
