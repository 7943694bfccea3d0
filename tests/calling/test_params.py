"""Params remember which variables train, through jit, grad and pickling."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite import Variable, VariableName, merge_params, split_params
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
