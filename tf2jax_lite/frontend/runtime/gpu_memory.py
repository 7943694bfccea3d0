"""TensorFlow and JAX in one process on one GPU."""

from __future__ import annotations

from tf2jax_lite.support.errors import ConfigError
from tf2jax_lite.support.extras import require_tensorflow


def hide_gpu_from_tensorflow() -> None:
    """Leave the memory of all GPUs to JAX: TensorFlow then runs on the CPU.

    TensorFlow reserves nearly all memory of each GPU that it sees when it first computes something, as JAX does. The
    commands of ``tf2jax-lite`` call this. In Python, call it right after the imports.

    Raises:
      ConfigError: TensorFlow has computed something, and has the memory already.
      MissingLibraryError: TensorFlow is not installed.

    Example:
      >>> tf2jax.hide_gpu_from_tensorflow()
    """
    require_tensorflow()
    import tensorflow as tf

    try:
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        raise ConfigError(
            "TensorFlow has initialized its GPUs already: call hide_gpu_from_tensorflow() before TensorFlow computes "
            "anything."
        ) from error
