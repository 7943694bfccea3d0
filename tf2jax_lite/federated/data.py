"""Names of `tf2jax_lite.learning.data`, as FedJAX and TFF have them."""

from tf2jax_lite.learning.data import *  # noqa: F403
from tf2jax_lite.learning.data import __all__ as __all__
