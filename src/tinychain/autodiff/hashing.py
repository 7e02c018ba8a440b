"""The content hash of a graph: equal for equal graphs, in every process and on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.form import check_graph
from tinychain.autodiff.graph import TensorGraph, TensorNodeRecord, TensorOperator, plain
from tinychain.autodiff.types import Typespec

_LISTS: Final = ("shape", "target_shape", "perm")


def content_hash(graph: TensorGraph) -> str:
    """The hex SHA-256 of a canonical form that is free of node order, dict order, process and hash seed.

    Raises TypeError for anything but a TensorGraph of node records, and malformed_derivative_ir for params or typespecs
    that are no plain data.
    """
    check_graph(graph, "graph")
    spec_texts: dict[int, str] = {}
    operator_texts: dict[TensorOperator, str] = {}

    def spec_text(spec: Typespec | None) -> str:
        text = spec_texts.get(id(spec))
        if text is None:
            text = spec_texts[id(spec)] = _canonical(spec)
        return text

    def node_text(node: TensorNodeRecord) -> str:
        operator = node.operator
        operator_text = operator_texts.get(operator)
        if operator_text is None:
            operator_text = operator_texts[operator] = _canonical(operator.to_dict())
        return repr(
            (
                node.node_id,
                operator_text,
                params_text(node.op_params),
                node.input_value_ids,
                node.output_value_id,
                spec_text(node.output_typespec),
            )
        )

    inputs = [(value_id, spec_text(spec)) for value_id, spec in graph.inputs]
    digest = hashlib.sha256(repr((inputs, graph.outputs)).encode("utf-8", "surrogatepass"))
    for text in sorted(map(node_text, graph.nodes)):
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def params_text(op_params: Mapping[str, Any]) -> str:
    """The canonical form of a node's params, equal for equal ones only."""
    if len(op_params) == 1:
        ((key, value),) = op_params.items()
        # The params of most nodes that have any, as JSON has them: a literal, or a shape or permutation of ints.
        if key == "right_literal" and type(value) is float and isfinite(value):
            return f'{{"right_literal": {value!r}}}'
        if key in _LISTS and type(value) is list and {*map(type, value)} <= {int}:
            return f'{{"{key}": {value!r}}}'
    return _canonical(op_params) if op_params else ""


def _canonical(value: Any) -> str:
    """JSON with sorted keys; what JSON has no form for has no canonical one either."""
    try:
        return json.dumps(_str_keyed(value), sort_keys=True)
    except Exception as error:
        raise AutodiffError(
            "malformed_derivative_ir",
            f"params and typespecs must be plain data, got {quote(value)}: {describe(error)}",
        ) from error


def _str_keyed(value: Any) -> Any:
    """`value` as plain data whose keys are all str: JSON would spell another key like one."""
    data = plain(value)
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise TypeError(f"the key {quote(key)} is no str")
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return data
