"""Forms of nodes, made in one line or read off a traced graph."""

from __future__ import annotations

from typing import Any

from tinychain.autodiff.errors import AutodiffError
from tinychain.autodiff.expansion.target import Form
from tinychain.autodiff.graph import TensorGraph, TensorOperator
from tinychain.autodiff.types import TensorType, parse_type


def form(operator: type[TensorOperator], *types: str, constants: tuple[int, ...] = (), **op_params: Any) -> Form:
    """The form of a node on operands such as "f64 2 N", its result derived; `constants` are positions of operands."""
    operands = tuple([_type(text) for text in types])
    result = operator().result_type({}, *operands, **op_params)
    return Form(operator(), op_params, operands, result, tuple([i in constants for i in range(len(operands))]))


def form_of(graph: TensorGraph) -> Form:
    """The form of the one node of a graph."""
    (node,) = graph.nodes
    specs = dict(graph.inputs)
    operands = tuple([parse_type(specs[value_id], label=value_id) for value_id in node.input_value_ids])
    result = parse_type(node.output_typespec, label=node.output_value_id)
    return Form(node.operator, node.op_params, operands, result, (False,) * len(operands))


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call returns, or the AutodiffError that it raises."""
    try:
        return function(*args, **kwargs)
    except AutodiffError as error:
        return error


def raised_by(function: Any, *args: Any, **kwargs: Any) -> AutodiffError:
    """The AutodiffError of a call that has to raise one."""
    error = outcome(function, *args, **kwargs)
    assert isinstance(error, AutodiffError)
    return error


def _type(text: str) -> TensorType:
    dtype, *dims = text.split()
    return TensorType(dtype, tuple([int(dim) if dim.isdigit() else dim for dim in dims]))
