"""One optimizer step as a graph: the declaration is checked, then the update runs once on traced tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any, Final, TypeAlias

from tinychain.autodiff.errors import AutodiffError, describe, qualified_name, quote
from tinychain.autodiff.graph import Record, TensorGraph
from tinychain.autodiff.tracing import Tensor, TensorGraphBuilder
from tinychain.autodiff.training.optimizers import Optimizer
from tinychain.autodiff.types import TensorType, parse_type, unify_shapes
from tinychain.autodiff.walks import first_duplicate

_PARAMETER: Final = "parameter"
_GRADIENT: Final = "gradient"

UpdateRule: TypeAlias = Optimizer | Callable[..., Any]


@dataclass(frozen=True)
class TracedUpdate(Record):
    """A traced step. `input_value_ids` maps parameter, gradient, optimizer inputs and state names to value ids.

    `updated_state_ids` maps each state name to the id of its new value; it is empty for a rule without state.
    """

    graph: TensorGraph
    updated_parameter_id: str
    input_value_ids: dict[str, str]
    updated_state_ids: dict[str, str] = field(default_factory=dict)


def trace_parameter_update(
    update: UpdateRule,
    *,
    parameter: Mapping[str, Any],
    gradient: Mapping[str, Any],
    optimizer_inputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> TracedUpdate:
    """Traces an `Optimizer` or a plain function of keyword tensors that returns the new parameter.

    `parameter`, `gradient` and the values of `optimizer_inputs` are typespecs. Raises invalid_update_signature for
    names that do not fit the rule, missing_*_metadata for an incomplete typespec, invalid_update_output for a result
    that is no tensor of this trace or has not the parameter's type, RuntimeError inside an active trace, and what
    tracing raises.
    """
    declared = check_optimizer_inputs(optimizer_inputs)
    states = check_update_rule(update, tuple(declared))

    types = {_PARAMETER: declared_type(_PARAMETER, parameter), _GRADIENT: declared_type(_GRADIENT, gradient)}
    for name, spec in declared.items():
        types[name] = declared_type(name, spec)
    for name in states:
        types[name] = types[_PARAMETER]

    with TensorGraphBuilder() as builder:
        tensors = {name: builder.input(name, dtype=type_.dtype, shape=type_.shape) for name, type_ in types.items()}
        result = update(**tensors)
    updated, new_states = _split_result(result, states, rule_name(update))
    checked = {_PARAMETER: updated, **new_states}
    for name, tensor in checked.items():
        check_result(builder, f"the new {name}", tensor, types[_PARAMETER], of="the parameter's type")
    return TracedUpdate(
        graph=builder.build(outputs=list(checked.values())),
        updated_parameter_id=builder.value_id(updated),
        input_value_ids={name: builder.value_id(tensor) for name, tensor in tensors.items()},
        updated_state_ids={name: builder.value_id(tensor) for name, tensor in new_states.items()},
    )


def check_optimizer_inputs(optimizer_inputs: object) -> Mapping[str, Any]:
    """The declared optimizer inputs, their names checked; None means none. Raises invalid_update_signature."""
    declared = {} if optimizer_inputs is None else optimizer_inputs
    if not isinstance(declared, Mapping):
        raise _bad_signature(f"optimizer_inputs must be a mapping of names to typespecs, got {quote(declared)}")
    for name in declared:
        _check_name(name, taken=(_PARAMETER, _GRADIENT), kind="optimizer input")
    return declared


def check_update_rule(update: object, declared: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The state names of a rule whose signature takes the declared optimizer inputs, or invalid_update_signature.

    None declares what an optimizer requires.
    """
    states: tuple[str, ...] = ()
    function: Any = update
    if isinstance(update, Optimizer):
        required = _declared_names(update, "required_optimizer_inputs")
        declared = required if declared is None else declared
        if set(required) != set(declared):
            raise _bad_signature(
                f"{rule_name(update)} requires the optimizer inputs {sorted(required)}; declared are {sorted(declared)}"
            )
        _check_followers(update, required)
        states = _declared_names(update, "state")
        for name in states:
            _check_name(name, taken=(_PARAMETER, _GRADIENT, *declared), kind="state")
        function = update.update
    if isinstance(update, type) and issubclass(update, Optimizer):
        name = qualified_name(update)
        raise _bad_signature(f"the update must be an Optimizer, got the class {name}; make one of it: {name}(...)")
    if not callable(function):
        raise _bad_signature(f"the update must be an Optimizer or a callable, got {quote(update)}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise _bad_signature(f"the signature of {rule_name(update)} cannot be read: {error}") from error
    keywords = dict.fromkeys((_PARAMETER, _GRADIENT, *(declared or ()), *states))
    try:
        signature.bind(**keywords)
    except TypeError as error:
        raise _bad_signature(
            f"{rule_name(update)}{signature} does not take the keywords {list(keywords)}: {error}"
        ) from error
    return states


def gradient_input_names(update: UpdateRule) -> tuple[str, ...]:
    """The optimizer inputs that a rule computes from all gradients; none for a plain function."""
    if not isinstance(update, Optimizer):
        return ()
    return _declared_names(update, "gradient_inputs")


def _check_followers(update: Optimizer, required: tuple[str, ...]) -> None:
    """The inputs that follow from the step number or from the gradients are required ones; none follows from both."""
    from_gradients, from_step = gradient_input_names(update), _read(update, "step_inputs")
    if not isinstance(from_step, Mapping) or not all(map(callable, from_step.values())):
        raise _bad_signature(
            f"{rule_name(update)}.step_inputs must map names of optimizer inputs to functions of the step number, got"
            f" {quote(from_step)}"
        )
    for label, names in (("gradient_inputs", from_gradients), ("step_inputs", from_step)):
        for name in names:
            if name not in required:
                raise _bad_signature(
                    f"{rule_name(update)}.{label} names {quote(name)}, which is none of the required optimizer inputs"
                    f" {sorted(required)}"
                )
    for name in from_gradients:
        if name in from_step:
            raise _bad_signature(f"{rule_name(update)} has {name!r} among its gradient_inputs and its step_inputs")


def rule_name(update: object) -> str:
    """The class name of an optimizer; the qualified name of a function."""
    return type(update).__name__ if isinstance(update, Optimizer) else qualified_name(update)


def _split_result(result: object, states: tuple[str, ...], rule: str) -> tuple[Tensor, dict[str, Tensor]]:
    if not states:
        if not isinstance(result, Tensor):
            raise AutodiffError(
                "invalid_update_output", f"{rule} must return the new parameter, a Tensor; got {quote(result)}"
            )
        return result, {}
    match result:
        case (Tensor() as updated, Mapping() as new_states) if set(new_states) == set(states):
            for name in states:
                if not isinstance(new_states[name], Tensor):
                    raise AutodiffError(
                        "invalid_update_output",
                        f"{rule} must return a Tensor as the state {name!r}, got {quote(new_states[name])}",
                    )
            return updated, {name: new_states[name] for name in states}
    raise AutodiffError(
        "invalid_update_output",
        f"{rule} must return (new_parameter, {{name: new_state}}) with the states {list(states)}, got {quote(result)}",
    )


def check_result(builder: TensorGraphBuilder, label: str, tensor: Tensor, expected: TensorType, *, of: str) -> None:
    """Refuses a tensor of another trace or of another type than `expected`, which is `of`: invalid_update_output."""
    try:
        type_ = builder.type_of(tensor)
    except ValueError as error:
        raise AutodiffError("invalid_update_output", f"{label} is a tensor of another trace: {error}") from error
    if type_ is None:
        raise AutodiffError("invalid_update_output", f"{label} is untyped; compute it from the given tensors")
    wrong = f"{label} is {type_}, not of {of} {expected}"
    if type_.dtype != expected.dtype:
        raise AutodiffError("invalid_update_output", wrong)
    try:
        unify_shapes(type_.shape, expected.shape, builder.symbols, category="invalid_update_output")
    except AutodiffError as error:
        raise AutodiffError(error.category, f"{wrong}: {error.message}") from None


def declared_type(name: str, spec: object) -> TensorType:
    try:
        return parse_type(spec, label=f"input {quote(name)}")
    except AutodiffError:
        raise
    except Exception as error:
        raise AutodiffError(
            "missing_shape_metadata",
            f"the shape of input {quote(name)} cannot be read: {type(error).__name__}: {error}",
        ) from error


def _read(update: Optimizer, attribute: str) -> Any:
    """An attribute of a rule, which may be a property of a user's own."""
    try:
        return getattr(update, attribute)
    except AutodiffError:
        raise
    except Exception as error:
        raise _bad_signature(f"{rule_name(update)}.{attribute} raised {describe(error)}") from error


def _declared_names(update: Optimizer, attribute: str) -> tuple[str, ...]:
    """The distinct names that a rule declares there."""
    value, label = _read(update, attribute), f"{rule_name(update)}.{attribute}"
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        raise _bad_signature(f"{label} must be a collection of names, got {quote(value)}")
    names = tuple(value)
    for name in names:
        if not isinstance(name, str) or not name:
            raise _bad_signature(f"{label} must hold non-empty str names, got {quote(name)}")
    duplicate = first_duplicate(names)
    if duplicate is not None:
        raise _bad_signature(f"{label} names {duplicate!r} twice")
    return names


def can_be_keyword(name: object) -> bool:
    """Whether `name` can name a keyword argument."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name)


def _check_name(name: object, *, taken: tuple[str, ...], kind: str) -> None:
    if not can_be_keyword(name):
        raise _bad_signature(f"{kind} name {quote(name)} is not an identifier that can be passed as a keyword")
    if name in taken:
        raise _bad_signature(f"{kind} name {quote(name)} is already taken by another input of the update")


def _bad_signature(message: str) -> AutodiffError:
    return AutodiffError("invalid_update_signature", message)
