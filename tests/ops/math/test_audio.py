"""Spectrograms against TensorFlow."""

import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
SOUND = (RNG.normal(size=(200, 2)) + np.sin(np.arange(200) * 0.3)[:, None]).astype(np.float32)
SPECTRUM = np.abs(RNG.normal(size=(2, 3, 65))).astype(np.float32)


def rate(value):
    return np.array(value, np.int32)


CASES = [
    *(
        case("AudioSpectrogram", SOUND, window_size=w, stride=s, magnitude_squared=m).using(
            rtol=1e-3, atol=1e-3, name=f"{w}-{s}-{m}"
        )
        for w, s in [(16, 8), (20, 5), (33, 50), (200, 1), (201, 1), (2, 3)]
        for m in (False, True)
    ),
    case("AudioSpectrogram", SOUND[:, :0], window_size=16, stride=8).using(name="no-channels"),
    case("AudioSpectrogram", SOUND, window_size=16, stride=8).using(
        symbolic=("200, c",), rtol=1e-3, atol=1e-3, name="symbolic"
    ),
    case("AudioSpectrogram", SOUND, window_size=1, stride=8).using(error="window_size", name="window"),
    *(
        case("Mfcc", SPECTRUM, rate(r), **attrs).using(rtol=1e-4, atol=1e-4, name=f"{r}-{i}")
        for r in (8000, 16000, 44100)
        for i, attrs in enumerate(
            [
                {},
                {"lower_frequency_limit": 100.0, "upper_frequency_limit": 3000.0},
                {"filterbank_channel_count": 20, "dct_coefficient_count": 20},
                {"lower_frequency_limit": 0.0, "filterbank_channel_count": 5, "dct_coefficient_count": 1},
            ]
        )
    ),
    case("Mfcc", np.zeros_like(SPECTRUM), rate(8000)).using(name="silence", rtol=1e-4, atol=1e-4, grad=False),
    case("Mfcc", SPECTRUM, rate(16000)).using(symbolic=("b, t, 65",), name="symbolic", rtol=1e-4, atol=1e-4),
    case("Mfcc", SPECTRUM, rate(0)).using(error="rate", name="rate"),
    case("Mfcc", SPECTRUM, rate(4000)).using(error="beyond", name="beyond"),
    case("Mfcc", SPECTRUM, rate(8000), dct_coefficient_count=50).using(error="dct", name="dct"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
