"""Trainings of several processes, one for each host or accelerator."""

from __future__ import annotations

import jax

from tf2jax_lite.support.errors import InputError

__all__ = ["join_processes"]


def join_processes(coordinator: str | None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Join the processes of a training; each of them calls this before anything else that uses JAX.

    Args:
      coordinator: ``HOST:PORT`` of process 0; "auto" where JAX finds the processes itself (Slurm, Open MPI, Cloud TPU,
        Kubernetes); None for one process.
      num_processes: their number.
      process_id: this process's number, from 0.

    Raises:
      InputError: an option is missing, or the processes do not come together.
    """
    if coordinator is None:
        if num_processes is not None or process_id is not None:
            raise InputError("num_processes and process_id go with a coordinator, HOST:PORT of process 0.")
        return
    given = num_processes is not None and process_id is not None
    if coordinator != "auto" and not (given and 0 <= process_id < num_processes and ":" in coordinator):
        raise InputError(
            "several processes need coordinator HOST:PORT, num_processes, and process_id from 0 to num_processes - 1, "
            f"not {coordinator!r}, {num_processes} and {process_id}."
        )
    address = None if coordinator == "auto" else coordinator
    try:
        jax.distributed.initialize(address, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the processes of the training do not come together: {error}") from error
