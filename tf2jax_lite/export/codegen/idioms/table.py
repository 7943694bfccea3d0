"""The list of idioms, each with the identity that makes it equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.autodiff.custom_gradient import NODE

from . import custom_rules, helpers, local_rules, products, proposals, references
from .candidates import Candidate, as_rule
from .graph import Rule


@dataclasses.dataclass(frozen=True)
class Idiom:
    """A rewrite.

    Attributes:
      name: unique; `idioms.rewrite` leaves out idioms by name.
      identity: why the source is equal, derivative included.
      roots: primitives of the steps that it may replace.
      rule: replaces a step; or the function whose jaxpr the steps before it are compared with.
      make_rule: returns the rule, given those of the idioms before it.
    """

    name: str
    identity: str
    roots: tuple[str, ...]
    rule: Rule | Candidate | None = None
    make_rule: Callable[[Mapping[str, Sequence[Rule]]], Rule] | None = None

    def rules(self, known: Mapping[str, Sequence[Rule]]) -> Iterable[tuple[str, Rule]]:
        """Return the rule with each of its root primitives.

        Args:
          known: rules of the preceding idioms, by primitive.
        """
        if self.make_rule is not None:
            rule: Rule | None = self.make_rule(known)
        else:
            rule = as_rule(self.rule, known) if isinstance(self.rule, Candidate) else self.rule
        return [(root, rule) for root in self.roots if rule is not None]


_CUSTOM = ("custom_jvp_call", "custom_vjp_call")
_SAME = "Its jaxpr is equal."
_RELU6 = "jax.nn.relu6"
_CELL = ("kernel", "recurrent_kernel", "bias")

_LOCAL = (
    Idiom(
        "identity", "An operation that returns its operand is left out.", local_rules.IDENTITIES, local_rules.identity
    ),
    Idiom(
        "product",
        "Source multiplies where the converted function has 0 for a zero factor.",
        ("mul_no_nan",),
        local_rules.plain_product,
    ),
    Idiom(
        "default_dtype",
        "Products of one type have results of that type by default.",
        ("dot_general", "conv_general_dilated"),
        local_rules.default_dtype,
    ),
    Idiom("constants", "Arithmetic on numbers is computed.", local_rules.FOLDED, local_rules.constants),
    Idiom("selection", "A selection by a constant is the selected operand.", ("select_n",), local_rules.selection),
    Idiom("neutral", "x & True and x | False are x.", ("and", "or"), local_rules.neutral),
    Idiom("truth", "x != False is x.", ("ne",), local_rules.truth),
    Idiom("positive", "min(x, mask) > 0 is (x > 0) & mask.", ("gt",), local_rules.positive),
    Idiom("zero", "x + 0 is x but for -0.", ("add",), local_rules.zero),
    Idiom(
        "dropout",
        "TensorFlow scales by 1 / (1 - rate) where its number is at least the rate.",
        ("select_n",),
        local_rules.dropout,
    ),
    Idiom("one", "1 x is x.", ("mul",), local_rules.one),
    Idiom("square", "x x is the square of x; the derivative is t x + t x.", ("mul",), local_rules.square),
    Idiom("triangle", "Sums of ones count from 1; integers have no derivative.", ("ge", "le"), local_rules.triangle),
    Idiom("stack", "jnp.stack concatenates along a new axis.", ("concatenate",), local_rules.stack),
    Idiom(
        "insert_axes",
        "Reshapes and broadcasts that insert axes of size 1 are one operation.",
        ("reshape", "broadcast_in_dim"),
        local_rules.insert_axes,
    ),
    Idiom(
        "reshapes", "A reshape of a reshape is one.", ("reshape", "squeeze", "expand_dims"), local_rules.merge_reshapes
    ),
    Idiom(
        "index",
        "A slice of size 1 whose axis is dropped is indexing.",
        ("reshape", "squeeze"),
        local_rules.index,
    ),
    Idiom("reverse", "Reversing an axis twice leaves it as it is.", ("rev",), local_rules.reverse_twice),
    Idiom(
        "keepdims",
        "A reduction and the insertion of the reduced axes is a reduction with keepdims=True.",
        ("expand_dims",),
        local_rules.keep_reduced_axes,
    ),
    Idiom(
        "squeeze",
        "A mean or variance whose axes of size 1 are dropped is one without keepdims=True.",
        ("squeeze",),
        local_rules.squeeze_reduced_axes,
    ),
    Idiom(
        "broadcasting",
        "NumPy broadcasts operands as broadcast_in_dim does, and so does the transpose.",
        local_rules.BROADCASTING,
        local_rules.broadcasting,
    ),
    Idiom(
        "first_rows",
        "A slice from the start is indexing; one too long raises in the sum, too.",
        ("add", "sub", "mul"),
        local_rules.first_rows,
    ),
    Idiom(
        "leading_axes",
        "Leading axes of size 1 may be inserted before or after an elementwise operation.",
        local_rules.ELEMENTWISE,
        local_rules.leading_axes,
    ),
    Idiom(
        "reshape_product",
        "Axes that are not summed over may be merged before a product or not.",
        ("reshape",),
        products.reshape_product,
    ),
    Idiom("contraction", "A sum over merged axes is one over each.", ("dot_general",), products.merge_contracted_axes),
    Idiom("einsum", "jnp.einsum computes dot_general and a transpose.", ("dot_general",), products.einsum),
    Idiom("einsum_result", "A product's axes in another order.", ("transpose",), products.transpose_product),
    Idiom("einsum_operand", "An operand's axes in another order.", ("einsum",), products.transpose_operand),
)
"""Rules for neighboring steps, by which candidates are rewritten, too."""

_FUNCTIONS = (
    Candidate(
        "jax.nn.relu6",
        "clamp is a minimum of a maximum; both have derivative 0 at 0 and 6.",
        references.relu6,
        ("clamp",),
        proposals.like_output(),
    ),
    Candidate("jax.nn.softmax", _SAME, jax.nn.softmax, ("div",), proposals.sum_axis),
    Candidate("jax.nn.log_softmax", _SAME, jax.nn.log_softmax, ("sub",), proposals.sum_axis),
    Candidate("jax.nn.silu", _SAME, jax.nn.silu, ("mul",), proposals.like_output(), needs="logistic"),
    Candidate("jax.nn.gelu", _SAME, jax.nn.gelu, ("mul",), proposals.like_output(), needs="tanh"),
    Candidate(
        "jax.nn.gelu",
        "The factor 1/2 is exact wherever it stands.",
        references.gelu,
        ("mul",),
        proposals.like_output(),
        needs="tanh",
    ),
    Candidate(
        "jax.nn.gelu", _SAME, jax.nn.gelu, ("mul",), proposals.with_keywords({"approximate": False}), needs="erfc"
    ),
    Candidate(
        "jax.nn.elu",
        "Both branches are 0 with derivative 1 at 0; at NaN the derivative is NaN instead of 1.",
        references.elu,
        ("select_n",),
        proposals.like_output(),
        needs="expm1",
    ),
    Candidate("jnp.mean", _SAME, jnp.mean, ("div",), proposals.summed),
    Candidate("jnp.var", _SAME, jnp.var, ("call",), proposals.mean_of_squares),
    Candidate(
        "jnp.var",
        "Distances from the mean sum up to 0, so it does not matter whether the mean in them has a derivative.",
        references.variance,
        ("call",),
        proposals.mean_of_squares,
    ),
    Candidate(
        "jax.nn.standardize",
        "As var, which is passed to it.",
        references.standardize,
        ("mul",),
        proposals.standardized,
        emit=custom_rules.standardize,
        needs="rsqrt",
    ),
    Candidate("jax.nn.one_hot", _SAME, jax.nn.one_hot, ("convert_element_type",), proposals.one_hot),
    Candidate("jnp.take", _SAME, jnp.take, ("gather",), proposals.taken),
    Candidate("lax.dynamic_index_in_dim", _SAME, lax.dynamic_index_in_dim, ("squeeze",), proposals.dynamic_item),
    Candidate(
        "rsqrt",
        "-y ** 3 / 2 is -y / (2 x) for y = x ** -0.5, also at 0 and infinity.",
        references.rsqrt,
        _CUSTOM,
        proposals.like_output(),
        emit=custom_rules.primitive("rsqrt"),
    ),
    Candidate("sqrt", _SAME, references.sqrt, _CUSTOM, proposals.like_output(), emit=custom_rules.primitive("sqrt")),
    Candidate(
        "reciprocal",
        "-y ** 2 is -1 / x ** 2 for y = 1 / x.",
        references.reciprocal,
        _CUSTOM,
        proposals.like_output(),
        emit=custom_rules.reciprocal,
    ),
    Candidate(
        "power",
        "With a constant exponent other than 0 both derivatives are y x ** (y - 1).",
        references.power,
        _CUSTOM,
        proposals.powers,
        emit=custom_rules.power,
    ),
    Candidate("jax.nn.relu", _SAME, jax.nn.relu, _CUSTOM, proposals.like_output()),
    Candidate("jax.nn.relu6", _SAME, jax.nn.relu6, _CUSTOM, proposals.like_output()),
    Candidate("jax.nn.hard_sigmoid", _SAME, jax.nn.hard_sigmoid, ("div",), proposals.like_output(), needs=_RELU6),
    Candidate(
        "jax.nn.hard_sigmoid",
        "A product with 1 / 6 is a quotient by 6 up to rounding.",
        references.hard_sigmoid,
        ("mul",),
        proposals.like_output(),
        needs=_RELU6,
    ),
    Candidate(
        "jax.nn.hard_silu", _SAME, jax.nn.hard_silu, ("mul",), proposals.like_output(), needs="jax.nn.hard_sigmoid"
    ),
    Candidate("jax.nn.softplus", _SAME, jax.nn.softplus, _CUSTOM, proposals.like_output()),
    Candidate(
        "jax.nn.softmax",
        "y (t - sum(y t)) is the derivative in terms of the result y.",
        references.softmax,
        _CUSTOM,
        proposals.like_output(),
    ),
    Candidate("_selu", _SAME, helpers._selu, ("select_n",), proposals.like_output(), needs="expm1"),
    Candidate(
        "_normalize_rows",
        "As var; x s + (b - m s) is (x - m) s + b, whose derivatives XLA compiles faster.",
        references.layer_norm,
        ("add",),
        proposals.rows,
        ("epsilon",),
        needs="rsqrt",
    ),
    Candidate("_normalize", _SAME, helpers._normalize, ("add",), proposals.channels, ("epsilon",), needs="rsqrt"),
    Candidate(
        "_normalize",
        "Leading axes of size 1 of the mean make no difference.",
        helpers._normalize,
        ("add",),
        proposals.channels_of_images,
        emit=custom_rules.normalize,
        needs="rsqrt",
    ),
    Candidate(
        "remainder",
        _SAME,
        references.remainder,
        ("select_n",),
        proposals.divided,
        emit=custom_rules.remainder,
        needs="rem",
    ),
    Candidate("_argmax", _SAME, helpers._argmax, ("argmax",), proposals.along_axis, needs="select_n"),
    Candidate("_argmin", _SAME, helpers._argmin, ("argmin",), proposals.along_axis, needs="select_n"),
    Candidate("jnp.take_along_axis", _SAME, jnp.take_along_axis, ("gather",), proposals.taken_along),
    Candidate("jax.vmap(_take)", _SAME, jax.vmap(helpers._take), ("gather",), proposals.taken_of_each),
    Candidate("_take", _SAME, helpers._take, ("gather",), proposals.taken_or_zero),
    Candidate(
        "_depthwise_conv",
        _SAME,
        helpers._depthwise_conv,
        ("conv_general_dilated",),
        proposals.depthwise,
        needs="reshape",
    ),
    Candidate("_conv", _SAME, helpers._conv, ("conv_general_dilated",), proposals.conv),
    Candidate("_conv1d", _SAME, helpers._conv1d, ("squeeze",), proposals.conv1d, needs="_conv"),
    Candidate("_conv_transpose", _SAME, helpers._conv_transpose, ("conv_general_dilated",), proposals.conv_transpose),
    Candidate("_max_pool", _SAME, helpers._max_pool, ("reduce_window_max",), proposals.pool),
    Candidate("_attention", _SAME, helpers._attention, ("einsum",), proposals.attention),
    Candidate(
        "_gru_cell",
        "Slices are those of split.",
        references.gru_cell,
        ("add",),
        proposals.gru_cell,
        weights=_CELL,
        needs="tanh",
    ),
    Candidate("_lstm_cell", _SAME, references.lstm_cell, ("mul",), proposals.lstm_cell, weights=_CELL, needs="split"),
)

_SILU = Idiom(
    "tf.nn.silu",
    "s (1 + x (1 - s)) is the derivative s + x s (1 - s) of x s for s = sigmoid(x).",
    (NODE,),
    make_rule=custom_rules.silu,
)

IDIOMS: tuple[Idiom, ...] = (
    *_LOCAL,
    *(Idiom(c.name, c.identity, c.roots, c) for c in _FUNCTIONS),
    _SILU,
)
