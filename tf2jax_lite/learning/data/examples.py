"""Examples as dicts of arrays: checks, preprocessing, seeds.

Source: BatchPreprocessor, ClientPreprocessor of fedjax.core.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.errors import DataError

Examples = Mapping[str, np.ndarray]
_IMMUTABLE = (str, bytes, int, float, type(None))


def own_copy(examples: Mapping[str, Any], *, only_stored: bool = False) -> dict[str, Any]:
    """Return a dict and arrays for a function that may write to them.

    Args:
      examples: dict of arrays; those of JAX stay as they are.
      only_stored: leave out writable arrays, which no data set holds: `check_examples` makes stored ones read-only.
    """
    return {
        name: _copied(value) if isinstance(value, np.ndarray) and not (only_stored and value.flags.writeable) else value
        for name, value in examples.items()
    }


def _copied(array: np.ndarray) -> np.ndarray:
    if array.dtype == object and any(not isinstance(item, _IMMUTABLE) for item in array.flat):
        return copy.deepcopy(array)  # lists of different lengths
    return array.copy()


class BatchPreprocessor:
    """A chain of functions ``examples -> examples``, applied to batches.

    Args:
      fns: the functions, the first one applied first. Each takes and returns a dict of arrays whose leading sizes are
        equal, and must treat every example alone: how examples are put into batches must not matter.
    """

    def __init__(self, fns: Iterable[Callable[[Examples], Examples]] = ()):
        self.fns = tuple(fns)

    def __call__(self, examples: Examples) -> dict[str, Any]:
        """Return the examples after all functions.

        Each function gets copies, and may write to them.
        """
        for fn in self.fns:
            examples = fn(own_copy(examples))
        return dict(examples) if self.fns else own_copy(examples, only_stored=True)

    def __bool__(self) -> bool:
        """Return whether there is any function."""
        return bool(self.fns)

    def __eq__(self, other: object) -> bool:
        """Return whether the functions are the same."""
        return isinstance(other, BatchPreprocessor) and self.fns == other.fns

    def __hash__(self) -> int:
        return hash(self.fns)

    def append(self, fn: Callable[[Examples], Examples]) -> BatchPreprocessor:
        """Return a new chain that ends with ``fn``."""
        return BatchPreprocessor((*self.fns, fn))

    def __repr__(self) -> str:
        return f"BatchPreprocessor({list(self.fns)})"


class ClientPreprocessor:
    """A chain of functions ``(client_id, examples) -> examples``.

    It is applied when a client's examples are read.

    Args:
      fns: the functions, the first one applied first. Unlike a batch's, they may add, drop and reorder examples.
    """

    def __init__(self, fns: Iterable[Callable[[Any, Examples], Examples]] = ()):
        self._fns = tuple(fns)

    def __call__(self, client_id: Any, examples: Examples) -> dict[str, Any]:
        """Return the client's examples after all functions.

        Each function gets copies, and may write to them.
        """
        for fn in self._fns:
            examples = fn(client_id, own_copy(examples))
        return dict(examples)

    def __bool__(self) -> bool:
        """Return whether there is any function; without, sizes are known unread."""
        return bool(self._fns)

    def append(self, fn: Callable[[Any, Examples], Examples]) -> ClientPreprocessor:
        """Return a new chain that ends with ``fn``."""
        return ClientPreprocessor((*self._fns, fn))

    def __repr__(self) -> str:
        return f"ClientPreprocessor({list(self._fns)})"


NoOpBatchPreprocessor = BatchPreprocessor()
NoOpClientPreprocessor = ClientPreprocessor()


Seed = int | Sequence[int] | np.ndarray | jax.Array | None
OrderSeed = Seed | np.random.RandomState
Rng = np.random.Generator | np.random.RandomState


def seed_words(seed: Any) -> list[int]:
    """Return a seed as non-negative ints.

    Args:
      seed: an int >= 0, a sequence of them, or a JAX key (typed, or a raw uint32 array).

    Raises:
      DataError: it is none of these.
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    words = np.asarray(seed)
    if words.dtype.kind not in "iu" or words.ndim > 1 or words.size == 0 or (words < 0).any():
        raise DataError(f"a seed is an int >= 0, a sequence of such, or a JAX key; this is {seed!r}")
    return [int(word) for word in np.atleast_1d(words)]


def numpy_rng(seed: Seed, *more: int) -> np.random.Generator:
    """Return numpy's generator for ``seed``.

    The same seed gives the same stream on every machine.

    Args:
      seed: see `seed_words`; None takes entropy from the operating system, and ``more`` then has no effect.
      *more: ints >= 0 that set independent streams apart (the number of a round, say).

    Raises:
      DataError: ``seed`` is not a seed.
    """
    if seed is None:
        return np.random.default_rng()
    # ``spawn_key`` keeps (seed, more) apart from every other seed that merely has the same words in a row.
    return np.random.default_rng(np.random.SeedSequence(seed_words(seed), spawn_key=seed_words(more) if more else ()))


