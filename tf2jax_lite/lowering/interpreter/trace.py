"""One call of a converted function: variable values, PRNG keys, and the evaluator."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.dynamic_shapes.canonical_dims import result_in_one_form
from tf2jax_lite.dynamic_shapes.dim_expr import constraint_asked_for, constraint_of_sizes
from tf2jax_lite.dynamic_shapes.fitting_sizes import fitting_sizes
from tf2jax_lite.dynamic_shapes.size_comparisons import decides
from tf2jax_lite.dynamic_shapes.tracker import Extents, is_found
from tf2jax_lite.jaxprs.shard_map import axes_of, in_mesh, varying_along
from tf2jax_lite.jaxprs.versions import InconclusiveDimensionOperation
from tf2jax_lite.lowering.merging.branch_merge import UNDEFINED, UndefinedValueError, is_variant, merge_branches
from tf2jax_lite.lowering.merging.rank_variants import Choice, alternatives
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.lowering.planning.program import Program
from tf2jax_lite.ops import traits
from tf2jax_lite.ops.strings.host_evaluation import text_bytes
from tf2jax_lite.support.errors import (
    LoweringError,
    MissingKeyError,
    MissingParamError,
    PreventedGradientError,
    StaticInputError,
    Tf2JaxError,
)
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import Planes, Words, beyond_32_bits, each_word, is_wide, narrow, to_words
from tf2jax_lite.values.symbolic_float import is_real_size
from tf2jax_lite.values.tensor_list import TensorList
from tf2jax_lite.xla_cpu.materialize import once_if_traced

from .assigned_variables import as_variable
from .constant_size import check_forms, check_growth, check_results
from .int64_narrowing import warn_if_narrowed

__all__ = ["NOT_LINEAR", "NO_FORWARD_RULE", "Context", "Frame", "HostBudget", "HostBudgetSpent", "Trace", "described"]


# Steps that numpy alone runs in one trace to count iterations: half a minute's work at most.
_MAX_HOST_STEPS = 8_000_000
# Such steps that one takes which TensorFlow evaluates, and bytes of strings that are another.
_EVALUATION, _BYTES = 50, 8


class HostBudgetSpent(Exception):
    """Running numpy alone takes too long."""


@dataclasses.dataclass
class HostBudget:
    """How many more steps numpy alone may run, loops within loops included."""

    left: int

    def spend(self, steps: int) -> None:
        """Takes steps off.

        Raises:
          HostBudgetSpent: there are not so many left.
        """
        self.left -= steps
        if self.left < 0:
            raise HostBudgetSpent


# Their dtype is that of what they stand for; TensorFlow records that of the tensor that carries them.
_SYMBOLS = (values.VariableHandle, TensorList)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Where in the call tree evaluation stands: names for messages, and the key that its nodes fold into.

    ``key`` is a function so that graphs without random nodes never touch it. ``certain`` says whether what stands here
    runs whatever the data are: a branch that data picks is traced although it may not be taken.
    """

    path: tuple[str, ...]
    key: Callable[[], Any]
    certain: bool = True

    def enter(self, step: Step, counter: Any = None, *, certain: bool = True) -> Frame:
        """Returns the frame of a function that ``step`` calls, in iteration ``counter`` if it is a loop."""
        outer = self.key

        def key() -> Any:
            inner = jax.random.fold_in(outer(), step.stable_id)
            return inner if counter is None else jax.random.fold_in(inner, counter)

        return Frame((*self.path, step.node.name), key, self.certain and certain)


def _no_key() -> Any:
    raise LoweringError("random numbers are never drawn where only numpy runs")


_HOST_FRAME = Frame((), _no_key)
# Elements of a constant that is computed while tracing, if what it is computed from is not larger itself.
_MAX_FOLDED = 1024


@dataclasses.dataclass(frozen=True)
class Context(traits.Context):
    """What an op that needs the lowering gets as its first argument."""

    trace: Trace
    frame: Frame
    step: Step


