"""Programs are written, compiled and timed; launches are counted in text."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import gpu
from benchmarks.__main__ import main

# A loop of five iterations, whose kernel reads a row and writes another in place; a branch, a product.
TEXT = textwrap.dedent(
    """\
    HloModule jit_f, is_scheduled=true

    %row (param_0.1: f32[5,100], param_1.1: s32[], param_2.1: f32[5,100]) -> f32[5,100] {
      %param_0.1 = f32[5,100]{1,0} parameter(0)
      %param_1.1 = s32[] parameter(1)
      %param_2.1 = f32[5,100]{1,0} parameter(2)
      %zero = s32[] constant(0)
      %slice.1 = f32[1,100]{1,0} dynamic-slice(%param_0.1, %param_1.1, %zero), dynamic_slice_sizes={1,100}
      ROOT %update.1 = f32[5,100]{1,0} dynamic-update-slice(%param_2.1, %slice.1, %param_1.1, %zero)
    }

    %body (arg: (s32[], f32[5,100], f32[5,100])) -> (s32[], f32[5,100], f32[5,100]) {
      %arg = (s32[], f32[5,100]{1,0}, f32[5,100]{1,0}) parameter(0)
      %i = s32[] get-tuple-element(%arg), index=0
      %xs = f32[5,100]{1,0} get-tuple-element(%arg), index=1
      %ys = f32[5,100]{1,0} get-tuple-element(%arg), index=2
      %next = s32[] fusion(%i), kind=kLoop, calls=%add_one
      %rows = f32[5,100]{1,0} fusion(%xs, %i, %ys), kind=kLoop, calls=%row
      ROOT %all = (s32[], f32[5,100]{1,0}, f32[5,100]{1,0}) tuple(%next, %xs, %rows)
    }

    %add_one (param_0.2: s32[]) -> s32[] {
      %param_0.2 = s32[] parameter(0)
      %one = s32[] constant(1)
      ROOT %sum = s32[] add(%param_0.2, %one)
    }

    %condition (arg.1: (s32[], f32[5,100], f32[5,100])) -> pred[] {
      %arg.1 = (s32[], f32[5,100]{1,0}, f32[5,100]{1,0}) parameter(0)
      %i.1 = s32[] get-tuple-element(%arg.1), index=0
      ROOT %less = pred[] fusion(%i.1), kind=kLoop, calls=%is_less
    }

    %nothing (arg.2: f32[5,100]) -> f32[5,100] {
      ROOT %arg.2 = f32[5,100]{1,0} parameter(0)
    }

    %twice (arg.3: f32[5,100]) -> f32[5,100] {
      %arg.3 = f32[5,100]{1,0} parameter(0)
      ROOT %copy.1 = f32[5,100]{1,0} copy(%arg.3)
    }

    ENTRY %main (x: f32[5,100], y: f32[100,7]) -> f32[5,7] {
      %x = f32[5,100]{1,0} parameter(0)
      %y = f32[100,7]{1,0} parameter(1)
      %start = (s32[], f32[5,100]{1,0}, f32[5,100]{1,0}) tuple(%zero, %x, %x)
      %loop = (s32[], f32[5,100]{1,0}, f32[5,100]{1,0}) while(%start), condition=%condition, body=%body, FIVE
      %rows.1 = f32[5,100]{1,0} get-tuple-element(%loop), index=2
      %choice = f32[5,100]{1,0} conditional(%which, %x, %rows.1), branch_computations={%nothing, %twice}
      %called = f32[5,100]{1,0} call(%choice), to_apply=%twice
      ROOT %product = (f32[5,7]{1,0}, s8[64]{0}) custom-call(%called, %y), custom_call_target="__cublas$gemm"
    }
    """
).replace("FIVE", 'backend_config={"known_trip_count":{"n":"5"}}')


def test_launches():
    """Loops count by trip count, branches by the longest, slices by slices."""
    found = gpu.launches(TEXT)
    # Each iteration: the counter (4 bytes twice), a row read and written with its index, the condition; then two
    # copies (2000 bytes twice each) and the product.
    assert found.kernels == 5 * 3 + 2 + 1
    assert found.bytes == 5 * (8 + (400 + 4 + 400) + (4 + 1)) + 2 * 4000 + (2000 + 2800 + 140 + 64)
    assert dict(found.library) == {"__cublas$gemm(f32[5,100]{1,0} f32[100,7]{1,0}) -> (f32[5,7]{1,0}, s8[64]{0}) ": 1}
    assert found.unknown == 0
    assert gpu.launches(TEXT.replace("known_trip_count", "trip_count")).unknown == 1


@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("f32[8,4]{1,0}", 128),
        ("(bf16[3]{0}, u8[0]{0}, pred[5]{0})", 11),
        ("c64[2]{0}", 16),
        ("f8e4m3fn[6]{0}", 6),
        ("f64[]", 8),
    ],
)
def test_sizes(form, size):
    assert gpu._size(form) == size


@pytest.mark.full
def test_what_is_compiled_here_is_counted():
    def loop(x):
        return jax.lax.fori_loop(0, 9, lambda i, x: jnp.tanh(x @ x), x)

    x = jnp.ones((64, 64))
    once, often = (gpu.launches(jax.jit(fn).lower(x).compile().as_text()) for fn in (lambda x: jnp.tanh(x @ x), loop))
    assert often.kernels >= 9 * once.kernels > 0 and often.unknown == 0
    assert often.bytes >= 9 * once.bytes > 0


@pytest.mark.full
def test_programs_are_timed_in_turns(tmp_path):
    """Programs are read without their function."""
    for who, repeats in (("ours", 1), ("native", 2)):
        gpu.write(
            lambda state, n, repeats=repeats: [state["x"] * repeats + n, None],
            ({"x": np.ones((4, 3), np.float32)}, np.int32(2)),
            tmp_path / "run-tiny-1" / f"{who}.bin",
            "cpu",
        )
    assert not list(tmp_path.glob("**/*.part"))
    (found,) = main(["run", "--suite", "device", "--folder", str(tmp_path), "--budget", "0"])
    assert found["program"] == "run-tiny-1" and set(found["times"]) == {"tf2jax_lite", "native"}
    assert found["ours"]["kernels"] > 0 and found["ours"]["calls"] == found["native"]["shared"] == 0
    assert found["ratios"]["native"] > 0


@pytest.mark.full
def test_a_model(tmp_path):
    """Calls and training steps, ours and native JAX; on a GPU if available."""
    arguments = ["--models", "lstm", "--size", "small", "--batch", "2", "--folder", str(tmp_path)]
    found = main(["run", "--suite", "programs", "--platform", "cpu", *arguments])
    assert [r["program"] for r in found] == ["run-lstm-2", "train-lstm-2"]
    assert all(list(r["bytes"]) == ["native", "ours"] for r in found)
    for record in main(["run", "--suite", "device", "--folder", str(tmp_path), "--budget", "0"]):
        assert record["ours"]["kernels"] <= record["native"]["kernels"]
        assert record["ratios"]["native"] > 0
    pytest.importorskip("jax_plugins.xla_cuda12")
    main(["run", "--suite", "programs", *arguments])
    for record in main(["run", "--suite", "described", "--folder", str(tmp_path)]):
        assert record["ours"]["kernels"] <= record["native"]["kernels"]
