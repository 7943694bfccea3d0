"""Work of clients: see `tf2jax_lite.federated.client_work`."""

from tf2jax_lite.federated.client_work import ClientResult as ClientResult
from tf2jax_lite.federated.client_work import ClientWork as ClientWork
from tf2jax_lite.federated.client_work import build_model_delta_client_work as build_model_delta_client_work
