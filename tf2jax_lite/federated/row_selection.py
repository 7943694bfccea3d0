"""Rows of weights that clients select: models of which each client needs a part.

A client downloads and updates only the rows of embeddings (along the first axis) that its examples use. Their number
has a bound, so that all clients share programs. Sources: Charles et al. 2022, "Federated Select: A Primitive for
Communication- and Memory-Efficient Federated Learning"; TFF's tutorial on federated_select and sparse aggregation.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import MeanStat
from tf2jax_lite.learning.model import Model, changing_leaves, check_model
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.support.config import override_config
from tf2jax_lite.support.errors import DataError, InputError

Examples = Mapping[str, np.ndarray]
Path = tuple[Hashable, ...]


class Selected(NamedTuple):
    """A client's selection.

    Attributes:
      keys: int32 (max_keys,), numbers of rows; the number of all rows where a client has no more.
      examples: the client's examples, with positions in ``keys`` in place of numbers of rows.
      is_whole: whether all rows that the examples name are selected.
    """

    keys: np.ndarray
    examples: Examples
    is_whole: bool


@dataclasses.dataclass(frozen=True, eq=False)
class RowSelection:
    """A selection of rows of some weights, with one numbering.

    Attributes:
      paths: of the weights, in the tree of `ModelWeights`.
      num_rows: of each of them.
      max_keys: the most rows that a client has.
      select: ``(examples, who, is_reversed) -> Selected``; reversed, positions are others.
    """

    paths: frozenset[Path]
    num_rows: int
    max_keys: int
    select: Callable[[Examples, str, bool], Selected]


class _Inputs(NamedTuple):
    """A client's keys of each selection, and the input of the client work."""

    keys: tuple[Any, ...]
    given: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The selections of a model.

    Attributes:
      selections: those of `select_rows`, each of other weights.
      weights: path to shape of all weights. Messages and updates may have copies of the tree of trainable weights.
    """

    selections: tuple[RowSelection, ...]
    weights: Mapping[Path, tuple[int, ...]]

    def _owner(self, path: Path, leaf: Any) -> int | None:
        """Return the number of the selection that a leaf belongs to."""
        for start in range(len(path)):
            for found in (path[start:], (_TRAINABLE, *path[start:])):
                shape = self.weights.get(found)
                if shape is not None and len(shape) == leaf.ndim and shape[1:] == leaf.shape[1:]:
                    return next((i for i, s in enumerate(self.selections) if found in s.paths), None)
        return None

    def map(self, tree: PyTree, function: Callable[[Any, int], Any]) -> PyTree:
        """Return a tree with ``function(leaf, selection)`` where rows are selected."""

        def one(path: Path, leaf: Any) -> Any:
            owner = self._owner(path, leaf)
            return leaf if owner is None else function(leaf, owner)

        return jax.tree_util.tree_map_with_path(one, tree)

    def at_client(self, tree: PyTree, keys: Sequence[Any]) -> PyTree:
        """Return a tree with the selected rows; zeros in place of rows without a key."""
        return self.map(tree, lambda leaf, i: leaf.at[keys[i]].get(mode="fill", fill_value=0))

    def at_server(self, tree: PyTree, keys: Sequence[Any]) -> PyTree:
        """Return a client's tree with all rows; zeros in place of those of others."""

        def scatter(leaf: Any, i: int) -> Any:
            zeros = jnp.zeros((self.selections[i].num_rows, *leaf.shape[1:]), leaf.dtype)
            return zeros.at[keys[i]].set(leaf, mode="drop", unique_indices=True)

        return self.map(tree, scatter)

    def shapes(self, weights: ModelWeights) -> ModelWeights:
        """Return the shapes of weights at a client."""
        return self.map(
            weights, lambda leaf, i: jax.ShapeDtypeStruct((self.selections[i].max_keys, *leaf.shape[1:]), leaf.dtype)
        )

    def num_bytes(self, tree: PyTree, keys: Sequence[Any]) -> Any:
        """Return the bytes of a client's tree, float32, without rows that have no key."""
        sizes = [0] * (len(self.selections) + 1)
        for path, leaf in jax.tree.leaves_with_path(tree):
            owner = self._owner(path, leaf)
            size = leaf.size * leaf.dtype.itemsize
            sizes[-1 if owner is None else owner] += size if owner is None else size // leaf.shape[0]
        return sum((n * float(size) for n, size in zip(self.counts(keys), sizes, strict=False)), jnp.float32(sizes[-1]))

    def counts(self, keys: Sequence[Any]) -> list[Any]:
        """Return how many rows a client has of each selection."""
        return [jnp.sum(own < s.num_rows, dtype=jnp.int32) for own, s in zip(keys, self.selections, strict=True)]

    def prepare(self, examples: Examples, given: Any, who: str, is_reversed: bool = False) -> tuple[Examples, _Inputs]:
        """Return a client's examples and input for `work`'s result."""
        keys = []
        for selection in self.selections:
            found = selection.select(examples, who, is_reversed)
            examples = found.examples
            keys.append(found.keys)
        return examples, _Inputs(tuple(keys), given)

    def is_whole(self, examples: Examples, who: str) -> bool:
        """Return whether a client has all rows that its examples name."""
        return all(selection.select(examples, who, False).is_whole for selection in self.selections)

    def work(self, work: ClientWork) -> ClientWork:
        """Return client work on the rows that a client selects.

        Its measurements have the bytes that a client downloads, and those of its keys and update.
        """

        def client_init(state: Any, message: PyTree, key: Any, inputs: _Inputs) -> Any:
            return work.client_init(state, self.at_client(message, inputs.keys), key, inputs.given), inputs.keys

        def client_step(state: Any, message: PyTree, carry: Any, batch: Mapping[str, Any]) -> Any:
            inner, keys = carry
            return work.client_step(state, self.at_client(message, keys), inner, batch), keys

        def client_final(state: Any, message: PyTree, carry: Any) -> ClientResult:
            inner, keys = carry
            part = self.at_client(message, keys)
            found = work.client_final(state, part, inner)
            measured = found.measurements
            if isinstance(measured, dict):
                statistics = sum(leaf.nbytes for leaf in found.non_trainable)
                sent = self.num_bytes(found.update, keys) + float(statistics) + 4.0 * sum(self.counts(keys))
                moved = {"downloaded_bytes": self.num_bytes(part, keys), "uploaded_bytes": sent}
                measured = measured | {name: MeanStat.new(v, jnp.int32(1)) for name, v in moved.items()}
            return found._replace(update=self.at_server(found.update, keys), measurements=measured)

        return dataclasses.replace(
            work, client_init=client_init, client_step=client_step, client_final=client_final, prepare=self.prepare
        )


