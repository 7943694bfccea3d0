"""Name values for their role.

The role is that of the layer that they are the result of, or that of the idiom that they belong to. Names that
TensorFlow gives ops are no roles; other names of nodes, which the model's author has chosen, stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import scan_counts

from .block_ir import Block, Equation, Literal, Value

_OPS = frozenset(
    """abs add add_n add_v2 all any arg_max arg_min argmax argmin batch_mat_mul batch_mat_mul_v2 batchnorm bias_add
    broadcast_in_dim broadcast_to cast ceil clip_by_value concat concat_v2 conv1d conv2d convolution cumsum
    depthwise depthwise_conv2d div div_no_nan einsum elu embedding_lookup equal erf exp expand_dims fill floor
    floor_div floor_mod fused_batch_norm gather gather_nd gather_v2 gelu greater greater_equal identity identity_n
    invert_permutation l2_loss leaky_relu less less_equal log log_softmax logical_and logical_not logical_or
    loop_cond mat_mul matmul max max_pool max_pool2d maximum mean merge min minimum mod moments mul multiply neg
    next_iteration normalize not_equal one_hot ones ones_like pack pad pad_v2 partitioned_call pow power prod range
    rank re_lu re_lu6 read read_variable_op real_div realdiv reciprocal relu relu6 reshape resource_gather reverse
    reverse_v2 round rsqrt scatter_nd select select_v2 selu shape sigmoid sign silu slice softmax softplus softsign
    sparse_to_dense split split_v sqrt square squared_difference squeeze stack state stateful_partitioned_call
    stop_gradient strided_slice sub subtract sum swish switch tanh tensor_array_read tensor_array_v2_read
    tensor_list_from_tensor tensor_list_get_item tensor_list_set_item tensor_list_stack tensordot tile top_k top_kv2
    transpose truediv unpack unstack value variance where while x y zeros zeros_like""".split()  # noqa: SIM905
)
"""Names of nodes that TensorFlow gives by default, in snake case."""

_RESULTS = {
    "_lstm_cell": ("hidden", "cell"),
    "_gru_cell": ("hidden",),
    "_attention": ("attended",),
    "jax.nn.softmax": ("probabilities",),
    "jnp.mean": ("mean",),
    "jnp.var": ("variance",),
    "jax.nn.one_hot": ("one_hot",),
    "jax.nn.log_softmax": ("log_probabilities",),
}
"""Roles of the results of functions."""
_CLASSES = {
    "normalized": "batch_normalization group_normalization layer_normalization rms_normalization unit_normalization",
    "attended": "additive_attention attention group_query_attention multi_head_attention",
    "pooled": """average_pooling1d average_pooling2d average_pooling3d global_average_pooling1d global_average_pooling2d
    global_average_pooling3d global_max_pooling1d global_max_pooling2d global_max_pooling3d max_pooling1d max_pooling2d
    max_pooling3d""",
    "upsampled": "conv1d_transpose conv2d_transpose conv3d_transpose up_sampling1d up_sampling2d up_sampling3d",
    "padded": "zero_padding1d zero_padding2d zero_padding3d",
    "joined": "concatenate",
    "embedded": "embedding",
    "hidden": """activation dense depthwise_conv1d depthwise_conv2d dropout einsum_dense flatten lambda separable_conv1d
    separable_conv2d spatial_dropout1d spatial_dropout2d""",
}
_ROLES = {name: role for role, names in _CLASSES.items() for name in names.split()}
"""Roles of the results of layers that Keras has named for their class."""
_STATES = ("hidden", "cell")
_ON_MASKS = ("and", "broadcast_in_dim", "convert_element_type", "expand_dims", "max", "min", "mul", "or", "reshape")
_LONGEST = 24  # characters of a layer's name that values have


def name_roles(block: Block) -> None:
    """Set hints for the names of values, also in inner functions."""
    users: dict[int, list[Equation]] = {}
    for step in block.steps:
        for item in (*step.inputs, *step.captured()):
            users.setdefault(id(item), []).append(step)
    makers = {id(v): s for s in block.steps for v in s.outputs}
    layers = _layers(block, users)
    for step in block.steps:
        names = _RESULTS.get(step.params.get("function", ""), ())
        for position, value in enumerate(step.outputs):
            if not _is_op(value.hint):
                continue
            own = names[position] if position < len(names) else ""
            if own in _STATES or value.aval.dtype == np.bool_:
                value.hint = own or _by_idiom(step, value, users, makers)
            else:
                layer = role_of_layer(layers.get(id(value), "hidden"))
                idiom = _by_idiom(step, value, users, makers)
                value.hint = layer if layer != "hidden" else own if own and idiom != "weights" else idiom
        for inner in step.blocks.values():
            _name_arguments(step, inner)
            name_roles(inner)


def role_of_layer(name: str) -> str:
    """Return the role of a layer's result: its name, unless that is its class."""
    return _ROLES.get(re.sub(r"(_\d+)+$", "", name), name)


