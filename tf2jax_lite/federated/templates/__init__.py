"""The building blocks of a training process, and their composition.

Entries: `compose.compose_learning_process`, and the blocks that it takes.

Read in this order:
  process: the types that blocks exchange.
  client_work, blocks, by_client: a client's work; the server's blocks; the clients' state.
  statistics: the way of statistics to the server, and the guarantees of all that leaves a client.
  compose: the process.

Must not import `algorithms` or `simulation`. Source: tff.learning.templates.
"""