_TRAINABLE = jax.tree_util.GetAttrKey("trainable")


def _paths(weights: ModelWeights) -> dict[Path, Any]:
    return dict(jax.tree.leaves_with_path(weights))


def _shapes(weights: ModelWeights) -> dict[Path, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in _paths(weights).items()}


def select_rows(
    model: Model,
    selects: Callable[[str], bool],
    keys: str | Sequence[str] | Callable[[Examples], tuple[Any, Examples]],
    max_keys: int,
    *,
    fixed: int = 0,
    missing: int | None = None,
) -> Model:
    """Return a model of which each client trains the rows that its examples use.

    A client gets these rows of some weights, and all of the others. Its examples get positions among its rows in place
    of numbers of rows. The server takes an update for zero in other rows, so that its mean is over all clients, not
    over those with the row. Evaluations take all weights. See tff.federated_select.

    Args:
      model: the model, frozen or with adapters before.
      selects: ``(name) -> bool``, the weights whose first axis is selected; names are paths in the pytrees of trainable
        and non-trainable weights, with slashes. Call `select_rows` again for weights with another numbering.
      keys: the features with numbers of rows: integers (n, ...), of which negative ones are kept. Or ``(examples) ->
        (rows, examples)``, the rows of a client and its examples with positions among them.
      max_keys: the most rows that a client selects.
      fixed: the first rows, which all clients select and whose numbers stay: of padding and special tokens, if the
        model compares with those (``mask_zero`` of Keras: 1).
      missing: the number in place of those that a client has no room for, negative if the model ignores it, or a row
        (of unknown words). Rows in the most examples are selected then. By default such a client raises `DataError`.

    Raises:
      InputError: no weight is selected, or they have different numbers of rows; training changes one that is not
        trainable; or an option is out of range.
    """
    model = check_model(model)
    check_number("select_rows", "max_keys", max_keys, least=1, whole=True)
    check_number("select_rows", "fixed", fixed, least=0, most=max_keys, whole=True)
    leaves = _paths(model.shapes)
    names = {path: jax.tree_util.keystr(path[1:], simple=True, separator="/") for path in leaves}
    chosen = {path: leaves[path] for path, name in names.items() if selects(name)}
    sizes = {leaf.shape[0] if leaf.shape else 0 for leaf in chosen.values()}
    if len(sizes) != 1 or 0 in sizes:
        found = ", ".join(f"{names[path]} {list(leaf.shape)}" for path, leaf in (chosen or leaves).items())
        raise InputError(
            f"select_rows: selects chooses weights with one number of rows, one call for each numbering; not "
            f"{'these' if chosen else 'none of'}: {found:.300}"
        )
    flags = changing_leaves(model, model.shapes.non_trainable)
    others = [path for path in leaves if path[0] != _TRAINABLE]
    moving = {path for path, flag in zip(others, flags, strict=True) if flag}
    earlier = () if model.rows is None else model.rows.selections
    for path in chosen:
        if path in moving or any(path in s.paths for s in earlier):
            why = "training changes it, which is not trainable" if path in moving else "it has a selection already"
            raise InputError(f"select_rows: selects chooses {names[path]}, and {why}.")
    (num_rows,) = sizes
    if missing is not None:
        check_number("select_rows", "missing", missing, below=num_rows, whole=True)
    select = _by_function(keys, num_rows, max_keys) if callable(keys) else None
    if select is None:
        features = (keys,) if isinstance(keys, str) else tuple(keys)  # type: ignore[arg-type]
        select = _ByIds(features, num_rows, max_keys, fixed, missing)
    selection = RowSelection(frozenset(chosen), num_rows, max_keys, select)
    return dataclasses.replace(
        model,
        apply_for_train=_of_any_shape(model.apply_for_train),
        apply_for_eval=_of_any_shape(model.apply_for_eval),
        rows=Rows((*earlier, selection), _shapes(model.shapes)),
    )


