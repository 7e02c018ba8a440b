"""The target value of the NumPy backends: a described array, and the function that a lowered program becomes.

Handlers describe what to compute; nothing is computed until the compiled function is called with real arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinychain.autodiff.arrays import DTYPES, check_array
from tinychain.autodiff.dependencies import ValueDependency
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.lowering import LoweredProgram, OperationContext
from tinychain.autodiff.types import (
    TensorType,
    bind,
    check_literal,
    is_sequence,
    parse_bindings,
    parse_type,
    resolve_shape,
)


class Array:
    """An input, or `function(*operands, **op_params)`. `type` is None where the program does not say.

    `symbols` holds what the operation itself says about symbols: a dim `N` that meets a 3 is 3. `ufunc` is what
    `function` calls, if it is a universal function, whose result shares no memory with its operands.
    """

    __slots__ = ("function", "op_params", "operands", "symbols", "type", "ufunc")

    def __init__(
        self,
        type_: TensorType | None,
        function: Callable[..., Any] | None = None,
        operands: Sequence[Array] = (),
        op_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.type = type_
        self.function = function
        self.operands = tuple(operands)
        self.op_params = dict(op_params or {})
        self.symbols: dict[str, int] = {}
        self.ufunc: np.ufunc | None = None


def bind_input(dependency: ValueDependency) -> Array:
    """The `bind_input` of a lowering for these backends."""
    if dependency.dtype is None or dependency.shape is None:
        return Array(None)
    return Array(TensorType(dependency.dtype, dependency.shape))


def compute(context: OperationContext, function: Callable[..., Any], **op_params: Any) -> Array:
    """What a handler returns: `function` of the operation's operands."""
    spec = context.output_typespec
    type_ = None if spec is None else parse_type(spec, label=f"node {quote(context.node_id)}")
    array = Array(type_, function, context.inputs, op_params)
    types = [operand.type for operand in context.inputs if isinstance(operand, Array)]
    if len(types) == len(context.inputs) and None not in types:
        with suppress(AutodiffError):  # an operator without a type rule, or one that needs what others have bound
            context.operator.result_type(array.symbols, *types, **context.op_params)
    return array


def compute_ufunc(context: OperationContext, ufunc: np.ufunc) -> Array:
    """`compute` for a universal function of the operands and of the literal, if the operation has one.

    One that works element by element writes over an operand that nobody reads any more, where it can.
    """
    literals = tuple(map(check_literal, context.op_params.values()))
    array = compute(context, partial(_with_literals, ufunc, literals) if literals else ufunc)
    array.ufunc = ufunc
    return array


def _with_literals(ufunc: np.ufunc, literals: tuple[float, ...], x: Any, out: Any = None) -> Any:
    return ufunc(x, *literals, out=out)


class _Instruction(NamedTuple):
    function: Callable[..., Any]
    symbolic: Mapping[str, Any]  # params with symbols in them, which a call resolves
    operands: tuple[int, ...]
    result: int
    dead: tuple[int, ...]
    overwritten: int | None  # a dead operand whose memory takes the result


class NumpyFunction:
    """A lowered program as a function from arrays by value id to arrays by value id.

    Calling it checks that every required input is there with the declared dtype and shape (missing_dependency,
    dtype_mismatch, shape_mismatch, symbolic_shape_mismatch), runs the operations in order and forgets each intermediate
    after its last use. A symbol that no required input has is bound by `shape_bindings`, or refused
    (unresolved_symbolic_shape). Results are arrays of their own. What NumPy raises passes through.
    """

    def __init__(self, program: LoweredProgram) -> None:
        if not isinstance(program, LoweredProgram):
            raise TypeError(f"expected a LoweredProgram, got {quote(program)}")
        self._inputs = program.dependencies.required_inputs
        self._outputs = program.selected_outputs
        slots: dict[int, int] = {}  # id(Array) -> slot; the program keeps its arrays alive meanwhile
        for dependency in self._inputs:
            slots[id(_array(program, dependency.value_id))] = len(slots)
        if len(slots) != len(self._inputs):
            raise AutodiffError("handler_contract_violation", "two inputs were bound to the same Array; make one each")
        results = []
        for operation in program.operations:
            array = _array(program, operation.output_value_id)
            _check_operands(operation.output_value_id, array, slots)
            if id(array) not in slots:  # else the handler passed an operand on
                slots[id(array)] = len(slots)
                results.append(array)
        self._symbols: dict[str, int] = {}
        for array in results:
            for symbol, size in array.symbols.items():
                bind(self._symbols, symbol, size)
        self._output_slots = [slots[id(_array(program, value_id))] for value_id in self._outputs]
        self._code = _assemble(results, slots, kept=set(self._output_slots))
        self._slot_count = len(slots)
        # What an input must be to pass without a closer look.
        self._expected = [(d.value_id, DTYPES.get(d.dtype or ""), d.shape, d) for d in self._inputs]

    def __call__(
        self, arrays: Mapping[str, Any], *, shape_bindings: Mapping[str, int] | None = None
    ) -> dict[str, NDArray[Any]]:
        if not isinstance(arrays, Mapping):
            raise TypeError(f"expected a mapping from value id to array, got {quote(arrays)}")
        slots: list[Any] = [None] * self._slot_count
        symbols = dict(self._symbols)
        for symbol, size in parse_bindings(shape_bindings).items():
            bind(symbols, symbol, size)
        given = [
            array
            if (array := arrays.get(value_id)).__class__ is np.ndarray and array.dtype is dtype and array.shape == shape
            else _checked(dependency, array, arrays, symbols)
            for value_id, dtype, shape, dependency in self._expected
        ]
        slots[: len(given)] = given
        get = slots.__getitem__
        for function, symbolic, operands, result, dead, overwritten in self._code:
            if overwritten is not None:
                slots[result] = function(*map(get, operands), out=slots[overwritten])
            elif symbolic:
                slots[result] = function(*map(get, operands), **_resolve(symbolic, symbols))
            else:
                slots[result] = function(*map(get, operands))
            for slot in dead:
                slots[slot] = None
        results = [slots[slot] for slot in self._output_slots]
        return dict(zip(self._outputs, _owned(results, given), strict=True))