def own_seed(seed: OrderSeed) -> OrderSeed:
    """Return a seed of an order, other than None, that its giver cannot change.

    Raises:
      DataError: ``seed`` is not a seed.
    """
    return copy.deepcopy(seed) if isinstance(seed, np.random.RandomState) else seed_words(seed)


# FedJAX's generator of the rounds' seeds (Park and Miller).
_MODULUS, _MULTIPLIER = 2**31 - 1, 16807


def order_rng(seed: OrderSeed, *more: int) -> Rng:
    """Return numpy's generator for the order of examples or clients.

    Args:
      seed: see `numpy_rng`; or a ``RandomState``, of which a copy is returned. FedJAX, whose seed n is
        ``np.random.RandomState(n)``, has orders of its own, which functions of such a generator follow.
      *more: see `numpy_rng`.

    Raises:
      DataError: ``seed`` is not a seed.
    """
    if not isinstance(seed, np.random.RandomState):
        return numpy_rng(seed, *more)
    rng = copy.deepcopy(seed)
    for number in more:
        start = rng.randint(1, _MODULUS - 1)
        rng = np.random.RandomState(pow(_MULTIPLIER, number, _MODULUS) * start % _MODULUS)
    return rng


def permuted(order: np.ndarray, rng: Rng) -> np.ndarray:
    """Return the order of the next epoch; FedJAX permutes that of the last one."""
    return rng.permutation(order if isinstance(rng, np.random.RandomState) else len(order))


EXAMPLE_MASK_KEY = "__mask__"
# Where filled batches say which of their examples are of one epoch more: they train, and count nowhere.
EXAMPLE_FILL_KEY = "__fill__"


def check_examples(
    examples: Mapping[str, Any], where: str = "client data", *, read_only: bool = True
) -> dict[str, np.ndarray]:
    """Return the examples as numpy arrays.

    Args:
      examples: dict from feature to something that numpy takes for an array, all with the same leading size.
      where: the location in error messages.
      read_only: return views that cannot be written to, as several readers share stored examples.

    Raises:
      DataError: no features, a name that is not a string, a scalar, or leading sizes that differ.
    """
    if not isinstance(examples, Mapping):
        raise DataError(f"{where}: examples are a dict of arrays, not {type(examples).__name__}")
    if not examples:
        raise DataError(f"{where}: there are no features; without one the number of examples is unknown")
    arrays: dict[str, np.ndarray] = {}
    for name, value in examples.items():
        if not isinstance(name, str):
            raise DataError(f"{where}: the name of a feature is a string, not {name!r}")
        try:
            array = native(np.asarray(value))
        except (ValueError, TypeError) as error:  # rows of different lengths, JAX keys
            raise DataError(f"{where}: feature {name!r} is no array: {error}") from error
        if array.ndim == 0:
            raise DataError(f"{where}: feature {name!r} is a scalar; its first dimension must run over the examples")
        if read_only and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        arrays[name] = array
    sizes = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"{where}: the leading sizes of the features differ: {sizes}")
    return arrays


def num_examples(examples: Examples) -> int:
    """Return the leading size."""
    return next(iter(examples.values())).shape[0]


def take_examples(examples: Examples, index: Any) -> dict[str, np.ndarray]:
    """Return the examples at ``index``: a slice (views), or an int array (copies)."""
    return {name: array[index] for name, array in examples.items()}


def concat_examples(parts: Sequence[Examples], where: str = "client data") -> dict[str, np.ndarray]:
    """Join examples along their leading axis.

    Raises:
      DataError: their features differ in name, or in shape.
    """
    if not parts:
        return {}
    names = list(parts[0])
    for part in parts[1:]:
        if set(part) != set(names):
            raise DataError(f"{where}: the features differ: {sorted(names)} and {sorted(part)}")
    if len(parts) == 1:
        return dict(parts[0])
    try:
        return {name: np.concatenate([part[name] for part in parts]) for name in names}
    except ValueError as error:
        raise DataError(f"{where}: the features' shapes differ: {error}") from error


def pad_examples(examples: Examples, size: int) -> dict[str, np.ndarray]:
    """Pad with zeros (empty strings) to ``size`` examples, and add the mask.

    Args:
      examples: at most ``size`` examples.
      size: the leading size of the result.

    Returns:
      The arrays, and under ``"__mask__"`` bool (size,): True for the examples that are there.

    Raises:
      DataError: there are more examples than ``size``, or a feature has the mask's name.
    """
    arrays = check_examples(examples, "a batch after its preprocessor", read_only=False)
    present = num_examples(arrays)
    if present > size:
        raise DataError(f"a batch preprocessor made {present} examples of at most {size}; it must not add any")
    if EXAMPLE_MASK_KEY in arrays:
        raise DataError(f"a feature is named {EXAMPLE_MASK_KEY!r}, which is the mask's name; rename it")
    padded = {}
    for name, array in arrays.items():
        if present == size:
            padded[name] = array
            continue
        fill = np.zeros((size - present, *array.shape[1:]), array.dtype)
        if array.dtype == object:
            fill[...] = b"" if array.size and isinstance(array.flat[0], bytes) else ""
        padded[name] = np.concatenate([array, fill])
    padded[EXAMPLE_MASK_KEY] = np.arange(size) < present
    return padded
