"""Claims of the page of random ops on their numbers, and their cases.

``python -m tools.pages.random_numbers`` writes the page.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
import tensorflow as tf
from tensorflow.python.framework import op_def_library

FLOATS = (np.float16, tf.bfloat16.as_numpy_dtype, np.float32, np.float64)
SEEDS = (np.array([1, 2], np.int32), np.array([-5, 2**40 + 3], np.int64))
# Counters whose low 32, 64 and 96 bits overflow within 1003 numbers.
STATES = tuple(
    (np.array([2**63 + 12345], np.uint64), np.array(c, np.uint64))
    for c in ([2**32 - 7, 0], [2**64 - 5, 77], [2**64 - 3, 2**32 - 1])
)
SIZES = (1003, 5, 1)  # none a multiple of four
EXACT, ULP, DISTRIBUTION = "exact", "ulp", "distribution"


@dataclasses.dataclass(frozen=True)
class Claim:
    """The relation of an op's numbers to TensorFlow's.

    Attributes:
      kind: EXACT (bit for bit TensorFlow's on CPU), ULP (rounded otherwise) or DISTRIBUTION.
      ulps: for ULP, the largest difference in units of the dtype's precision at max(1, |number|).
    """

    kind: str
    cases: tuple[Any, ...] = ()
    ulps: float = 0
    note: str = ""


def _apply(name: str, **arguments: Any) -> Any:
    raw = getattr(tf.raw_ops, name, None)
    return op_def_library.apply_op(name, **arguments) if raw is None else raw(**arguments)


def _seeded(name: str, extra: Callable[[Any], dict[str, Any]], dtypes: Any) -> tuple[Any, ...]:
    """Return cases of the V1 stateless ops, which have a seed."""
    return tuple(
        functools.partial(_apply, name, shape=np.array([size], np.int32), seed=seed, **extra(dtype))
        for (seed, size), dtype in itertools.product(zip(SEEDS, SIZES, strict=False), dtypes)
    )


def _keyed(name: str, extra: Callable[[Any], dict[str, Any]], dtypes: Any, sizes: Any = SIZES) -> tuple[Any, ...]:
    """Return cases of the V2 stateless ops, which have key, counter and algorithm."""
    return tuple(
        functools.partial(
            _apply, name, shape=np.array([n], np.int32), key=key, counter=counter, alg=np.int32(1), **extra(dtype)
        )
        for ((key, counter), n), dtype in itertools.product(zip(STATES, sizes, strict=True), dtypes)
    )


def _dtype(dtype: Any) -> dict[str, Any]:
    return {"dtype": tf.as_dtype(dtype)}


def _bounds(dtype: Any) -> dict[str, Any]:
    return {"minval": np.asarray(-7, dtype), "maxval": np.asarray(np.iinfo(dtype).max // 3, dtype)}


def _pair(first: str, extra: Any, dtypes: Any, **claim: Any) -> dict[str, Claim]:
    return {
        first: Claim(cases=_seeded(first, extra, dtypes), **claim),
        f"{first}V2": Claim(cases=_keyed(f"{first}V2", extra, dtypes), **claim),
    }


def _spread(name: str, dtypes: Any, **parameters: Any) -> tuple[Any, ...]:
    shape = np.array([301, 4], np.int32)
    return tuple(
        functools.partial(
            _apply, name, shape=shape, seed=seed, **{k: np.asarray(v, dtype) for k, v in parameters.items()}, **more
        )
        for seed, (dtype, more) in itertools.product(SEEDS, dtypes)
    )


def _shuffle(name: str) -> tuple[Any, ...]:
    return tuple(
        functools.partial(_apply, name, value=np.arange(n), key=k, counter=c, alg=np.int32(1))
        for (k, c), n in zip(STATES, SIZES, strict=True)
    )


_LOGITS = np.array([[1.0, 2, 3], [-5, 3, 2], [0, 0, -np.inf]])
_ALPHA, _RATE = [0.3, 1.0, 2.5, 100.0], [0.5, 9.5, 30.0, 1000.0]
_COUNTS, _PROBS = [10.0, 100, 20, 60], [0.3, 0.2, 0.8, 0.5]
_INT64 = {"dtype": tf.int64}
_64 = "needs 64-bit mode for this: the kernel computes in double precision"
_WORDS = "its state is a variable; without 64-bit mode it is held as 32-bit words, and the draws are the same"

STATELESS: dict[str, Claim] = {
    "StatelessRandomGetAlg": Claim(EXACT, (functools.partial(_apply, "StatelessRandomGetAlg"),)),
    **{
        name: Claim(EXACT, tuple(functools.partial(_apply, name, seed=s) for s in SEEDS))
        for name in ("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")
    },
    **_pair("StatelessRandomUniform", _dtype, FLOATS, kind=EXACT),
    **_pair("StatelessRandomUniformInt", _bounds, (np.int32, np.int64), kind=EXACT),
    **_pair("StatelessRandomUniformFullInt", _dtype, (np.int32, np.uint32, np.int64, np.uint64), kind=EXACT),
    **_pair("StatelessRandomNormal", _dtype, FLOATS, kind=ULP, ulps=16),
    **_pair("StatelessTruncatedNormal", _dtype, FLOATS, kind=ULP, ulps=16),
    "StatelessShuffle": Claim(EXACT, _shuffle("StatelessShuffle")),
    "StatelessMultinomial": Claim(
        EXACT,
        tuple(
            functools.partial(
                _apply, "StatelessMultinomial", logits=_LOGITS.astype(t), num_samples=np.int32(33), seed=s
            )
            for t, s in zip((np.float32, np.float64), SEEDS, strict=True)
        ),
        note="from rows x (classes + samples x log2 classes) of some 4,200 on TensorFlow shares rows among its "
        "threads, and all but the first thread's depend on their number; one row is always exact",
    ),
    "StatelessRandomGammaV2": Claim(
        ULP, _spread("StatelessRandomGammaV2", [(np.float32, {}), (np.float64, {})], alpha=_ALPHA), 64, _64
    ),
    "StatelessRandomGammaV3": Claim(
        ULP,
        tuple(
            functools.partial(
                _apply,
                "StatelessRandomGammaV3",
                shape=np.array([301, 4], np.int32),
                key=key,
                counter=counter,
                alg=np.int32(1),
                alpha=np.asarray(_ALPHA),
            )
            for key, counter in STATES
        ),
        64,
        _64,
    ),
    "StatelessRandomPoisson": Claim(
        EXACT, _spread("StatelessRandomPoisson", [(np.float32, _INT64), (np.float64, _INT64)], lam=_RATE), 0, _64
    ),
    "StatelessRandomBinomial": Claim(
        EXACT, _spread("StatelessRandomBinomial", [(np.float64, _INT64)], counts=_COUNTS, probs=_PROBS), 0, _64
    ),
    "StochasticCastToInt": Claim(
        EXACT,
        tuple(
            functools.partial(
                _apply, "StochasticCastToInt", input=np.linspace(-9, 9, n), key=k, counter=c, alg=1, Tout=tf.int8
            )
            for (k, c), n in zip(STATES, SIZES, strict=True)
        ),
        note="save from float32 or float64 to int32, where the kernel's order depends on the processor: distribution",
    ),
    "StatelessSampleDistortedBoundingBox": Claim(
        EXACT,
        tuple(
            functools.partial(
                _apply,
                "StatelessSampleDistortedBoundingBox",
                image_size=np.array([480, 640, 3], np.int32),
                bounding_boxes=np.array([[[0.1, 0.2, 0.7, 0.5], [0.4, 0.4, 0.9, 1]]], np.float32),
                min_object_covered=np.float32(covered),
                seed=seed,
            )
            for seed, covered in zip(SEEDS, (0.1, 0.9), strict=True)
        ),
        note="of images of up to 4096 pixels a side; of larger ones a crop in millions may differ by a pixel",
    ),
    "RandomIndexShuffle": Claim(
        EXACT,
        tuple(
            functools.partial(
                _apply, "RandomIndexShuffle", index=np.arange(n), seed=np.array([3, 4, 5], np.int32), max_index=n - 1
            )
            for n in (5, 1003)
        ),
    ),
}

GENERATOR: dict[str, Claim] = {
    name: Claim(kind, ulps=16 if kind == ULP else 0, note=_WORDS)
    for name, kind in {
        "RngReadAndSkip": EXACT,
        "RngSkip": EXACT,
        "StatefulUniform": EXACT,
        "StatefulUniformInt": EXACT,
        "StatefulUniformFullInt": EXACT,
        "StatefulStandardNormal": ULP,
        "StatefulStandardNormalV2": ULP,
        "StatefulTruncatedNormal": ULP,
        "StatefulRandomBinomial": EXACT,
    }.items()
}

_N = np.array([4001], np.int32)
_cdf: Any = scipy.stats
_KEY = "from `rng=`"


def _drawn(name: str, cdf: Any, note: str = _KEY, **arguments: Any) -> Claim:
    return Claim(DISTRIBUTION, ((functools.partial(_apply, name, **arguments), cdf),), note=note)


KEYED: dict[str, Claim] = {
    "RandomUniform": _drawn("RandomUniform", _cdf.uniform.cdf, shape=_N, dtype=tf.float32),
    "RandomUniformInt": _drawn(
        "RandomUniformInt", _cdf.randint(-3, 9).cdf, shape=_N, minval=np.int32(-3), maxval=np.int32(9)
    ),
    "RandomStandardNormal": _drawn("RandomStandardNormal", _cdf.norm.cdf, shape=_N, dtype=tf.float32),
    "TruncatedNormal": _drawn("TruncatedNormal", _cdf.truncnorm(-2, 2).cdf, shape=_N, dtype=tf.float32),
    "ParameterizedTruncatedNormal": _drawn(
        "ParameterizedTruncatedNormal",
        _cdf.truncnorm(-0.5, 2, loc=1, scale=2).cdf,
        shape=_N,
        means=np.float32([1]),
        stdevs=np.float32([2]),
        minvals=np.float32([0]),
        maxvals=np.float32([5]),
    ),
    "RandomGamma": _drawn("RandomGamma", _cdf.gamma(2.5).cdf, shape=_N, alpha=np.float32(2.5)),
    "RandomPoissonV2": _drawn("RandomPoissonV2", _cdf.poisson(4.5).cdf, shape=_N, rate=np.float32(4.5), dtype=tf.int32),
    "NonDeterministicInts": _drawn(
        "NonDeterministicInts",
        _cdf.randint(-(2**31), 2**31).cdf,
        "from `rng=`, so that they repeat",
        shape=_N,
        dtype=tf.int32,
    ),
    "RandomShuffle": _drawn("RandomShuffle", _cdf.randint(0, 4001).cdf, value=np.arange(4001, dtype=np.int32)),
    "Multinomial": _drawn(
        "Multinomial",
        _cdf.randint(0, 3).cdf,
        logits=np.zeros([1, 3], np.float32),
        num_samples=np.int32(4001),
        output_dtype=tf.int32,
    ),
    "StatelessParameterizedTruncatedNormal": _drawn(
        "StatelessParameterizedTruncatedNormal",
        _cdf.truncnorm(-0.5, 2, loc=1, scale=2).cdf,
        note="the first number is TensorFlow's; there the others depend on its threads",
        shape=_N,
        seed=SEEDS[0],
        means=np.float32(1),
        stddevs=np.float32(2),
        minvals=np.float32(0),
        maxvals=np.float32(5),
    ),
    **{
        name: Claim(DISTRIBUTION, note=f"{_KEY}; {where}" if where else _KEY)
        for name, where in {
            # Of tests/ops/random/test_candidate_sampling.py, tests/ops/test_legacy.py and
            # tests/ops/image/test_sample_distorted_box.py.
            "UniformCandidateSampler": "",
            "LogUniformCandidateSampler": "",
            "FixedUnigramCandidateSampler": "",
            "RandomPoisson": "",
            "RandomCrop": "",
            "SampleDistortedBoundingBox": "",
            "SampleDistortedBoundingBoxV2": "",
            "FractionalMaxPool": "exact if `deterministic` with a seed, and then no key is asked for",
            "FractionalAvgPool": "exact if `deterministic` with a seed, and then no key is asked for",
            "ExtractGlimpse": "only the noise outside the image; no key is asked for with noise='zero'",
            **dict.fromkeys(
                ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), "only the dropout between layers; no key is asked for without"
            ),
            "ExtractGlimpseV2": "only the noise outside the image; no key is asked for with noise='zero'",
        }.items()
    },
}

CLAIMS = {**STATELESS, **GENERATOR, **KEYED}
