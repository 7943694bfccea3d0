"""The cost of differential privacy: epsilon, and the noise for one.

Epsilon is the least of two upper bounds: Renyi's, and that of privacy loss distributions (Koskela et al., 2020) where
dp-accounting has them. It needs the extra ``dp``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, LearningProcess, Mechanism
from tf2jax_lite.support.errors import InputError, MissingLibraryError

__all__ = [
    "extract_dp_event",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "tree_epsilon",
]

# With squares of noise beyond these dp-accounting divides by 0, or takes the logarithm of 0. Less than the least hides
# nothing; of more than the most, that much counts.
_LEAST, _MOST = 1e-100, 1e7
# Loss distributions have a cell for each 1e-4 of loss: of a larger epsilon they would take gigabytes.
_MAX_LOSS = 100.0

_check = functools.partial(check_number, "privacy accounting")


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingLibraryError("privacy accounting needs dp-accounting: pip install 'tf2jax-lite[dp]'.") from error
    return dp_accounting


def _check_rounds(rounds: int, delta: float) -> None:
    _check("rounds", rounds, least=1, whole=True)
    _check("delta", delta, above=0, below=1)


class _Accountant:
    """The smaller epsilon of two accountants, in the form of one, for one event."""

    def __init__(self, relation: Any, event: Any = None):
        self._relation = relation
        self.ledger = _library().NoOpDpEvent() if event is None else event

    def compose(self, event: Any) -> _Accountant:
        return _Accountant(self._relation, event)

    def get_epsilon(self, delta: float) -> float:
        dp = _library()
        found = float(dp.rdp.RdpAccountant(neighboring_relation=self._relation).compose(self.ledger).get_epsilon(delta))
        losses = dp.pld.PLDAccountant(self._relation)
        if found > _MAX_LOSS or not losses.supports(self.ledger):
            return found
        return min(found, float(losses.compose(self.ledger).get_epsilon(delta)))


def _gaussian(dp: Any, noise: float) -> Any:
    return dp.NonPrivateDpEvent() if noise < _LEAST else dp.GaussianDpEvent(min(noise, _MOST))


def _mechanism(dp: Any, clients_per_round: float, num_clients: int, sampling: str) -> tuple[Any, Any]:
    """Return the neighboring relation, and a function from noise to an event."""
    _check("clients_per_round", clients_per_round, above=0)
    _check("num_clients", num_clients, least=1, whole=True)
    if clients_per_round > num_clients:
        raise InputError(f"privacy accounting: {clients_per_round} clients a round of {num_clients}.")
    everyone = clients_per_round == num_clients
    if sampling == "poisson":
        relation, sensitivity = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1

        def sampled(gaussian: Any) -> Any:
            return dp.PoissonSampledDpEvent(clients_per_round / num_clients, gaussian)
    elif sampling == "fixed_size":
        _check("clients_per_round", clients_per_round, least=1, whole=True)
        # One client's update leaves the sum and another's enters it: the sum moves by up to twice the clipping norm.
        relation, sensitivity = dp.NeighboringRelation.REPLACE_ONE, 2

        def sampled(gaussian: Any) -> Any:
            return (
                gaussian if everyone else dp.SampledWithoutReplacementDpEvent(num_clients, clients_per_round, gaussian)
            )
    else:
        raise InputError(f'privacy accounting: sampling is "poisson" or "fixed_size", not {sampling!r}.')

    def event(noise: float) -> Any:
        return dp.NonPrivateDpEvent() if noise < _LEAST else sampled(_gaussian(dp, noise / sensitivity))

    return relation, event


def gaussian_epsilon(
    noise_multiplier: float,
    rounds: int,
    clients_per_round: float,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return epsilon of a training's (epsilon, delta) client-level privacy.

    Args:
      noise_multiplier: as `DifferentiallyPrivateFactory` was given it (with adaptive clipping, of both parts together);
        or a process or aggregation, of all whose noised releases it is.
      rounds: how many rounds.
      clients_per_round: expected number of clients a round (poisson), or the number (fixed_size).
      num_clients: how many clients there are.
      delta: in (0, 1); well below one over num_clients.
      sampling: "poisson": each client takes part with the same probability, and neighbors differ by one client more,
        which moves the sum of updates by up to the clipping norm. "fixed_size": that many are drawn without
        replacement, and neighbors differ by one client exchanged, which moves the sum by up to twice that norm. Both
        hold if the cohort is secret.

    Returns:
      Epsilon; infinity without noise.

    Raises:
      InputError: an argument is out of range.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    if isinstance(noise_multiplier, (AggregationProcess, LearningProcess)):
        noise_multiplier = joint_noise_multiplier(noise_multiplier)
    _check("noise_multiplier", noise_multiplier, least=0)
    _check_rounds(rounds, delta)
    relation, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    return _Accountant(relation, dp.SelfComposedDpEvent(event(noise_multiplier), rounds)).get_epsilon(delta)


def gaussian_noise_multiplier(
    epsilon: float,
    rounds: int,
    clients_per_round: float,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return the smallest noise multiplier with at most this epsilon (to 1e-4).

    Args:
      epsilon: at most this.
      rounds: number of rounds.
      clients_per_round: size of a cohort.
      num_clients: number of all clients.
      delta: probability of a larger loss of privacy.
      sampling: "poisson" or "fixed_size", see `gaussian_epsilon`.

    Raises:
      InputError: an argument is out of range, or no noise is enough.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("epsilon", epsilon, above=0)
    _check_rounds(rounds, delta)
    relation, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    try:
        found = dp.calibrate_dp_mechanism(
            lambda: _Accountant(relation),
            lambda noise: dp.SelfComposedDpEvent(event(noise), rounds),
            epsilon,
            delta,
            dp.LowerEndpointAndGuess(0.0, 1.0),
            tol=1e-4,
        )
    except dp.mechanism_calibration.NoBracketIntervalFoundError as error:
        raise InputError(
            f"privacy accounting: no noise is enough for epsilon {epsilon:g} and delta {delta:g}."
        ) from error
    return float(found)


def _trees(mechanism: Mechanism, rounds: int) -> list[int]:
    """Return the number of rounds in each tree."""
    assert mechanism.tree is not None
    first, later = mechanism.tree
    rest = max(rounds - first, 0)
    return [min(first, rounds), *[later] * (rest // later), *([rest % later] if rest % later else [])]


def tree_epsilon(
    noise_multiplier: float,
    rounds: int,
    delta: float,
    *,
    restart_warmup: int | None = None,
    restart_frequency: int = 1024,
    max_participations: int = 1,
) -> float:
    """Return epsilon of a training with noise from trees (DP-FTRL).

    No cohort need be secret or random. Neighbors differ by one client whose updates are replaced by zeros. A client in
    k rounds of a tree moves the nodes of each of its levels, of 2**l rounds, by a squared norm of at most
    k * min(k, 2**l) clipping norms. Sources: Kairouz et al. 2021, appendix D, for k = 1; Denisov et al. 2022, for
    Gaussian noise whose rounds depend on earlier results.

    Args:
      noise_multiplier: as `DifferentiallyPrivateFactory.tree_aggregation` was given it: of a node.
      rounds: how many rounds.
      delta: in (0, 1).
      restart_warmup: rounds of the first tree; ``restart_frequency`` if None.
      restart_frequency: rounds of each later tree.
      max_participations: k, in how many rounds of one tree a client takes part at most.

    Raises:
      InputError: an argument is out of range.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("noise_multiplier", noise_multiplier, least=0)
    _check_rounds(rounds, delta)
    for name, value in (("restart_frequency", restart_frequency), ("max_participations", max_participations)):
        _check(name, value, least=1, whole=True)
    warmup = restart_frequency if restart_warmup is None else restart_warmup
    _check("restart_warmup", warmup, least=1, whole=True)
    squares = 0
    for size in _trees(Mechanism(noise_multiplier, (warmup, restart_frequency)), rounds):
        times = min(max_participations, size)
        squares += sum(times * min(times, 1 << level) for level in range(size.bit_length()))
    event = _gaussian(dp, noise_multiplier / math.sqrt(squares))
    return _Accountant(dp.NeighboringRelation.REPLACE_SPECIAL, event).get_epsilon(delta)


