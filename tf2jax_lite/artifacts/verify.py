"""The command ``verify``: a model's file and its artifact against TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tf2jax_lite.artifacts.options import VerifyOptions
from tf2jax_lite.support.command_options import VerificationOptions
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.npz import read_npz
from tf2jax_lite.verification import Verification, verify


def verify_model(
    model: Path, artifact: Path | None, options: VerifyOptions, progress: Callable[[str], None] = lambda step: None
) -> Verification:
    """Compare the functions of a model's file, and of its artifact, with TensorFlow.

    Args:
      model: a SavedModel directory, a ``.keras``, ``.h5``, frozen ``.pb`` or TF1 ``.meta`` file.
      artifact: an artifact of the model.
      options: of the command.
      progress: called with the name of each step as it begins.

    Raises:
      Tf2JaxError: an option does not fit, or a file is damaged.
    """
    if options.source and artifact is None:
        raise InputError("--source runs the code of an artifact, but OUT is missing")
    return verify(
        model,
        artifact,
        signatures=options.signatures or None,
        tags=options.tags or None,
        inputs=None if options.inputs is None else read_npz(options.inputs),
        backends=("stablehlo", "source") if options.source else ("stablehlo",),
        split_host=options.split_host,
        ends=(options.graph_inputs or None, options.graph_outputs or None),
        progress=progress,
        **vars(options.part(VerificationOptions)),
    )
