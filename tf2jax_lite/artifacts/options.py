"""Options of the commands on artifacts.

This module and those that it imports need no JAX: ``--help`` lists the options before anything is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.finetuning.options import AdapterOptions, HeadOptions, TrainingOptions
from tf2jax_lite.learning.options import ModelOptions, OptimizerOptions
from tf2jax_lite.support.command_options import ExportOptions, VerificationOptions
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.options import Options, option

_CLIENTS, _SERVER, _AGGREGATION = "Clients", "Server", "Aggregation"
_ALGORITHMS = "Options of single algorithms"
_BATCHES, _REQUESTS = "Batches", "Requests"
_GRAPHS, _LIMITS = "Frozen graphs and .meta files", "Limits and trust"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFileOptions(Options):
    """Options of commands that read a TensorFlow model."""

    tags: Sequence[str] = option((), "Tag of the MetaGraph; repeat for several.", flag="--tag")
    split_host: bool = option(False, "Leave strings, decoders and tables in front of the model in TensorFlow.")
    graph_inputs: Sequence[str] = option(
        (), "Of a .pb or .meta, a tensor that becomes an argument.", flag="--input", panel=_GRAPHS
    )
    graph_outputs: Sequence[str] = option((), "Of a .pb or .meta, a result.", flag="--output", panel=_GRAPHS)
    max_nodes: int | None = option(None, "Maximum number of nodes of a graph.", least=1, panel=_LIMITS)
    max_constant_bytes: int | None = option(
        None, "Maximum size of a graph's constants in bytes.", least=1, panel=_LIMITS
    )
    trust: Sequence[str] = option(
        (),
        "An op, file, or name in a Keras file that the model may use although it is unsafe; repeat.",
        metavar="NAME",
        panel=_LIMITS,
    )
    modules: Sequence[str] = option(
        (),
        "Of a Keras file, a module with layers that it uses; implies trust. Repeat.",
        flag="--import",
        metavar="MODULE",
        panel=_LIMITS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelFileOptions, ExportOptions):
    """Options of the command ``convert``."""

    signatures: Sequence[str] = option(
        (), "Only this one; repeat for several. Default: all that can be converted.", flag="--signature"
    )
    shapes: Sequence[str] = option((), 'Shape of an argument, "b,224,224,3" or "image=b,224,224,3"; repeat in order.')
    platforms: str = option("cpu,cuda,tpu", "Platforms to lower StableHLO for.")
    dtype: str | None = option(None, "Convert floating params and constants, and compute, in this dtype.")
    train: bool = option(False, "Add the training mode (Keras files).")
    constants_as_params: bool = option(
        True, "Of a .pb, make weights params.", flag="--constants-as-params/--no-constants-as-params", panel=_GRAPHS
    )
    settings: Sequence[str] = option((), "A config option; repeat for several.", flag="--set", metavar="NAME=VALUE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(ModelFileOptions, VerificationOptions):
    """Options of the command ``verify``."""

    signatures: Sequence[str] = option((), "Only this one; repeat for several.", flag="--signature")
    inputs: Path | None = option(None, "An .npz with arrays by input name.")
    source: bool = option(False, "Of OUT, run model.py as well: for artifacts that you trust.")
    max_input_bytes: int | None = option(None, "Maximum unpacked size of an .npz in bytes.", least=1, panel=_LIMITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions(ModelOptions, OptimizerOptions, TrainingOptions, AdapterOptions, HeadOptions):
    """Options of `finetune_artifact`."""

    epochs: int = option(1, "Passes over the data.", least=0, shell_default=3)
    overwrite: bool = option(False, "Replace an existing artifact.", flag="--force")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(Options):
    """Options of the command ``serve``."""

    name: str | None = option(None, "The model's name in addresses; the folder's by default.")
    host: str = option("127.0.0.1", "The address to listen at; 0.0.0.0 for all of the machine.")
    port: int = option(8080, "The port; 0 for any free one.", least=0, below=1 << 16)
    signatures: Sequence[str] = option(
        (), "A function that requests can name; repeat for several. The default one by default.", flag="--signature"
    )
    max_batch: int = option(32, "Maximum number of examples that run together.", least=1, panel=_BATCHES)
    batch_sizes: Sequence[int] = option(
        (),
        "A number of examples that batches are padded to; repeat. By default powers of two.",
        flag="--batch-size",
        panel=_BATCHES,
    )
    batch_ms: float = option(2.0, "Milliseconds that a request waits for others.", least=0, panel=_BATCHES)
    dimensions: Sequence[str] = option(
        (),
        "Size that another unknown dimension may have; repeat for each size.",
        flag="--dimension",
        metavar="NAME=SIZE",
        panel=_BATCHES,
    )
    max_request_bytes: int = option(16 << 20, "Maximum size of a request's body.", least=1, panel=_REQUESTS)
    max_request_examples: int = option(1024, "Maximum number of examples of a request.", least=1, panel=_REQUESTS)
    max_waiting: int = option(256, "Number of waiting requests beyond which others get 503.", least=1, panel=_REQUESTS)
    read_seconds: float = option(30.0, "Time in which a client has to send a body.", above=0, panel=_REQUESTS)
    grace_seconds: int = option(30, "Time for running requests at the end.", least=0, panel=_REQUESTS)
    backend: str = option("stablehlo", "stablehlo, or source (runs the artifact's Python code).")
    seed: int = option(0, "For functions that draw random numbers.", least=0)
    cache: bool = option(True, "Keep compiled programs in the user's cache directory.", flag="--cache/--no-cache")

    def __post_init__(self) -> None:
        """Check the sizes of batches, too."""
        super().__post_init__()
        if not all(type(size) is int and size >= 1 for size in self.batch_sizes):
            raise InputError(f"batch_sizes are integers of at least 1, not {list(self.batch_sizes)}.")

    @property
    def padded_sizes(self) -> tuple[int, ...]:
        """The sizes of batches, ascending."""
        powers = [1 << n for n in range(self.max_batch.bit_length()) if 1 << n < self.max_batch]
        return tuple(sorted(set(self.batch_sizes or (*powers, self.max_batch))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederateOptions(ModelOptions):
    """Options of `federate_artifact`."""

    algorithm: str = option(
        "fed_avg",
        "fed_avg, unweighted_fed_avg, fed_prox, fed_sgd, fed_nova, fed_dyn, fed_buff, per_fed_avg, mime, mime_lite, "
        "scaffold, agnostic_fed_avg or hyp_cluster (an artifact for each cluster, cluster_0, cluster_1, ...).",
        identity="always",
    )
    rounds: int = option(1, "Number of rounds.", least=0, shell_default=100)
    clients_per_round: int = option(10, "Size of a cohort.", least=1, panel=_CLIENTS)
    sampling: str = option(
        "fixed_size",
        "fixed_size, or poisson: each client takes part by its own coin, and cohorts vary in size.",
        identity="given",
        panel=_CLIENTS,
    )
    batch_size: int = option(20, "Examples in a client's step.", least=1, identity="always", panel=_CLIENTS)
    client_epochs: int = option(
        1, "A client's passes over its data in a round.", least=1, identity="always", panel=_CLIENTS
    )
    client_optimizer: str | None = option(None, "As for finetune; sgd by default.", identity="always", panel=_CLIENTS)
    client_learning_rate: float | None = option(None, "Its rate, 0.1 by default.", identity="always", panel=_CLIENTS)
    client_decay: float = option(
        1.0, "Factor on clients' rate from round to round.", above=0, identity="always", panel=_CLIENTS
    )
    server_optimizer: str | None = option(
        None,
        "As for finetune; adam, yogi, adagrad are FedAdam's and so on. By default clients are averaged.",
        identity="always",
        panel=_SERVER,
    )
    server_learning_rate: float | None = option(
        None, "Its rate, 1 by default (of fed_sgd 0.1, as TFF has it).", identity="always", panel=_SERVER
    )
    server_momentum: float | None = option(None, "Of sgd and rmsprop.", identity="always", panel=_SERVER)
    server_tau: float | None = option(
        None,
        "Of adam, yogi and adagrad: added to the root below, 0.001 by default.",
        least=0,
        identity="given",
        panel=_SERVER,
    )
    aggregator: str | None = option(
        None,
        "Of clients' updates: mean, robust, median, krum, secure, dp, compression or another; a name that there is "
        "not lists all.",
        identity="always",
        panel=_AGGREGATION,
    )
    aggregator_options: Mapping[str, Any] | None = option(
        None,
        "Of the aggregator: num_byzantine=2; repeat for several.",
        identity="always",
        flag="--aggregator-option",
        shell_type=list[str] | None,
        metavar="NAME=VALUE",
        panel=_AGGREGATION,
    )
    noise_multiplier: float | None = option(
        None, "Of dp: noise in clipping norms.", least=0, identity="always", panel=_AGGREGATION
    )
    target_epsilon: float | None = option(
        None,
        "Of dp, instead of a noise multiplier: the epsilon of all rounds (extra: dp).",
        above=0,
        identity="given",
        panel=_AGGREGATION,
    )
    clip_norm: float | None = option(
        None, "Scale clients' updates down to this norm.", identity="always", panel=_AGGREGATION
    )
    zeroing_norm: float | None = option(
        None, "Replace client updates with a larger element by zeros.", identity="always", panel=_AGGREGATION
    )
    proximal_strength: float | None = option(
        None, "Mu of fed_prox, alpha of fed_dyn, 0.01 by default.", least=0, identity="given", panel=_ALGORITHMS
    )
    personal_learning_rate: float | None = option(
        None,
        "Of per_fed_avg: rate of a client's own step, 0.01 by default.",
        above=0,
        identity="given",
        panel=_ALGORITHMS,
    )
    first_order: bool | None = option(
        None, "Of per_fed_avg: without second derivatives.", identity="given", panel=_ALGORITHMS
    )
    buffer_size: int | None = option(
        None,
        "Of fed_buff: how many clients answer in a round, of clients_per_round that train at a time; half by default.",
        least=1,
        identity="given",
        panel=_ALGORITHMS,
    )
    num_clusters: int | None = option(
        None, "Models of hyp_cluster, 2 by default.", least=1, identity="given", panel=_ALGORITHMS
    )
    domain_key: str | None = option(
        None,
        "Of agnostic_fed_avg, the array of each example's domain, from 0; domain_id by default.",
        identity="given",
        panel=_ALGORITHMS,
    )
    domain_learning_rate: float | None = option(
        None,
        "Of agnostic_fed_avg: learning rate of the domains' weights, 0.1 by default.",
        least=0,
        identity="given",
        panel=_ALGORITHMS,
    )
    domain_window: int | None = option(
        None,
        "Of agnostic_fed_avg: rounds whose examples are counted, 1 by default.",
        least=1,
        identity="given",
        panel=_ALGORITHMS,
    )
    client_metrics: bool = option(
        False, "Record each client's loss and change by round, and how they are distributed (fairness).", panel=_CLIENTS
    )
    seed: int = option(
        0,
        "Random seed; the same seed gives the same weights. With dp, cohorts and noise come from the operating system.",
        least=0,
    )
    eval_every: int = option(1, "Evaluate after this many rounds.", least=1)
    checkpoint_dir: str | Path | None = option(
        None, "Save the state there, and resume from it if there is one.", shell_type=Path | None
    )
    checkpoint_every: int = option(1, "Save the state after this many rounds.", least=1)
    overwrite: bool = option(False, "Replace an existing artifact.", flag="--force")