def _mechanisms(process: AggregationProcess | LearningProcess) -> tuple[Mechanism, ...]:
    if "differential privacy" not in process.guarantees:
        raise InputError("privacy accounting: the process does not promise differential privacy.")
    return process.mechanisms


def joint_noise_multiplier(process: AggregationProcess | LearningProcess) -> float:
    """Return the noise multiplier of all of a round's mechanisms as one.

    Raises:
      InputError: the process is not private, or draws its noise from trees.
    """
    found = _mechanisms(process)
    if any(m.tree for m in found):
        raise InputError("privacy accounting: the noise comes from trees; see tree_epsilon.")
    if not all(m.noise_multiplier for m in found):
        return 0.0
    return sum(m.noise_multiplier**-2 for m in found) ** -0.5


def extract_dp_event(process: AggregationProcess | LearningProcess, rounds: int = 1) -> Any:
    """Return dp-accounting's event of the noised releases of some rounds.

    It is that of the given cohorts: a `dp_accounting.PoissonSampledDpEvent` around it amplifies. See
    tff.aggregators.DifferentiallyPrivateFactory, extract_dp_event_from_state.

    Args:
      process: a private process, or a private aggregation.
      rounds: how many rounds.

    Raises:
      InputError: the process is not private, or ``rounds`` is out of range.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("rounds", rounds, least=1, whole=True)
    found = _mechanisms(process)
    each = [_gaussian(dp, m.noise_multiplier) for m in found if m.tree is None]
    event = each[0] if len(each) == 1 else dp.ComposedDpEvent(each)
    trees = [
        dp.SingleEpochTreeAggregationDpEvent(m.noise_multiplier, steps)
        for m in found
        if m.tree
        for steps in _trees(m, rounds)
    ]
    repeated = event if rounds == 1 or not each else dp.SelfComposedDpEvent(event, rounds)
    if not trees:
        return repeated
    return trees[0] if len(trees) == 1 and not each else dp.ComposedDpEvent([*([repeated] if each else []), *trees])
