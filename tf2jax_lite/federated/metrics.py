"""Names of `tf2jax_lite.learning.metrics`, as FedJAX and TFF have them."""

from tf2jax_lite.learning.metrics import *  # noqa: F403
from tf2jax_lite.learning.metrics import __all__ as __all__