def _array(program: LoweredProgram, value_id: str) -> Array:
    array = program.values[value_id]
    if not isinstance(array, Array):
        raise AutodiffError(
            "handler_contract_violation",
            f"value {quote(value_id)} was lowered to {quote(array)}; lower with this backend's handlers and its"
            " bind_input",
        )
    return array


def _check_operands(value_id: str, array: Array, slots: Mapping[int, int]) -> None:
    if id(array) in slots:
        return
    if array.function is None or any(id(operand) not in slots for operand in array.operands):
        raise AutodiffError(
            "handler_contract_violation",
            f"value {quote(value_id)} was lowered to an Array that is not a function of values computed before it;"
            " return compute(context, function)",
        )


def _assemble(results: Sequence[Array], slots: Mapping[int, int], kept: set[int]) -> list[_Instruction]:
    """The instructions in order, each with the slots that nothing reads after it."""
    own = _own(results, slots)
    live = set(kept)
    code = []
    for array in reversed(results):
        operands = tuple([slots[id(operand)] for operand in array.operands])
        result = slots[id(array)]
        dead = tuple({slot for slot in (*operands, result) if slot not in live})
        live.update(operands)
        symbolic = {key: value for key, value in array.op_params.items() if _has_symbol(value)}
        fixed = {key: value for key, value in array.op_params.items() if key not in symbolic}
        assert array.function is not None  # only inputs have none
        function = partial(array.function, **fixed) if fixed else array.function
        code.append(_Instruction(function, symbolic, operands, result, dead, _overwritten(array, slots, own & {*dead})))
    code.reverse()
    return code


def _own(results: Sequence[Array], slots: Mapping[int, int]) -> set[int]:
    """The slots whose memory nothing else can share: universal functions make them, and nothing else reads them."""
    own = {slots[id(array)] for array in results if array.ufunc is not None}
    for array in results:
        if array.ufunc is None:
            own.difference_update([slots[id(operand)] for operand in array.operands])
    return own


def _overwritten(array: Array, slots: Mapping[int, int], free: set[int]) -> int | None:
    """The slot of the first free operand that has exactly the result's type, for what works element by element."""
    if array.ufunc is None or array.ufunc.signature is not None or array.type is None or not array.type.shape:
        return None
    for operand in array.operands:
        if operand.type == array.type and slots[id(operand)] in free:
            return slots[id(operand)]
    return None


def _has_symbol(value: Any) -> bool:
    return is_sequence(value) and any(isinstance(dim, str) for dim in value)


def _resolve(op_params: Mapping[str, Any], symbols: Mapping[str, int]) -> dict[str, Any]:
    return {
        key: resolve_shape(tuple(shape), symbols, label=f"param {key!r}", remedy="pass it in shape_bindings")
        for key, shape in op_params.items()
    }


def _checked(
    dependency: ValueDependency, array: Any, arrays: Mapping[str, Any], symbols: dict[str, int]
) -> NDArray[Any]:
    value_id = dependency.value_id
    if array is None:
        raise AutodiffError(
            "missing_dependency",
            f"no array for the {dependency.provenance} {quote(value_id)} was given, only for {quote(list(arrays))}",
        )
    array = np.asarray(array)
    label = f"the array for {quote(value_id)}"
    check_array(label, array, dependency.dtype, dependency.shape, symbols, remedy=", so cast it")
    return array  # type: ignore[no-any-return]


def _owned(results: Sequence[Any], given: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The results as arrays that share no memory with an input or with each other."""
    seen = {id(array) for array in given}
    owned = []
    for result in results:
        array = np.asarray(result)
        if array.base is not None or id(array) in seen:
            array = array.copy()
        seen.add(id(array))
        owned.append(array)
    return owned