class Trace:
    """The state of one call: current values of variables, and the evaluator over plans.

    Args:
      program: what to run.
      state: variable name to current value; changed in place by assignments.
      key: the typed PRNG key given by the caller, or None.
      loose: whether arguments came with other dtypes than TensorFlow recorded, so that operands are promoted to
        a common dtype and recorded dtypes are not enforced.
      initial: variable name to the value by which gradients are taken; what is read after an assignment has its
        derivative. None: it has that of what was assigned.
      silent: whether nothing is printed or asserted, as another run of the same call does it.
      extents: makes symbols of sizes that data decides; None: there are none, and ops that could use them have no
        bound.
      pads: whether results of such sizes are padded to the bound that was configured, instead.
      undecided: gets the name of each node that compares sizes which are not known; it is left open. None: they differ.
    """

    def __init__(
        self,
        program: Program,
        state: dict[str, Any],
        key: Any,
        *,
        loose: bool = False,
        initial: Mapping[str, Any] | None = None,
        silent: bool = False,
        extents: Extents | None = None,
        pads: bool = True,
        undecided: list[str] | None = None,
    ):
        self.program = program
        self.state = state
        self.loose = loose
        self.initial = initial
        self.silent = silent
        self.extents = extents
        self.pads = pads
        self._in_mesh = in_mesh()
        self.undecided = undecided
        self.host_budget: HostBudget | None = None
        self.host_steps = _MAX_HOST_STEPS
        self._key = key

    def root_frame(self) -> Frame:
        """Returns the frame of the main function."""
        return Frame((), self._root_key)

    @property
    def key_impl(self) -> Any:
        """How the caller's key was made, for ``jax.random.wrap_key_data``; None if there is none."""
        return None if self._key is None else jax.random.key_impl(self._key)

    def _root_key(self) -> Any:
        if self._key is None:
            raise missing_key(self.program.random_nodes)
        return self._key

    def call(self, function: ir.Function, args: Sequence[Any], frame: Frame) -> list[Any]:
        """Evaluates a function."""
        return self.run(self.program.plan(function), args, frame)

    def run(self, plan: Plan, args: Sequence[Any], frame: Frame) -> list[Any]:
        """Evaluates a plan: bind the arguments, apply each step, drop values nobody needs any more."""
        env: list[Any] = [None] * plan.size
        env[: len(args)] = args
        for step in plan.steps:
            run = self._apply if step.turned is None else functools.partial(step.turned, self._apply)
            results = run(step, [env[i] for i in step.inputs], frame)
            for slot, value in zip(step.outputs, results, strict=True):
                env[slot] = value
            for slot in step.release:
                env[slot] = None
        return [env[slot] for slot in plan.outputs]

    def run_partially(self, plan: Plan, args: Sequence[Any], slots: Sequence[Any] | None = None) -> list[Any]:
        """Evaluates in numpy what can be: values that depend on anything traced come out as `values.UNKNOWN`.

        Args:
          plan: what to evaluate.
          args: its arguments.
          slots: what is known of all slots before; arguments count instead of theirs.

        Raises:
          HostBudgetSpent: `host_budget` does not allow for it.
        """
        if self.host_budget is not None:
            self.host_budget.spend(len(plan.steps) or 1)
        env: list[Any] = [values.UNKNOWN] * plan.size if slots is None else list(slots)
        env[: len(args)] = args
        for step in plan.steps:
            op = step.op
            if op.fold is None:
                continue
            inputs = [env[i] for i in step.inputs]
            try:
                if op.needs_context:
                    context = Context(self, _HOST_FRAME, step)
                    found = op.fold(context, *_grouped(step, inputs), **step.kwargs)
                    if found is None:  # it takes something that is not known
                        continue
                    results = flatten_results(found)
                elif op.folds_partially or all(map(values.is_static, inputs)):
                    if self.host_budget is not None and op.name in self.program.evaluated:
                        self.host_budget.spend(_EVALUATION + sum(map(text_bytes, inputs)) // _BYTES)
                    args = _grouped(step, inputs)
                    if not op.folds_partially or (op.result_size is not None and all(map(values.is_static, inputs))):
                        check_growth(step, inputs, args, self.program.config.max_constant_bytes)
                    results = flatten_results(op.fold(*args, **step.kwargs))
                else:
                    continue
                if len(results) != len(step.outputs):
                    continue
            except HostBudgetSpent:
                raise
            except Exception:  # the same failure comes up, with its place, when the node is evaluated for good
                continue
            for slot, value in zip(step.outputs, results, strict=True):
                env[slot] = value if values.is_host(value) else values.UNKNOWN
        return [env[slot] for slot in plan.outputs]

    def _apply(self, step: Step, inputs: list[Any], frame: Frame) -> list[Any]:
        op = step.op
        if (found := alternatives(inputs)) is not None:
            return self._chosen(step, *found, frame)
        try:
            results = None
            if not op.needs_context and all(map(values.is_static, inputs)):
                results = self._known(step, inputs)
                if results is not None and decides(inputs, results) and self._leaves_open(step):
                    results = None
            if results is None:
                with jax.named_scope(step.node.name):
                    results = self._evaluate(step, inputs, frame)
                    for position in step.shared:
                        results[position] = once_if_traced(results[position])
            if check_results(results, self.program.config.max_result_bytes) and self.extents is None:
                results = list(map(result_in_one_form, results))
            elif self.extents is not None:
                results = list(map(self.extents.unified, results))
        except PreventedGradientError as error:
            if error.node:
                raise
            placed = located(error, step, frame)
            raise PreventedGradientError(str(placed), node=placed.node, op=placed.op, path=placed.path) from error
        except (LoweringError, MissingKeyError, MissingParamError):
            raise
        except Tf2JaxError as error:
            self._compare(step, inputs, frame, error)
            raise located(error, step, frame) from error
        except Exception as error:
            if getattr(error, "_tf2jax_lite_control", False):
                raise
            self._compare(step, inputs, frame, error)
            if any(v is UNDEFINED for v in inputs) and not op.needs_context:
                error = UndefinedValueError("it reads a value that only branches which cannot run would give")
            misfit = isinstance(error, (TypeError, ValueError)) and "shape" in str(error)
            hint = _ALIKE if misfit and any(map(_is_open, inputs)) else _variant(inputs)
            raise located(error, step, frame, hint) from error
        if len(results) != len(step.outputs):
            raise located(f"{len(results)} results where {len(step.outputs)} are declared", step, frame)
        if not self.loose:
            for expected, value in zip(step.dtypes, results, strict=True):
                if expected is not None and (actual := getattr(value, "dtype", None)) is not expected:
                    _check_dtype(step, results, expected, actual, value, frame)
        return results

    def _chosen(self, step: Step, choice: Choice, inputs: list[list[Any]], frame: Frame) -> list[Any]:
        """Applies a step to one of several lists of inputs."""
        before = dict(self.state)

        def run(given: list[Any]) -> list[Any]:
            results = self._apply(step, given, dataclasses.replace(frame, certain=False))
            if any(self.state.get(name) is not value for name, value in before.items()) or len(self.state) > len(
                before
            ):
                raise choice.refusal
            return results

        branches = [functools.partial(run, given) for given in inputs]
        names = [f"branch {i}" for i in range(len(branches))]
        return merge_branches(
            choice.index, branches, names, lambda _: choice.refusal, self.extents, factors=choice.factors
        )

    def _leaves_open(self, step: Step) -> bool:
        """Whether a comparison of sizes that are not known is to be computed when they are."""
        if self.extents is not None:
            return True
        if self.undecided is None:
            return False
        self.undecided.append(step.node.name)
        return True

    def _compare(self, step: Step, inputs: list[Any], frame: Frame, error: Exception) -> None:
        """Takes sizes of what a node fails with to be equal, if nothing but data says what they are."""
        if (extents := self.extents) is None or step.op.needs_context:  # arguments of calls and loops meet nothing
            return
        shapes = []
        for group, static in zip(_grouped(step, inputs), step.static, strict=False):
            for value in group if isinstance(group, list) else [group]:
                if not static and isinstance(value, (jax.Array, np.ndarray)):
                    shapes.append(value.shape)
                elif isinstance(value, np.ndarray) and value.ndim == 1 and any(map(is_found, value)):
                    shapes.append(tuple(value))  # the shape of a result

        def fitting() -> Sequence[Mapping[str, int]]:
            if step.op.effectful:
                return []
            self.extents = Extents()
            try:
                return fitting_sizes(lambda given: self._evaluate(step, given, frame), inputs, shapes)
            finally:
                self.extents = extents

        extents.agrees(shapes, str(error), fitting)

    def _known(self, step: Step, inputs: list[Any]) -> list[Any] | None:
        """Returns what a node gives for values that are all known, computed now; None if it is to be traced."""
        args = _grouped(step, inputs)
        if inputs or step.op.result_size is not None:
            check_growth(step, inputs, args, self.program.config.max_constant_bytes)
        if step.op.fold is not None:
            try:
                return flatten_results(step.op.fold(*args, **step.kwargs))
            except InconclusiveDimensionOperation:
                return None
            except TypeError:
                if any(map(is_real_size, inputs)):  # numpy knows nothing of them
                    return None
                raise
        return self._folded(step, inputs)

    def _folded(self, step: Step, inputs: list[Any]) -> list[Any] | None:
        """Runs an op without a context on constants at once, so that it leaves no equations; None if it is not to be.

        Constants that would grow are left to XLA, which need not keep them. Operands beyond 32 bits are computed
        with in 64-bit mode.
        """
        op = step.op
        if not inputs or not op.plain or step.functions or any(v.dtype == object for v in inputs):
            return None
        wide = jax.enable_x64(True) if any(map(beyond_32_bits, inputs)) else contextlib.nullcontext()
        with jax.ensure_compile_time_eval(), wide:
            args, kwargs = self._arguments(step, inputs, _HOST_FRAME)[0], dict(step.kwargs)
            try:
                forms = jax.eval_shape(lambda: flatten_results(op.fn(*args, **kwargs)))
            except Exception:  # results that are no arrays, or an error that evaluation proper will say more about
                return None
            if not all(isinstance(form, jax.ShapeDtypeStruct) for form in forms):
                return None
            check_forms(forms, self.program.config.max_constant_bytes)
            if sum(form.size for form in forms) > max(_MAX_FOLDED, *(v.size for v in inputs)):
                return None
            results = flatten_results(op.fn(*args, **kwargs))
            # Under vmap, functions with derivative rules of their own (jax.custom_jvp) are traced even here.
            if any(isinstance(v, jax.core.Tracer) for v in results):
                return None
            return [np.asarray(v) for v in results]

    def _evaluate(self, step: Step, inputs: list[Any], frame: Frame) -> list[Any]:
        op = step.op
        if self.silent and op.side_effect and not step.outputs:
            return []
        if op.needs_context:
            return flatten_results(op.fn(Context(self, frame, step), *_grouped(step, inputs), **step.kwargs))
        args, moves_words = self._arguments(step, inputs, frame)
        if self._in_mesh and not op.writes:
            args = _alike(args)
        bound = None if op.always_pads or self.pads else op.bound
        shapes = None if self.extents is None else op.shapes
        if op.plain and not step.functions and not moves_words and bound is None and shapes is None:
            return flatten_results(op.fn(*args, **step.kwargs))
        kwargs = dict(step.kwargs)
        if bound is not None:
            kwargs[bound] = self.extents
        if shapes is not None:
            kwargs[shapes] = self.extents
        if op.unconditional is not None:
            kwargs[op.unconditional] = frame.certain
        for name, ref in step.functions.items():
            kwargs[name] = _map(lambda r: self.callable(r, frame.enter(step)), ref)
        if op.key is not None:
            draws = op.draws_random(step.node.attrs)
            kwargs[op.key] = jax.random.fold_in(frame.key(), step.stable_id) if draws else None
        call = functools.partial(op.fn, **kwargs)
        results = flatten_results(each_word(call, args) if moves_words else call(*args))
        if op.writes:
            self._write(step, args, inputs, results)
            results = results[len(op.writes) :]
        return results

    def _arguments(self, step: Step, inputs: list[Any], frame: Frame) -> tuple[list[Any], bool]:
        """Returns an op's inputs in the form that its function takes them, and whether it is to run on each word."""
        op = step.op
        args = _grouped(step, inputs)
        moves_words = False
        for index, arg in enumerate(args):
            if step.static[index]:
                if type(arg) is np.ndarray:
                    continue
            elif isinstance(arg, jax.core.Tracer) and not op.reads:
                continue  # nothing of what follows changes it
            partial = index < len(op.inputs) and op.inputs[index] in op.unconverted
            if op.int64 == "pair":
                if not step.static[index] and not partial:  # a shape may have symbolic dimensions
                    arg = args[index] = _map(_whole, arg)
            elif any(isinstance(v, Planes) for v in (arg if isinstance(arg, list) else [arg])):
                if op.int64 == "per_word":
                    moves_words = True
                    continue
                arg = args[index] = _map(narrow, arg)
            if step.static[index]:
                args[index] = _static_input(arg, step, index, frame, self.extents)
            elif index < len(op.inputs) and op.inputs[index] in op.reads:
                args[index] = self.read(arg, step, frame)
            elif partial:
                pass
            elif op.int64 == "pair":
                args[index] = _map(_known_or_traced, arg) if op.bound is not None else arg
            else:
                for value in arg if isinstance(arg, list) else [arg]:
                    if beyond_32_bits(value) and step.node.name not in self.program.narrowing:
                        warn_if_narrowed(value, described(step, frame))
                args[index] = _map(_known_or_traced if op.bound is not None else values.as_array, arg)
        return (_promoted(step, args) if self.loose else args), moves_words

    def read(self, handle: Any, step: Step, frame: Frame) -> Any:
        """Returns the current value of the variable that ``handle`` names.

        Read by an op that does not write to it, its derivative is that of the value it started with, if that is known.
        """
        if not isinstance(handle, values.VariableHandle):
            raise located(f"expected a variable's handle, got {type(handle).__name__}", step, frame)
        try:
            value = self.state[handle.name]
            if isinstance(value, jax.ShapeDtypeStruct):  # as convert() gives what has no value yet
                raise KeyError(handle.name)
            if handle.name in self.program.wide and not jax.config.jax_enable_x64:
                return value if isinstance(value, Words) else Words(to_words(value), np.dtype(np.int64))
            value = values.as_array(value)
        except KeyError:
            raise MissingParamError(
                f"variable {handle.name!r} is read before it has a value (node {step.node.name!r}, {step.node.op}); "
                "is it missing from params, or was it converted without its value (a checkpoint)?"
            ) from None
        if self.initial is None or step.op.writes or not isinstance(value, jax.Array):
            return value
        if values.OF_ASSIGNMENT in step.node.attrs:
            return lax.stop_gradient(value)
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            return value  # has no derivative, and two reads of it are seen to be one number
        initial = self.initial.get(handle.name)
        return value if initial is None or value is initial else as_variable(value, initial)

    def _write(self, step: Step, args: list[Any], inputs: list[Any], results: list[Any]) -> None:
        for name, value in zip(step.op.writes, results, strict=False):
            handle = inputs[sum(1 if g is None else g for g in step.node.groups[: step.op.inputs.index(name)])]
            wide = handle.name in self.program.wide
            self.state[handle.name] = value if wide else narrow(values.as_array(value))

    def callable(self, ref: ir.FunctionRef, frame: Frame) -> Callable[..., list[Any]]:
        """Returns a library function as a Python callable of its arguments, giving its list of results."""
        function = self.program.function(ref.name)
        return lambda *args: [values.as_array(v) for v in self.call(function, args, frame)]


def missing_key(nodes: Sequence[str]) -> MissingKeyError:
    """Returns the error for a function that draws random numbers and got no key."""
    shown = ", ".join(nodes[:10]) + (", ..." if len(nodes) > 10 else "")
    return MissingKeyError(
        f"PRNG key required: {len(nodes)} node(s) draw random numbers ({shown}). Call with rng=jax.random.key(seed)."
    )


NO_FORWARD_RULE = (
    "a custom gradient here has a reverse rule only, so forward mode (jax.jvp, jax.jacfwd) cannot pass it. Use reverse "
    "mode (jax.vjp, jax.grad, jax.jacrev), or convert with override_config('convert_custom_gradient', False) to "
    "differentiate the forward code instead"
)
NOT_LINEAR = (
    "the custom gradient here is not linear in the gradients it gets (it clips them, say): it is a reverse rule only, "
    "so forward mode (jax.jvp, jax.jacfwd) cannot pass it. Use reverse mode (jax.vjp, jax.grad, jax.jacrev), or "
    "convert with override_config('convert_custom_gradient', False) to differentiate the forward code instead"
)


def described(step: Step, frame: Frame) -> str:
    """Returns where a node stands, for messages."""
    node = step.node
    where = f"node {node.name!r} ({node.op})"
    if frame.path:
        where += f" in {' > '.join(frame.path)}"
    if node.location:
        where += f", {node.location}"
    return where


# Why shapes with symbolic dimensions do not fit each other, although they may.
_ALIKE = (
    " Symbolic sizes are equal where they are written alike: a size may be a multiple (8*h), where it is divided, or "
    "have an offset (b+1), as row splits beside a batch. Fixed sizes always work."
)


def _is_open(value: Any) -> bool:
    """Whether an array has a symbolic dimension."""
    return isinstance(value, jax.Array) and not all(isinstance(size, int) for size in value.shape)


def _variant(inputs: list[Any]) -> str:
    """Says which of a node's inputs is a variant, for ops that fail as they take arrays; empty if none is."""
    for position, value in enumerate(inputs):
        if is_variant(value):
            return (
                f" Input {position} is a variant ({type(value).__name__}), not an array: only ops made for such "
                "variants take it. What those take out of it are arrays."
            )
    return ""


def _alike(args: list[Any]) -> list[Any]:
    """Returns arrays as ones that vary along the same axes of a mesh, which derivative rules rely on."""
    axes = [axes_of(v) for v in args if isinstance(v, jax.Array)]
    if len(set(axes)) < 2:
        return args
    every = frozenset[str]().union(*axes)
    return [varying_along(v, every) if isinstance(v, jax.Array) else v for v in args]


def located(problem: Exception | str, step: Step, frame: Frame, hint: str = "") -> LoweringError:
    """Returns an error that says at which node a problem arose."""
    node = step.node
    where = described(step, frame)
    text = str(problem) if isinstance(problem, (str, Tf2JaxError)) else f"{type(problem).__name__}: {problem}"
    if isinstance(problem, TypeError) and "forward-mode" in text:
        text = NO_FORWARD_RULE
    if isinstance(problem, InconclusiveDimensionOperation):
        text = f"a size must be known here: {str(problem).splitlines()[0]}"
        if (constraint := constraint_asked_for(text)) is not None:
            text += f" It holds, which jax.export.symbolic_shape(..., constraints=[{constraint!r}]) tells JAX."
        elif (constraint := constraint_of_sizes(text)) is not None:
            text += f" Where it has to hold, jax.export.symbolic_shape(..., constraints=[{constraint!r}]) tells JAX so."
    if hint:
        text = text.removesuffix(".") + "."
    return LoweringError(f"{where}: {text}{hint}", node=node.name, op=node.op, path=frame.path)


def _check_dtype(step: Step, results: list[Any], expected: Any, actual: Any, value: Any, frame: Frame) -> None:
    """Refuses a result whose dtype is not what TensorFlow recorded, nor what JAX makes of that.

    Symbolic dimensions are objects: they remember what they stand for.
    """
    if actual is None or actual == expected or isinstance(value, _SYMBOLS):
        return
    if _is_object(actual):
        if expected.kind in "iuf" and values.is_symbolic(value):
            results[:] = [v.view(values.of_sizes(expected)) if v is value else v for v in results]
        return
    if values.canonical(expected) != values.canonical(actual):
        index = next(i for i, result in enumerate(results) if result is value)
        raise located(f"result {index} has dtype {actual} where TensorFlow recorded {expected}", step, frame)


def _is_object(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def flatten_results(results: Any) -> list[Any]:
    """Returns an op's results as a flat list: a value, a tuple of values, or lists of values inside one."""
    if isinstance(results, (list, tuple)):
        flat: list[Any] = []
        for item in results:
            flat.extend(item) if isinstance(item, (list, tuple)) else flat.append(item)
        return flat
    return [] if results is None else [results]


def _grouped(step: Step, inputs: list[Any]) -> list[Any]:
    groups = step.node.form.groups
    if groups.count(None) == len(groups) == len(inputs):
        return list(inputs)
    args: list[Any] = []
    position = 0
    for group in groups:
        if group is None:
            args.append(inputs[position])
            position += 1
        else:
            args.append(list(inputs[position : position + group]))
            position += group
    return args


def _map(fn: Callable[[Any], Any], arg: Any) -> Any:
    return [fn(item) for item in arg] if isinstance(arg, list) else fn(arg)


def _whole(value: Any) -> Any:
    return value if is_wide(value) else values.as_array(value)


def _known_or_traced(value: Any) -> Any:
    found = values.known(value)
    return values.as_array(value) if found is None else found


def _may_be_sizes(value: Any) -> bool:
    return np.dtype(value.dtype).kind in "iu" and (value.shape == () or (len(value.shape) == 1 and value.shape[0] < 16))


class TracedInputError(StaticInputError, jax.errors.ConcretizationTypeError):
    """A traced value where a known one is needed, as JAX itself names it: callers may catch either type."""


# Inputs that are numbers, but sizes of nothing.
_AXES = frozenset({"axis", "concat_dim", "dimension", "perm", "reduction_indices", "split_dim"})


def _static_input(arg: Any, step: Step, index: int, frame: Frame, extents: Extents | None) -> Any:
    def convert(value: Any) -> Any:
        found = values.known(value)
        if found is not None:
            return found
        if not isinstance(value, jax.Array):
            return value
        if extents is not None and _may_be_sizes(value):
            return extents.sizes(value)
        name = step.op.inputs[index]
        advice = "pass what it depends on as a static argument (jax.jit(..., static_argnums=...))"
        if "Sparse" in step.op.name and "shape" in name:
            advice += ", a sparse tensor as jax.experimental.sparse.BCOO, whose shape is static"
        if _may_be_sizes(value) and name not in _AXES:
            advice += ", or convert with override_config('dynamic_shape_bound', n), the upper bound of what it sizes"
        message = (
            f"node {step.node.name!r} ({step.node.op}): input {index} ({name!r}) must be known while tracing, but it "
            f"is computed from traced values ({value}). Under jax.jit, {advice}."
        )
        raise TracedInputError(message, node=step.node.name, op=step.node.op, path=frame.path)

    return _map(convert, arg)


def _astype(value: Any, dtype: Any) -> Any:
    return value.astype(dtype) if isinstance(value, (jax.Array, np.ndarray)) else value


def _promoted(step: Step, args: list[Any]) -> list[Any]:
    """Brings inputs that share a type attribute to one dtype, the way JAX promotes."""
    by_type: dict[str, list[int]] = {}
    for index, name in enumerate(step.node.input_types[: len(args)]):
        if name and not step.static[index]:
            by_type.setdefault(name, []).append(index)
    for indices in by_type.values():
        items = [v for i in indices for v in (args[i] if isinstance(args[i], list) else [args[i]])]
        dtypes = {v.dtype for v in items if isinstance(v, (jax.Array, np.ndarray))}
        if len(dtypes) < 2:
            continue
        common = jnp.result_type(*dtypes)
        for i in indices:
            args[i] = _map(functools.partial(_astype, dtype=common), args[i])
    return args
