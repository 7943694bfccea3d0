"""Changes of dtype."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import op
from .values import canonical


def _host_cast(x: Any, *, DstT: Any, Truncate: bool = False) -> Any:
    if x.dtype == object:
        return x  # symbolic dimensions have no width
    return np.asarray(x).astype(DstT)


@op("Cast", host=_host_cast)
def cast(x: Any, *, DstT: Any, Truncate: bool = False) -> Any:
    """Casts. See tf.raw_ops.Cast."""
    x = jnp.asarray(x)
    dtype = canonical(DstT)
    if x.dtype == dtype:
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = lax.real(x)
    if dtype == np.bool_:
        return lax.ne(x, jnp.zeros((), x.dtype))
    return lax.convert_element_type(x, dtype)


@op("Bitcast")
def bitcast(input: Any, *, type: Any) -> Any:
    """Reads the same bits as another type. See tf.raw_ops.Bitcast."""
    return lax.bitcast_convert_type(jnp.asarray(input), canonical(type))
