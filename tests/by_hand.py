"""Records built by hand, in few words."""

from __future__ import annotations

from typing import Any

from tinychain.autodiff.graph import (
    DerivativeMetadata,
    DerivativeProgram,
    TensorGraph,
    TensorNodeRecord,
    TensorOperator,
)
from tinychain.autodiff.operators import MulOperator

METADATA = DerivativeMetadata("source", "1", "1", ("w",), "seed matches loss")
F32 = {"dtype": "f32", "shape": [2]}
OBJECT: Any = object()


def node(operator: TensorOperator | None = None, /, node_id: Any = "n0", typespec: Any = None, **op_params: Any) -> Any:
    return TensorNodeRecord(
        node_id=node_id,
        output_value_id="v1",
        operator=operator or MulOperator(),
        op_params=op_params,
        input_value_ids=["v0"],
        output_typespec=typespec,
    )


def producing(value_id: Any, operator: TensorOperator, *operands: Any, typespec: Any = None, **op_params: Any) -> Any:
    """The node n_<value id>."""
    return TensorNodeRecord(
        node_id=f"n_{value_id}",
        output_value_id=value_id,
        operator=operator,
        op_params=op_params,
        input_value_ids=operands,
        output_typespec=typespec,
    )


def graph(*nodes: Any, inputs: Any = (), outputs: Any = ()) -> TensorGraph:
    return TensorGraph(nodes=list(nodes), inputs=inputs, outputs=outputs)


def program(**fields: Any) -> DerivativeProgram:
    empty: dict[str, Any] = {"nodes": [], "gradients": {}, "output_gradients": [], "metadata": METADATA}
    return DerivativeProgram(**{**empty, **fields})
