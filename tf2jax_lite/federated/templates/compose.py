"""Learning processes from parts: see `tf2jax_lite.federated.compose`."""

from tf2jax_lite.federated.compose import compose_learning_process as compose_learning_process
from tf2jax_lite.federated.compose import round_keys as round_keys
