"""Intrinsics of the federated language (federated_language.framework, TFF).

Sums and means of floats are accumulated in float64 (complex128) and rounded once; sums of integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import federated_language as fl
import numpy as np

from tf2jax_lite.federated.core.types import AllEqual, map_structure
from tf2jax_lite.support.errors import FederatedTypeError

# uri -> function(type of the intrinsic, number of clients, argument) -> result
INTRINSICS: dict[str, Callable[[Any, int, Any], Any]] = {}


def _intrinsic(*definitions: Any) -> Callable[[Callable[[Any, int, Any], Any]], Callable[[Any, int, Any], Any]]:
    def register(function: Callable[[Any, int, Any], Any]) -> Callable[[Any, int, Any], Any]:
        for definition in definitions:
            INTRINSICS[definition if isinstance(definition, str) else definition.uri] = function
        return function

    return register


def members(value: Any, num_clients: int) -> list[Any]:
    """Return the clients' values as a list."""
    return [value.member] * num_clients if isinstance(value, AllEqual) else value


def _map_members(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, AllEqual):  # functions are pure: equal values stay equal
        return AllEqual(function(value.member))
    return [function(member) for member in value]


@_intrinsic(fl.framework.FEDERATED_MAP, fl.framework.FEDERATED_MAP_ALL_EQUAL)
def _map(_: Any, num_clients: int, arg: Any) -> Any:
    return _map_members(arg[0], arg[1])


@_intrinsic(fl.framework.FEDERATED_APPLY)
def _apply(_: Any, num_clients: int, arg: Any) -> Any:
    return arg[0](arg[1])


@_intrinsic(fl.framework.FEDERATED_BROADCAST, fl.framework.FEDERATED_VALUE_AT_CLIENTS)
def _broadcast(_: Any, num_clients: int, arg: Any) -> Any:
    return AllEqual(arg)


@_intrinsic(fl.framework.FEDERATED_VALUE_AT_SERVER, fl.framework.FEDERATED_ZIP_AT_SERVER)
def _value_at_server(_: Any, num_clients: int, arg: Any) -> Any:
    return arg


@_intrinsic(fl.framework.FEDERATED_EVAL_AT_CLIENTS)
def _eval_at_clients(_: Any, num_clients: int, arg: Any) -> Any:
    return [arg(None) for _ in range(num_clients)]


@_intrinsic(fl.framework.FEDERATED_EVAL_AT_SERVER)
def _eval_at_server(_: Any, num_clients: int, arg: Any) -> Any:
    return arg(None)


@_intrinsic(fl.framework.FEDERATED_ZIP_AT_CLIENTS)
def _zip_at_clients(kind: Any, num_clients: int, arg: Any) -> Any:
    if _all_equal(arg, kind.parameter):
        return AllEqual(_pick(arg, kind.parameter, None, num_clients))
    return [_pick(arg, kind.parameter, client, num_clients) for client in range(num_clients)]


def _all_equal(arg: Any, kind: Any) -> bool:
    if isinstance(kind, fl.StructType):
        return all(_all_equal(element, child) for element, (_, child) in zip(arg, kind.items(), strict=True))
    return isinstance(arg, AllEqual)


def _pick(arg: Any, kind: Any, client: int | None, num_clients: int) -> Any:
    if isinstance(kind, fl.StructType):
        pairs = zip(arg, kind.items(), strict=True)
        return tuple(_pick(element, child, client, num_clients) for element, (_, child) in pairs)
    return arg.member if client is None or isinstance(arg, AllEqual) else arg[client]


def _wide(dtype: np.dtype) -> np.dtype:
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    return dtype if dtype.kind in "iub" else np.dtype(np.float64)


def _total(kind: Any, values: list[Any], weights: list[Any] | None = None) -> Any:
    """Sum the weighted values in wide dtypes."""

    def leaf(tensor: Any, *arrays: Any) -> Any:
        if not arrays:
            return np.zeros([size or 0 for size in tensor.shape or ()], _wide(tensor.dtype))
        total = None
        for number, array in enumerate(arrays):
            array = np.asarray(array, _wide(tensor.dtype))
            if weights is not None:
                array = array * np.asarray(weights[number], np.float64)
            total = array if total is None else total + array
        return total

    return map_structure(leaf, kind, *values)


def _narrow(kind: Any, value: Any) -> Any:
    return map_structure(lambda tensor, array: np.asarray(array).astype(tensor.dtype), kind, value)


@_intrinsic(fl.framework.FEDERATED_SUM)
def _sum(kind: Any, num_clients: int, arg: Any) -> Any:
    return _narrow(kind.result.member, _total(kind.result.member, members(arg, num_clients)))


@_intrinsic(fl.framework.FEDERATED_MEAN)
def _mean(kind: Any, num_clients: int, arg: Any) -> Any:
    return _divided(kind, _total(kind.result.member, members(arg, num_clients)), num_clients)