def _of_any_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes other shapes, if it is a converted one."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with override_config("strict_shape_check", False):
            return function(*args)

    return call


def _padded(keys: np.ndarray, num_rows: int, max_keys: int) -> np.ndarray:
    return np.concatenate([keys, np.full(max_keys - len(keys), num_rows)]).astype(np.int32)


def _by_function(
    keys: Callable[[Examples], tuple[Any, Examples]], num_rows: int, max_keys: int
) -> Callable[[Examples, str, bool], Selected]:
    def select(examples: Examples, who: str, is_reversed: bool) -> Selected:
        rows, changed = keys(dict(examples))
        rows, changed = np.asarray(rows), {name: np.asarray(value) for name, value in changed.items()}
        right = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows) <= max_keys
        if not right or len(np.unique(rows)) < len(rows) or np.any((rows < 0) | (rows >= num_rows)):
            raise DataError(
                f"{who}: keys returned {rows.dtype}{list(rows.shape)} {rows.tolist()!r:.80}; expected at most "
                f"{max_keys} different rows of 0 to {num_rows - 1}."
            )
        return Selected(_padded(rows, num_rows, max_keys), changed, True)

    return select


@dataclasses.dataclass(frozen=True)
class _ByIds:
    """Selects the rows that features name; see `select_rows`."""

    features: tuple[str, ...]
    num_rows: int
    max_keys: int
    fixed: int
    missing: int | None

    def __call__(self, examples: Examples, who: str, is_reversed: bool) -> Selected:
        given = {name: self._checked(examples, name, who) for name in self.features}
        every = np.concatenate([ids.reshape(len(ids), -1) for ids in given.values()], axis=1)
        first = list(range(self.fixed))
        if self.missing is not None and self.missing >= self.fixed:
            first.append(self.missing)
        others = np.setdiff1d(every[every >= 0], first)
        room = self.max_keys - len(first)
        is_whole = len(others) <= room
        if not is_whole:
            if self.missing is None:
                raise DataError(
                    f"{who}: {', '.join(self.features)} name {len(first) + len(others)} rows, and max_keys is "
                    f"{self.max_keys}. Raise max_keys of select_rows, or give missing."
                )
            others = self._most_frequent(every, others, room)
        keys = _padded(np.concatenate([first, others]), self.num_rows, self.max_keys)
        if is_reversed:
            keys[self.fixed :] = keys[self.fixed :][::-1]
        order = np.argsort(keys, kind="stable")
        missing = -1 if self.missing is None else self.missing
        if missing >= 0:
            missing = int(np.flatnonzero(keys == missing)[0])

        def local(ids: np.ndarray) -> np.ndarray:
            place = order[np.minimum(np.searchsorted(keys, ids, sorter=order), self.max_keys - 1)]
            found = np.where(ids < 0, ids, np.where(keys[place] == ids, place, missing))
            return found.astype(ids.dtype if ids.dtype in (np.int32, np.int64) else np.int32)

        return Selected(keys, {**examples, **{name: local(ids) for name, ids in given.items()}}, is_whole)

    def _checked(self, examples: Examples, name: str, who: str) -> np.ndarray:
        ids = examples.get(name)
        if ids is None or ids.dtype.kind not in "iu":
            raise DataError(
                f"{who}: select_rows reads integers in feature {name!r}; "
                + (f"there are {', '.join(sorted(examples))}." if ids is None else f"it is {ids.dtype}.")
            )
        if ids.size and ids.max() >= self.num_rows:
            raise DataError(f"{who}: feature {name!r} has {ids.max()}; there are rows 0 to {self.num_rows - 1}.")
        return ids

    def _most_frequent(self, every: np.ndarray, others: np.ndarray, room: int) -> np.ndarray:
        """Return the rows that the most examples name; of equals, the first."""
        number = np.repeat(np.arange(len(every)), every.shape[1])
        once = np.unique(np.stack([number, every.reshape(-1)]), axis=1)[1]
        counts = np.bincount(once[once >= 0], minlength=self.num_rows)[others]
        return np.sort(others[np.argsort(-counts, kind="stable")[:room]])


