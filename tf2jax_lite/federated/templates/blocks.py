"""Finalizers: see `tf2jax_lite.federated.compose`."""

from tf2jax_lite.federated.compose import Finalizer as Finalizer
from tf2jax_lite.federated.compose import build_add_finalizer as build_add_finalizer
from tf2jax_lite.federated.compose import build_apply_optimizer_finalizer as build_apply_optimizer_finalizer
