"""Checkers for operators, gradients and passes: for the package's own tests and for those of your own operators.

Each runs on NumPy, at random points that are the same in every run, and raises an AssertionError that names what is
wrong, what was expected, what came out, the worst error and the tolerance. Tolerances are fixed per dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tinychain.autodiff.arrays import DTYPES
from tinychain.autodiff.backends.numpy import NumpyFunction, ReferenceHandler, bind_input, reference_registry
from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import DerivativeProgram, Sample, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering import lower_graph
from tinychain.autodiff.operators import OPERATORS
from tinychain.autodiff.reverse import generate, joint_graph
from tinychain.autodiff.text import format_text, parse_text
from tinychain.autodiff.types import TensorType, Typespec, check_floating, parse_type, spec_field, typespec
from tinychain.autodiff.walks import declared_specs


class Tolerance(NamedTuple):
    """`got` is close to `expected` where |got - expected| <= relative * |expected| + absolute."""

    relative: float
    absolute: float


#: A gradient computed in the dtype against central differences in f64.
GRADIENT_TOLERANCES: Final = {"f32": Tolerance(1e-4, 1e-5), "f64": Tolerance(1e-6, 1e-7)}
#: A rewritten artifact against the original one.
EXPANSION_TOLERANCES: Final = {"f32": Tolerance(1e-6, 0.0), "f64": Tolerance(1e-12, 0.0)}

# Truncation grows with the square of the step, rounding with its inverse; the cube root of epsilon balances them.
_STEP: Final = float(np.finfo(np.float64).eps) ** (1 / 3)
# What a VJP may raise to say that it does not exist.
_REFUSALS: Final = ("unsupported_reduction", "missing_derivative_behavior", "non_differentiable_route")
_FREE_SIZE: Final = 3

Arrays = dict[str, NDArray[Any]]
Domain = tuple[float, float]


def check_operator(
    operator_class: type[TensorOperator], *, dtypes: Sequence[str] = ("f32", "f64"), differentiable: bool = True
) -> None:
    """Runs an operator's own `samples` through every check, in each dtype.

    The type that `result_type` declares is what `reference` returns; the VJP agrees with central differences, to second
    order; the graph and its gradient survive being written as text. With `differentiable=False` the VJP must refuse
    instead. Raises AssertionError, also for an operator without samples.
    """
    if not operator_class.samples:
        raise AssertionError(f"{operator_class.__name__} has no samples, so there is nothing to check it on")
    for number, sample in enumerate(operator_class.samples):
        for dtype in dtypes:
            with _failing_as(f"{operator_class.__name__}, sample {number} in {dtype}"):
                _check_sample(operator_class, sample, dtype, differentiable)


def check_gradients(
    graph: TensorGraph,
    *,
    wrt: Sequence[str] | None = None,
    order: int = 1,
    at: Mapping[str, ArrayLike] | None = None,
    domain: Domain = (-2.0, 2.0),
) -> None:
    """A typed graph's gradients, of every output at once, against central differences in f64.

    `wrt` are input ids, all by default; an input that no output depends on has the gradient zero. `order=2` also checks
    the gradients of the gradients, and so on. `at` fixes inputs by id; the others are drawn from `domain`, where a
    symbolic dim that no array of `at` shows has the size 3. Raises AssertionError.
    """
    points = _draw(graph.inputs, at or {}, domain)
    for target in wrt or ():
        if target not in points:
            raise ValueError(f"wrt has {quote(target)}, which is no input of the graph; expected one of {list(points)}")
    for current in range(1, order + 1):
        with _failing_as(f"gradients of order {current}"):
            graph = _check_first_order(graph, points, list(dict(graph.inputs)) if wrt is None else list(wrt))
        points = _draw(graph.inputs, points, domain)


def check_expansion(
    before: TensorGraph | DerivativeProgram,
    after: TensorGraph | DerivativeProgram,
    *,
    forward_graph: TensorGraph | None = None,
    at: Mapping[str, ArrayLike] | None = None,
    domain: Domain = (0.5, 2.0),
) -> None:
    """A rewritten artifact computes what the original does: the same outputs, dtypes and shapes exactly, close values.

    A DerivativeProgram needs the forward graph that it captures from. Every declared type of `after` must be the one
    that its operands give. `at` and `domain` as in `check_gradients`; the domain is positive, as cancellation would
    turn rounding into error. Raises AssertionError.
    """
    old, new = _as_graph(before, forward_graph), _as_graph(after, forward_graph)
    if isinstance(before, DerivativeProgram) and isinstance(after, DerivativeProgram):
        _expect_equal("gradients", after.gradients, before.gradients)
    _expect_equal("outputs", new.outputs, old.outputs)
    declared = dict(old.inputs)
    for value_id, spec in new.inputs:
        if value_id not in declared:
            raise AssertionError(f"the rewritten artifact reads {quote(value_id)}, no input of the original")
        _expect_equal(f"the typespec of input {quote(value_id)}", spec, declared[value_id])
    points = _draw(old.inputs, at or {}, domain)
    with _failing_as("the original artifact"):
        expected = _function(old)(points)
    with _failing_as("the rewritten artifact"):
        _check_declared_types(new)
        got = _function(new)(points)
    old_types, new_types = _declared_types(old), _declared_types(new)
    for value_id in old.outputs:
        label = f"output {quote(value_id)}"
        _expect_equal(f"the declared type of {label}", str(new_types[value_id]), str(old_types[value_id]))
        _expect_equal(f"the dtype of {label}", str(got[value_id].dtype), str(expected[value_id].dtype))
        _expect_equal(f"the shape of {label}", got[value_id].shape, expected[value_id].shape)
        _expect_close(label, got[value_id], expected[value_id], EXPANSION_TOLERANCES[old_types[value_id].dtype])


# ------------------------------------------------------------------------------------------------------- one operator


def _check_sample(operator_class: type[TensorOperator], sample: Sample, dtype: str, differentiable: bool) -> None:
    operands = {f"x{i}": TensorType(dtype, shape) for i, shape in enumerate(sample.shapes)}
    inputs: list[tuple[str, Typespec | None]] = [(value_id, typespec(type_)) for value_id, type_ in operands.items()]
    node = TensorNodeRecord(
        node_id="n0",
        output_value_id="v0",
        operator=operator_class(),
        op_params=_with_dtype(sample.op_params, dtype),
        input_value_ids=operands,
    )
    emit = Emitter(specs=dict(inputs), mint_value=mint("v", ["v0"]), mint_node=mint("n", ["n0"]))
    emit.check(node)
    declared = node.operator.result_type({}, *operands.values(), **node.op_params)
    node = replace(node, output_typespec=typespec(declared))
    graph = TensorGraph([node], inputs, ["v0"])
    _check_reference(node, _draw(inputs, {}, sample.domain), declared)
    _check_text(graph)
    if not differentiable:
        _check_refusal(emit, node)
    elif not operands:
        _expect_equal("the VJP of an operator without operands", tuple(node.operator.vjp(emit, node, "v0")), ())
    else:
        check_gradients(graph, order=2, domain=sample.domain)
        _check_text(_differentiate(graph, list(operands)).program)


def _check_reference(node: TensorNodeRecord, points: Arrays, declared: TensorType) -> None:
    result = np.asarray(node.operator.reference(np, *points.values(), **node.op_params))
    names = {array_dtype: name for name, array_dtype in DTYPES.items()}
    returned = TensorType(names.get(result.dtype, str(result.dtype)), result.shape)
    _expect_equal("the declared type, against what reference returns,", str(declared), str(returned))


def _check_text(artifact: TensorGraph | DerivativeProgram) -> None:
    own = {type(node.operator) for node in artifact.nodes}.difference(OPERATORS)
    _expect_equal("the artifact read back from its text", parse_text(format_text(artifact), operators=own), artifact)


def _check_refusal(emit: Emitter, node: TensorNodeRecord) -> None:
    try:
        entries = node.operator.vjp(emit, node, node.output_value_id)
    except AutodiffError as error:
        if error.category not in _REFUSALS:
            raise
    else:
        raise AssertionError(f"the VJP must refuse with one of {', '.join(_REFUSALS)}; it returned {quote(entries)}")


# ---------------------------------------------------------------------------------------------------------- gradients


class _Differentiated(NamedTuple):
    program: DerivativeProgram
    output_seeds: list[tuple[str, str]]  # (output, seed), for every output
    direct_seeds: list[str]


def _differentiate(graph: TensorGraph, wrt: list[str]) -> _Differentiated:
    """The gradients of all outputs. Each of `wrt` has a seed of its own too, to be zero.

    So one that no output depends on, or whose gradient a VJP declares to be none, has a gradient to compare as well.
    """
    taken = {*dict(graph.inputs), *[node.output_value_id for node in graph.nodes]}
    new_seed = mint("seed", taken)
    output_seeds = [(output, new_seed()) for output in graph.outputs]
    direct_seeds = [new_seed() for _ in wrt]
    seeds = [*[seed for _, seed in output_seeds], *direct_seeds]
    return _Differentiated(generate(graph, [*graph.outputs, *wrt], wrt, seeds), output_seeds, direct_seeds)


def _check_first_order(graph: TensorGraph, points: Arrays, wrt: list[str]) -> TensorGraph:
    """Checks the gradients of `graph`; returns the graph that computes them, whose inputs have the seeds too."""
    program, output_seeds, direct_seeds = _differentiate(graph, wrt)
    gradients = joint_graph(program, forward_graph=graph)
    seeds = [*[seed for _, seed in output_seeds], *direct_seeds]
    values = _draw([*graph.inputs, *[(seed, program.value_typespecs[seed]) for seed in seeds]], points, (-2.0, 2.0))
    values |= {seed: np.zeros_like(values[seed]) for seed in direct_seeds}
    computed = _function(gradients)(values)

    exact = _function(_in_f64(graph))
    exact_points = {value_id: array.astype(np.float64) for value_id, array in points.items()}
    weights = [(output, values[seed].astype(np.float64)) for output, seed in output_seeds]
    types = _declared_types(graph)
    for target in wrt:
        expected = _central_differences(exact, exact_points, target, weights)
        got = computed[program.gradients[target]]
        _expect_close(f"the gradient of {quote(target)}", got, expected, GRADIENT_TOLERANCES[types[target].dtype])
    return gradients


def _central_differences(
    function: Callable[[Arrays], Arrays], points: Arrays, target: str, weights: list[tuple[str, NDArray[Any]]]
) -> NDArray[Any]:
    """The derivative of the weighted sum of all outputs by each element of `target`."""
    result = np.zeros_like(points[target])
    for index in np.ndindex(result.shape):
        step = _STEP * max(1.0, abs(float(points[target][index])))
        sides = []
        for signed in (step, -step):
            moved = points[target].copy()
            moved[index] += signed
            sides.append(function({**points, target: moved}))
        right, left = sides
        result[index] = sum([np.vdot(weight, right[out] - left[out]) for out, weight in weights]) / (2 * step)
    return result


def _in_f64(graph: TensorGraph) -> TensorGraph:
    """The same graph in f64: every typespec, and every param that is a dtype."""
    nodes = [
        replace(
            node,
            op_params=_with_dtype(node.op_params, "f64"),
            output_typespec=None if node.output_typespec is None else _with_dtype(node.output_typespec, "f64"),
        )
        for node in graph.nodes
    ]
    inputs: list[tuple[str, Typespec | None]] = [
        (value_id, None if spec is None else _with_dtype(spec, "f64")) for value_id, spec in graph.inputs
    ]
    return TensorGraph(nodes, inputs, graph.outputs)


def _with_dtype(mapping: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    return {key: dtype if key == "dtype" else value for key, value in mapping.items()}


# ----------------------------------------------------------------------------------------------------- running graphs


def _as_graph(artifact: TensorGraph | DerivativeProgram, forward_graph: TensorGraph | None) -> TensorGraph:
    if isinstance(artifact, TensorGraph):
        return artifact
    if forward_graph is None:
        raise TypeError("a DerivativeProgram is checked with the forward_graph that it captures from")
    return joint_graph(artifact, forward_graph=forward_graph)


def _function(graph: TensorGraph) -> NumpyFunction:
    registry = reference_registry()
    for operator_type in dict.fromkeys([type(node.operator) for node in graph.nodes]):
        if not registry.has_handler(operator_type):
            registry.register(ReferenceHandler(operator_type))
    return NumpyFunction(lower_graph(graph, handlers=registry, bind_input=bind_input))


def _draw(inputs: Sequence[tuple[str, Typespec | None]], at: Mapping[str, ArrayLike], domain: Domain) -> Arrays:
    """An array for every input: the one in `at`, or random numbers."""
    types = {value_id: parse_type(spec, label=f"input {quote(value_id)}") for value_id, spec in inputs}
    sizes: dict[int | str, int] = {}
    for value_id, type_ in types.items():
        if value_id in at:
            sizes.update(zip(type_.shape, np.shape(at[value_id]), strict=False))
    arrays = {}
    for number, (value_id, type_) in enumerate(types.items()):
        shape = [sizes.get(dim, _FREE_SIZE) if isinstance(dim, str) else dim for dim in type_.shape]
        numbers = at[value_id] if value_id in at else np.random.default_rng(number).uniform(*domain, size=shape)
        arrays[value_id] = np.array(numbers, DTYPES[check_floating(type_.dtype)])
    return arrays


def _declared_types(graph: TensorGraph) -> dict[str, TensorType]:
    specs = declared_specs(graph)
    return {
        value_id: parse_type(spec, label=f"value {quote(value_id)}")
        for value_id, spec in specs.items()
        if spec_field(spec, "dtype") is not None
    }


def _check_declared_types(graph: TensorGraph) -> None:
    specs = declared_specs(graph)
    emit = Emitter(specs=specs, mint_value=mint("v", specs), mint_node=mint("n", ()))
    for node in graph.nodes:
        emit.check(node)


# ---------------------------------------------------------------------------------------------------------- verdicts


@contextmanager
def _failing_as(what: str) -> Iterator[None]:
    """Puts `what` before the message of a failure; any other exception becomes one."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def _expect_equal(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise AssertionError(f"{what} is {quote(got)}; expected {quote(expected)}")


def _expect_close(what: str, got: NDArray[Any], expected: NDArray[Any], tolerance: Tolerance) -> None:
    """Elementwise; a value that is not finite is close to nothing."""
    _expect_equal(f"the shape of {what}", got.shape, expected.shape)
    wanted = np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(np.asarray(got, np.float64) - wanted)
    excess = error - (tolerance.relative * np.abs(wanted) + tolerance.absolute)
    if np.all(excess <= 0):
        return
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), excess.shape)
    index = [int(i) for i in worst]
    raise AssertionError(
        f"{what} at {index} is {float(got[worst])!r}; expected {float(wanted[worst])!r}; the worst error is"
        f" {float(error[worst]):.3g}, the tolerance {tolerance.relative:g} relative and {tolerance.absolute:g} absolute"
    )
