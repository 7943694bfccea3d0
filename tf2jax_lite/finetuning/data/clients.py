"""Files of clients: see `tf2jax_lite.learning.data.client_files`."""

from tf2jax_lite.learning.data.client_files import open_clients as open_clients
