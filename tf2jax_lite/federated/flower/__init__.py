"""Federated training over a network with Flower (extra ``flower``).

Entries: `client_app` and `server_app` return Flower's apps for a model and a process.

Read in this order:
  records: pytrees as Flower's records of arrays, and back; clients' replies, checked before use.
  client: one client's work in a Flower ``ClientApp``.
  server: a Flower strategy of distributor, aggregator and finalizer, and a server for it or one of Flower's.
  secure: a server that sees only masked sums, by Flower's SecAgg+.

Must not import `algorithms`: it takes the blocks that they compose.
"""

from __future__ import annotations

from tf2jax_lite.support.errors import MissingLibraryError

try:
    import flwr as _  # noqa: F401
except ImportError as error:
    raise MissingLibraryError("tf2jax_lite.federated.flower needs Flower: pip install 'tf2jax-lite[flower]'") from error

from tf2jax_lite.federated.flower.client import client_app, client_state
from tf2jax_lite.federated.flower.records import from_arrays, to_arrays
from tf2jax_lite.federated.flower.secure import secure_server_app
from tf2jax_lite.federated.flower.server import BlocksStrategy, server_app

__all__ = [
    "BlocksStrategy",
    "client_app",
    "client_state",
    "from_arrays",
    "secure_server_app",
    "server_app",
    "to_arrays",
]