@_intrinsic(fl.framework.FEDERATED_WEIGHTED_MEAN)
def _weighted_mean(kind: Any, num_clients: int, arg: Any) -> Any:
    weights = members(arg[1], num_clients)
    total_weight = sum((np.asarray(weight, np.float64) for weight in weights), np.zeros(()))
    return _divided(kind, _total(kind.result.member, members(arg[0], num_clients), weights), total_weight)


def _divided(kind: Any, total: Any, divisor: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):  # no clients, or weights of zero: NaN, as in TFF
        means = map_structure(lambda _, array: array / np.float64(divisor), kind.result.member, total)
    return _narrow(kind.result.member, means)


def _extreme(pick: Any, infinite: float) -> Callable[[Any, int, Any], Any]:
    def identity(tensor: Any) -> Any:
        if tensor.dtype.kind in "iu":
            limits = np.iinfo(tensor.dtype)
            return np.full(tensor.shape, limits.max if infinite > 0 else limits.min, tensor.dtype)
        return np.full(tensor.shape, infinite, tensor.dtype)

    def function(kind: Any, num_clients: int, arg: Any) -> Any:
        def leaf(tensor: Any, *arrays: Any) -> Any:
            result = np.asarray(arrays[0]) if arrays else identity(tensor)
            for array in arrays[1:]:
                result = pick(result, np.asarray(array))
            return result

        return map_structure(leaf, kind.result.member, *members(arg, num_clients))

    return function


INTRINSICS[fl.framework.FEDERATED_MIN.uri] = _extreme(np.minimum, np.inf)
INTRINSICS[fl.framework.FEDERATED_MAX.uri] = _extreme(np.maximum, -np.inf)


@_intrinsic(fl.framework.FEDERATED_AGGREGATE)
def _aggregate(_: Any, num_clients: int, arg: Any) -> Any:
    value, accumulator, accumulate, _, report = arg
    # One accumulator sees all clients, so nothing is left to merge.
    for member in members(value, num_clients):
        accumulator = accumulate((accumulator, member))
    return report(accumulator)


def _secure(limit_of: Callable[[Any], Any]) -> Callable[[Any, int, Any], Any]:
    def function(kind: Any, num_clients: int, arg: Any) -> Any:
        """Sum values; refuse those that a secure protocol cannot represent."""
        value, bound = arg
        member = kind.result.member

        def check(_: Any, array: Any, limit: Any) -> None:
            if (np.asarray(array) < 0).any() or (np.asarray(array) > limit_of(limit)).any():
                raise FederatedTypeError(f"{kind}: a client's secure value {array} is not from 0 to {limit_of(limit)}")

        if not isinstance(bound, tuple):  # one bound for all tensors
            bound = map_structure(lambda _: arg[1], member)
        for client in members(value, num_clients):
            map_structure(check, member, client, bound)
        return _sum(kind, num_clients, value)

    return function


INTRINSICS[fl.framework.FEDERATED_SECURE_SUM.uri] = _secure(int)
INTRINSICS[fl.framework.FEDERATED_SECURE_SUM_BITWIDTH.uri] = _secure(lambda bits: 2 ** int(bits) - 1)


@_intrinsic(fl.framework.FEDERATED_SELECT, fl.framework.FEDERATED_SECURE_SELECT)
def _select(_: Any, num_clients: int, arg: Any) -> Any:
    client_keys, max_key, server_value, select = arg
    slices: dict[int, Any] = {}
    results = []
    for keys in members(client_keys, num_clients):
        chosen = []
        for key in np.asarray(keys).tolist():
            if not 0 <= key < max_key:
                raise FederatedTypeError(f"federated_select: key {key} is not from 0 to max_key {max_key}, exclusive")
            if key not in slices:  # clients that ask for the same slice share it
                slices[key] = select((server_value, np.int32(key)))
            chosen.append(slices[key])
        results.append(chosen)
    return results


@_intrinsic(fl.framework.SEQUENCE_MAP)
def _sequence_map(_: Any, num_clients: int, arg: Any) -> Any:
    return [arg[0](element) for element in arg[1]]


@_intrinsic("sequence_reduce")
def _sequence_reduce(_: Any, num_clients: int, arg: Any) -> Any:
    sequence, result, function = arg
    for element in sequence:
        result = function((result, element))
    return result


@_intrinsic("sequence_sum")
def _sequence_sum(kind: Any, num_clients: int, arg: Any) -> Any:
    return _narrow(kind.result, _total(kind.result, arg))


@_intrinsic(fl.framework.GENERIC_PLUS)
def _plus(kind: Any, num_clients: int, arg: Any) -> Any:
    return map_structure(lambda _, x, y: np.add(x, y), kind.result, *arg)


@_intrinsic(fl.framework.GENERIC_MULTIPLY)
def _multiply(kind: Any, num_clients: int, arg: Any) -> Any:
    return map_structure(lambda _, x, y: np.multiply(x, y), kind.result, *arg)


@_intrinsic(fl.framework.GENERIC_DIVIDE)
def _divide(kind: Any, num_clients: int, arg: Any) -> Any:
    return map_structure(lambda tensor, x, y: np.divide(x, y).astype(tensor.dtype), kind.result, *arg)