def _is_op(hint: str) -> bool:
    """Return whether a node's name is that of its op."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z])", "_", hint).lower()
    return re.sub(r"(_\d+)+$", "", name) in _OPS or not name


def _layers(block: Block, users: Mapping[int, Any]) -> dict[int, str]:
    """Return the names of layers' results: of the outermost scope that each ends."""
    last: dict[tuple[str, ...], tuple[int, int]] = {}
    for step in block.steps:
        for value in step.outputs:
            outside = min((_shared(step, user) for user in users.get(id(value), ())), default=len(step.path))
            for depth in range(max(outside, 1), len(step.path) - 1):
                last[step.path[: depth + 1]] = id(value), depth
    found: dict[int, str] = {}
    for path, (value, _) in sorted(last.items(), key=lambda item: -len(item[0])):
        if len(path[-1]) <= _LONGEST and not _is_op(path[-1]):
            found[value] = path[-1]
    return found


def _shared(step: Equation, user: Equation) -> int:
    """Return the number of scopes that two steps share."""
    pairs = zip(step.path, user.path, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(step.path), len(user.path)))


def _by_idiom(step: Equation, value: Value, users: Mapping[int, Any], makers: Mapping[int, Equation]) -> str:
    """Return the role of a value in the computation."""
    dtype, shape = value.aval.dtype, value.aval.shape
    if dtype == np.bool_:
        return "mask" if shape else "condition"
    if jnp.issubdtype(dtype, jax.dtypes.extended):
        return "key"
    if not jnp.issubdtype(dtype, np.inexact):
        of_mask = any(item.hint.endswith("mask") for item in step.inputs if isinstance(item, Value))
        name = "mask" if of_mask and step.name in _ON_MASKS else "indices"
        return name if shape else "index"
    following = users.get(id(value), [])
    if step.name == "scale_by_size" and isinstance(step.inputs[0], Value):
        return step.inputs[0].hint
    if step.name == "einsum" and any(_leads_to(s, "jax.nn.softmax", users) for s in following):
        return "scores"
    if step.name == "einsum" and any(_comes_from(v, "jax.nn.softmax", makers) for v in step.inputs):
        return "attended"
    if step.name == "select_n" and any(_leads_to(s, "jax.nn.softmax", users) for s in following):
        return "scores"
    if _comes_from(value, "jax.nn.softmax", makers) and any(_leads_to(s, "einsum", users) for s in following):
        return "weights"
    if step.name == "add" and len(following) > 1 and not any(isinstance(v, Literal) for v in step.inputs):
        return "residual"
    return "hidden" if shape else "number"


_NEAR = ("mul", "add", "select_n", "div", "jax_dropout", "philox_dropout")


def _leads_to(step: Equation, function: str, users: Mapping[int, Any], steps: int = 3) -> bool:
    """Return whether a function or primitive is applied to a step's result soon."""
    if step.params.get("function", step.name) == function:
        return True
    near = step.name in _NEAR and steps
    return bool(near) and any(_leads_to(s, function, users, steps - 1) for s in users.get(id(step.outputs[0]), ()))


def _comes_from(item: Any, function: str, makers: Mapping[int, Equation], steps: int = 3) -> bool:
    """Return whether a value is the result of a function, masked or dropped or not."""
    step = makers.get(id(item))
    if step is None or not steps:
        return False
    if step.params.get("function") == function:
        return True
    near = step.name in ("select_n", "jax_dropout", "philox_dropout")
    return near and any(_comes_from(v, function, makers, steps - 1) for v in step.inputs)


def _name_arguments(step: Equation, block: Block) -> None:
    """Name the carry of a loop for the parameters of the cell that it is passed to."""
    consts, carry = scan_counts(step.params) if step.name == "scan" else (0, 0)
    arguments, results = {id(a): a for a in block.args}, {id(r) for r in block.results}
    for inner in block.steps:
        states = _RESULTS.get(inner.params.get("function", ""), ())
        if "cell" in inner.params.get("function", ""):
            for item, name in zip(inner.inputs, ("x", *states), strict=False):
                argument = arguments.get(id(item))
                if argument is not None and _is_op(argument.hint):
                    argument.hint = name
            for value, name in zip(inner.outputs, states, strict=True):
                value.hint = name if id(value) in results else f"new_{name}"
    for argument in block.args:
        if _is_op(argument.hint) and argument.aval.dtype == np.bool_ and argument.aval.shape:
            argument.hint = "mask"
    names = [*(a.hint for a in block.args[consts : consts + carry]), *["output"] * (len(block.results) - carry)]
    for result, name in zip(block.results, names if carry else (), strict=False):
        if isinstance(result, Value) and id(result) not in arguments and _is_op(result.hint) and not _is_op(name):
            result.hint = name
