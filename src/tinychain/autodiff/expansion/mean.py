"""The mean and its gradient without a reduction, a broadcast or a division.

The forward pass rewrites a full mean of a matrix; the derivative pass rewrites the broadcast and division that its VJP
leaves. Both emit matmuls against generated ones and one scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tinychain.autodiff.emitter import Emitter
from tinychain.autodiff.expansion.mean_rules import check_mean
from tinychain.autodiff.expansion.rewriter import MeanExpansionRegion, Rewriter, check_prefix
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import DerivativeProgram, Record, TensorGraph, TensorNodeRecord
from tinychain.autodiff.operators import (
    BroadcastOperator,
    DivOperator,
    FillOperator,
    MatmulOperator,
    MeanOperator,
    MulOperator,
)
from tinychain.autodiff.types import FLOATING_DTYPES, TensorType, Typespec, as_int, is_sequence, spec_field
from tinychain.autodiff.walks import declared_specs

MEAN_EXPANSION_FORWARD: Final = "mean_expansion_forward"
BROADCAST_SCALE_EXPANSION: Final = "broadcast_scale_expansion"

_RANK_PRESERVING: Final = "rank_preserving"
_RANK_REDUCING: Final = "rank_reducing"


@dataclass(frozen=True)
class MeanGraphExpansionResult(Record):
    """The rewritten graph and what was rewritten, in artifact order."""

    graph: TensorGraph
    regions: tuple[MeanExpansionRegion, ...]


@dataclass(frozen=True)
class MeanDerivativeExpansionResult(Record):
    """The rewritten program and what was rewritten, in artifact order."""

    program: DerivativeProgram
    regions: tuple[MeanExpansionRegion, ...]


def expand_mean_graph(graph: TensorGraph, *, reserved_id_prefix: str | None = None) -> TensorGraph:
    """`expand_mean_graph_detailed` without the regions."""
    return expand_mean_graph_detailed(graph, reserved_id_prefix=reserved_id_prefix).graph


def expand_mean_graph_detailed(
    graph: TensorGraph, *, reserved_id_prefix: str | None = None
) -> MeanGraphExpansionResult:
    """Rewrites every mean, which must be over both axes of a matrix of known shape, into two matmuls and a scale.

    Every mean of the graph is judged, unreachable ones too, before any is rewritten. Raises the category and the reason
    of the first clause that a mean breaks, and malformed_derivative_ir for a bad prefix or colliding ids. New ids start
    with the prefix ("ex" by default). The argument is not changed; without a mean it is returned as it is.
    """
    prefix = check_prefix(reserved_id_prefix)
    check_graph(graph, "graph")
    rewriter = Rewriter(
        graph.nodes, declared=[value_id for value_id, _ in graph.inputs], mentioned=graph.outputs, prefix=prefix
    )
    specs = declared_specs(graph)
    means = [node for node in graph.nodes if type(node.operator) is MeanOperator]
    for node in means:
        check_mean(node, specs, prefix)
    if not means:
        return MeanGraphExpansionResult(graph, ())

    def expand(emit: Emitter, match: tuple[TensorNodeRecord, ...]) -> None:
        MeanOperator().as_matmuls(emit, match[-1])

    nodes = rewriter.run(
        {node.node_id: (node,) for node in means},
        expand,
        specs=specs,
        pass_name=MEAN_EXPANSION_FORWARD,
        tier=lambda node: _RANK_PRESERVING if node.op_params["keepdims"] else _RANK_REDUCING,
    )
    return MeanGraphExpansionResult(TensorGraph(nodes, graph.inputs, graph.outputs), tuple(rewriter.regions))


def expand_mean_derivative_program(
    program: DerivativeProgram, *, reserved_id_prefix: str | None = None
) -> DerivativeProgram:
    """`expand_mean_derivative_program_detailed` without the regions."""
    return expand_mean_derivative_program_detailed(program, reserved_id_prefix=reserved_id_prefix).program


def expand_mean_derivative_program_detailed(
    program: DerivativeProgram, *, reserved_id_prefix: str | None = None
) -> MeanDerivativeExpansionResult:
    """Rewrites each broadcast of a [1, 1] cotangent that is only divided by its element count into matmuls and a scale.

    What does not match exactly is left as it is. Raises malformed_derivative_ir for a bad prefix or colliding ids. The
    argument is not changed; without a match it is returned as it is.
    """
    prefix = check_prefix(reserved_id_prefix)
    check_program(program, "program")
    outputs = [gradient for gradient in program.output_gradients if gradient is not None]
    rewriter = Rewriter(
        program.nodes,
        declared=(),
        mentioned=[*program.gradients, *program.gradients.values(), *outputs, *program.value_typespecs],
        prefix=prefix,
    )
    specs: dict[str, Typespec | None] = dict(program.value_typespecs)
    specs.update([(node.output_value_id, node.output_typespec) for node in program.nodes if node.output_typespec])
    matches = _broadcast_scales(program, specs)
    if not matches:
        return MeanDerivativeExpansionResult(program, ())

    nodes = rewriter.run(
        matches,
        _emit_broadcast_scale,
        specs=specs,
        pass_name=BROADCAST_SCALE_EXPANSION,
        tier=lambda _: _RANK_PRESERVING,
    )
    return MeanDerivativeExpansionResult(replace(program, nodes=nodes), tuple(rewriter.regions))


def _broadcast_scales(
    program: DerivativeProgram, specs: Mapping[str, Typespec | None]
) -> dict[str, tuple[TensorNodeRecord, ...]]:
    """Div id -> (broadcast, div) for every pair that is the gradient of a mean."""
    broadcasts = {n.output_value_id: n for n in program.nodes if type(n.operator) is BroadcastOperator}
    divs = [n for n in program.nodes if type(n.operator) is DivOperator and len(n.input_value_ids) == 1]
    if not broadcasts or not divs:
        return {}
    kept = {*program.gradients, *program.gradients.values(), *program.output_gradients}
    reads = dict.fromkeys(broadcasts, 0)
    for node in program.nodes:
        for operand in node.input_value_ids:
            if operand in reads:
                reads[operand] += 1
    matches: dict[str, tuple[TensorNodeRecord, ...]] = {}
    for div in divs:
        broadcast = broadcasts.get(div.input_value_ids[0])
        if broadcast is None or reads[broadcast.output_value_id] != 1 or broadcast.output_value_id in kept:
            continue
        if _is_mean_gradient(broadcast, div, specs):
            matches[div.node_id] = (broadcast, div)
    return matches


def _is_mean_gradient(broadcast: TensorNodeRecord, div: TensorNodeRecord, specs: Mapping[str, Typespec | None]) -> bool:
    divisor = div.op_params.get("right_literal")
    if set(div.op_params) != {"right_literal"} or isinstance(divisor, bool) or not isinstance(divisor, (int, float)):
        return False
    if len(broadcast.input_value_ids) != 1:
        return False
    spread = _concrete(broadcast.output_typespec)
    if spread is None or len(spread.shape) != 2 or 0 in spread.shape or spread.dtype not in FLOATING_DTYPES:
        return False
    shape = broadcast.op_params.get("shape")
    if set(broadcast.op_params) != {"shape"} or not is_sequence(shape) or tuple(shape) != spread.shape:
        return False
    upstream = _concrete(specs.get(broadcast.input_value_ids[0]))
    if upstream != TensorType(spread.dtype, (1, 1)) or _concrete(div.output_typespec) != spread:
        return False
    return _float_or_none(divisor) is not None and divisor == _count(spread)


def _emit_broadcast_scale(emit: Emitter, match: tuple[TensorNodeRecord, ...]) -> None:
    """g: [1, 1] -> (ones[r, 1] @ g @ ones[1, c]) * (1 / (r * c)), into the division's own value."""
    broadcast, div = match
    (g,) = broadcast.input_value_ids
    spread = emit.type(broadcast.output_value_id)
    assert spread is not None  # the match has seen its typespec
    rows, columns = spread.shape

    def ones(shape: list[Any]) -> str:
        return emit(FillOperator, fill=1.0, dtype=spread.dtype, shape=shape)

    column = emit(MatmulOperator, ones([rows, 1]), g)
    matrix = emit(MatmulOperator, column, ones([1, columns]))
    scale = 1.0 / float(div.op_params["right_literal"])
    emit(MulOperator, matrix, right_literal=scale, into=div.output_value_id)


def _concrete(spec: Typespec | None) -> TensorType | None:
    """The type of a complete typespec without symbols, else None."""
    dtype, shape = spec_field(spec, "dtype"), spec_field(spec, "shape")
    if not isinstance(dtype, str) or not is_sequence(shape):
        return None
    sizes = [as_int(dim) for dim in shape]
    dims = tuple([size for size in sizes if size is not None and size >= 0])
    return TensorType(dtype, dims) if len(dims) == len(sizes) else None


def _count(type_: TensorType) -> int:
    rows, columns = type_.shape
    return int(rows) * int(columns)


def _float_or_none(number: int | float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None