def check_selection(who: str, model: Model) -> None:
    """Refuse a model that was changed after its rows were selected.

    Raises:
      InputError: its weights are no longer those of the selection.
    """
    if model.rows is not None and model.rows.weights != _shapes(model.shapes):
        raise InputError(f"{who}: select_rows comes last. Call it on the model that is trained, frozen or adapted.")


def check_rows(model: Model, weights: ModelWeights, examples: Examples, who: str) -> None:
    """Check once that a client's rows are all that the model reads.

    Predictions with these rows alone, in another order, are those with all.

    Raises:
      InputError: they differ.
    """
    rows = model.rows
    if rows is None or "_has_checked_rows" in vars(model):
        return
    leaves = jax.tree.leaves((weights, dict(examples)))
    if any(is_traced(leaf) or not getattr(leaf, "is_fully_addressable", True) for leaf in leaves):
        return
    if not rows.is_whole(examples, who):
        return
    own, inputs = rows.prepare(examples, None, who, True)
    try:
        whole = jax.jit(model.apply_for_eval)(weights, dict(examples))
        part = jax.jit(model.apply_for_eval)(rows.at_client(weights, inputs.keys), dict(own))
        same = all(map(_is_close, jax.tree.leaves(whole), jax.tree.leaves(part)))
        reason = "its predictions differ"
    except (TypeError, ValueError) as error:  # shapes that do not go together
        same, reason = False, str(error).splitlines()[0]
    if not same:
        raise InputError(
            f"select_rows: with the rows of {who} alone the model is another one ({reason}): it reads other rows, or "
            "compares the numbers of rows. Choose keys by all features that name rows; `fixed` keeps the first numbers."
        )
    vars(model)["_has_checked_rows"] = True


def _is_close(a: Any, b: Any) -> bool:
    if np.shape(a) != np.shape(b):
        return False
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    return np.allclose(a, b, 1e-3, 1e-3 * np.max(np.abs(a), initial=0, where=np.isfinite(a)), equal_nan=True)
