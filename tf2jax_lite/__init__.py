"""Convert TensorFlow functions and SavedModels to JAX."""

from .config import get_config, override_config, update_config

__all__ = ["get_config", "override_config", "update_config"]
