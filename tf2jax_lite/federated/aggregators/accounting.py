"""The privacy cost of rounds of the Gaussian mechanism.

Needs dp-accounting (extra: dp).
"""

from __future__ import annotations

import functools
from typing import Any

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.support.errors import InputError, MissingLibraryError


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError as error:
        raise MissingLibraryError("privacy accounting needs dp-accounting: pip install 'tf2jax-lite[dp]'.") from error
    return dp_accounting


# With squares of noise beyond these dp-accounting divides by 0, or takes the logarithm of 0. Less than the least hides
# nothing; of more than the most, that much counts.
_LEAST, _MOST = 1e-100, 1e7

_check = functools.partial(check_number, "privacy accounting")


def _check_rounds(rounds: int, delta: float) -> None:
    _check("rounds", rounds, least=1, whole=True)
    _check("delta", delta, above=0, below=1)


def _mechanism(dp: Any, clients_per_round: int, num_clients: int, sampling: str) -> tuple[Any, Any]:
    """Return the accountant's factory, and a function from noise to an event."""
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
        if noise < _LEAST:
            return dp.NonPrivateDpEvent()
        return sampled(dp.GaussianDpEvent(min(noise, _MOST) / sensitivity))

    return (lambda: dp.rdp.RdpAccountant(neighboring_relation=relation)), event


def gaussian_epsilon(
    noise_multiplier: float,
    rounds: int,
    clients_per_round: int,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return epsilon of a training's (epsilon, delta) client-level privacy.

    Computed by Renyi accounting.

    Args:
      noise_multiplier: as `DifferentiallyPrivateFactory` was given it (with adaptive clipping, of both parts together).
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
    _check("noise_multiplier", noise_multiplier, least=0)
    _check_rounds(rounds, delta)
    accountant, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    return float(accountant().compose(event(noise_multiplier), rounds).get_epsilon(delta))


def gaussian_noise_multiplier(
    epsilon: float,
    rounds: int,
    clients_per_round: int,
    num_clients: int,
    delta: float,
    sampling: str = "poisson",
) -> float:
    """Return the smallest noise multiplier with at most this epsilon (to 1e-4).

    Arguments as in `gaussian_epsilon`.

    Raises:
      InputError: an argument is out of range, or no noise is enough.
      MissingLibraryError: dp-accounting is not installed.
    """
    dp = _library()
    _check("epsilon", epsilon, above=0)
    _check_rounds(rounds, delta)
    accountant, event = _mechanism(dp, clients_per_round, num_clients, sampling)
    try:
        found = dp.calibrate_dp_mechanism(
            accountant,
            lambda noise: dp.SelfComposedDpEvent(event(noise), rounds),
            epsilon,
            delta,
            dp.LowerEndpointAndGuess(0.0, 1.0),
            tol=1e-4,
        )
    except dp.NoBracketIntervalFoundError as error:
        raise InputError(
            f"privacy accounting: no noise is enough for epsilon {epsilon:g} and delta {delta:g}."
        ) from error
    return float(found)
