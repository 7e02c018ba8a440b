"""Lowering: every operation of a schedule is claimed exactly once, by its handler or by a fusion hook.

Everything that can be refused is refused before a binder or a handler runs, and no partial program is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from tinychain.autodiff.dependencies import (
    DEPENDENCY_PROVENANCE_LOCAL_VALUE,
    DependencyAnalysis,
    Schedule,
    ValueDependency,
    analyze_graph,
    analyze_program,
)
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.graph import DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.lowering.fusion import Fuser, check_hook
from tinychain.autodiff.lowering.records import (
    LOWERING_CLAIM_FUSION,
    LOWERING_CLAIM_HANDLER,
    BindInput,
    FusionHook,
    LoweredOperation,
    LoweredProgram,
    OperationContext,
    TargetValue,
    raised,
    violation,
)
from tinychain.autodiff.lowering.registry import OperationHandlerRegistry
from tinychain.autodiff.walks import first_duplicate


def lower_graph(
    graph: TensorGraph,
    *,
    handlers: OperationHandlerRegistry,
    outputs: Sequence[str] | None = None,
    fusion: FusionHook | None = None,
    bind_input: BindInput | None = None,
) -> LoweredProgram:
    """Lowers what `outputs` (the graph's own by default) need, operation by operation.

    `bind_input` turns a ValueDependency into a target value; without it the dependency itself is the value. Raises what
    `analyze_graph_dependencies` does; unsupported_operator, before anything runs, for the first operation without a
    handler; handler_contract_violation for a handler, binder or hook that raises another error or answers wrongly.
    """
    analysis, order = analyze_graph(graph, outputs)
    return lower_analysed(analysis, order, handlers=handlers, fusion=fusion, bind_input=bind_input)


def lower_derivative_program(
    program: DerivativeProgram,
    *,
    forward_graph: TensorGraph,
    seed_value_ids: Sequence[str],
    handlers: OperationHandlerRegistry,
    outputs: Sequence[str] | None = None,
    fusion: FusionHook | None = None,
    bind_input: BindInput | None = None,
) -> LoweredProgram:
    """`lower_graph` for the gradients of a derivative program; captures and seeds are bound like inputs."""
    analysis, order = analyze_program(program, forward_graph, seed_value_ids, outputs)
    return lower_analysed(analysis, order, handlers=handlers, fusion=fusion, bind_input=bind_input)


def lower_analysed(
    analysis: DependencyAnalysis,
    order: Schedule,
    *,
    handlers: OperationHandlerRegistry,
    fusion: FusionHook | None,
    bind_input: BindInput | None,
) -> LoweredProgram:
    """Lowers the nodes of a schedule, given with the analysis that it comes from."""
    if not isinstance(handlers, OperationHandlerRegistry):
        raise violation(f"handlers must be an OperationHandlerRegistry, got {quote(handlers)}")
    lookahead = 0 if fusion is None else check_hook(fusion)
    if bind_input is not None and not callable(bind_input):
        raise violation(f"bind_input must be callable or None, got {quote(bind_input)}")
    lowers = _find_handlers(order, handlers)
    _check_distinct(order)
    values = _bind(analysis, bind_input)
    walk = _Walk(analysis, lowers, values)
    if fusion is None:
        for node in order:
            walk.lower(node)
    else:
        fuser = Fuser(fusion, lookahead, order, analysis.selected_outputs, values)
        position = 0
        while position < len(order):
            fused = fuser.offer(position)
            if fused is None:
                walk.lower(order[position])
                position += 1
            else:
                node_ids = tuple([claimed.node_id for claimed in fused.nodes])
                operators = tuple([claimed.operator for claimed in fused.nodes])
                walk.claim(fused.output_value_id, fused.value, node_ids, operators, LOWERING_CLAIM_FUSION)
                position += len(fused.nodes)
    return walk.finish(order)


def _find_handlers(
    order: Schedule, handlers: OperationHandlerRegistry
) -> dict[type[TensorOperator], Callable[[OperationContext], TargetValue]]:
    """The `lower` of every operator class in the schedule; the first operation without one is refused."""
    found: dict[type[TensorOperator], Callable[[OperationContext], TargetValue]] = {}
    for node in order:
        operator_type = type(node.operator)
        if operator_type not in found:
            try:
                found[operator_type] = handlers.lookup(node.operator).lower
            except AutodiffError as error:
                owned = ", ".join([supported.__name__ for supported in handlers.supported_types()]) or "none"
                raise AutodiffError(
                    error.category,
                    f"node {quote(node.node_id)} ({operator_type.__name__}): {error.message}; the backend owns {owned},"
                    " so register a handler or expand the operation first",
                ) from error
            except Exception as error:
                raise raised(f"reading lower of the handler for {operator_type.__name__}", error) from error
    return found


def _check_distinct(order: Schedule) -> None:
    """Each operation is claimed under an id of its own."""
    duplicate = first_duplicate([node.node_id for node in order])
    if duplicate is not None:
        raise violation(f"node id {quote(duplicate)} belongs to two operations, so both would claim it")


def _bind(analysis: DependencyAnalysis, bind_input: BindInput | None) -> dict[str, TargetValue]:
    values: dict[str, TargetValue] = {}
    for dependency in analysis.required_inputs:
        value: TargetValue = dependency
        if bind_input is not None:
            try:
                value = bind_input(dependency)
            except AutodiffError:
                raise
            except Exception as error:
                raise raised(_binder(dependency), error) from error
            if value is None:
                raise violation(f"{_binder(dependency)} returned None; expected a target value")
        values[dependency.value_id] = value
    return values


def _binder(dependency: ValueDependency) -> str:
    return f"bind_input for the {dependency.provenance} {quote(dependency.value_id)}"


class _Walk:
    """The state of one lowering: what is bound, and what is claimed."""

    def __init__(
        self,
        analysis: DependencyAnalysis,
        lowers: dict[type[TensorOperator], Callable[[OperationContext], TargetValue]],
        values: dict[str, TargetValue],
    ) -> None:
        self._analysis = analysis
        self._lowers = lowers
        self._values = values
        # Of what is bound from outside; every other value is local.
        self._provenance = {dependency.value_id: dependency.provenance for dependency in analysis.required_inputs}
        self._operations: list[LoweredOperation] = []
        self._operators: dict[int, tuple[TensorOperator]] = {}  # one tuple for all nodes that share an operator
        self._claims: dict[str, str] = {}

    def lower(self, node: TensorNodeRecord) -> None:
        """Claims one operation through its handler."""
        operands = node.input_value_ids
        values, provenance = self._values, self._provenance
        context = OperationContext(
            node.node_id,
            node.operator,
            node.op_params,
            operands,
            tuple([values[operand] for operand in operands]),
            tuple([provenance.get(operand, DEPENDENCY_PROVENANCE_LOCAL_VALUE) for operand in operands]),
            node.output_value_id,
            node.output_typespec,
        )
        try:
            value = self._lowers[type(node.operator)](context)
        except AutodiffError:
            raise
        except Exception as error:
            raise raised(f"the handler of node {quote(node.node_id)} ({node.operator.name})", error) from error
        if value is None:
            handler = f"the handler of node {quote(node.node_id)} ({node.operator.name})"
            raise violation(f"{handler} returned None; expected a target value")
        operators = self._operators.setdefault(id(node.operator), (node.operator,))
        self.claim(node.output_value_id, value, (node.node_id,), operators, LOWERING_CLAIM_HANDLER)

    def claim(
        self,
        value_id: str,
        value: TargetValue,
        node_ids: tuple[str, ...],
        operators: tuple[TensorOperator, ...],
        claim: str,
    ) -> None:
        """Records one lowered operation: the only place that claims nodes and binds an emitted value."""
        claims, values = self._claims, self._values
        for node_id in node_ids:
            if node_id in claims:
                raise violation(f"node {quote(node_id)} is claimed by a {claim} and already by a {claims[node_id]}")
            claims[node_id] = claim
        if value_id in values:
            raise violation(f"value {quote(value_id)} is bound twice")
        values[value_id] = value
        is_fused = claim == LOWERING_CLAIM_FUSION
        self._operations.append(LoweredOperation(value_id, value, node_ids, operators, is_fused))

    def finish(self, order: Schedule) -> LoweredProgram:
        unclaimed = [node for node in order if node.node_id not in self._claims]
        if unclaimed:
            raise AutodiffError(
                "unsupported_operator",
                f"node {quote(unclaimed[0].node_id)} ({unclaimed[0].operator.name}) was claimed by nobody",
            )
        return LoweredProgram(
            selected_outputs=self._analysis.selected_outputs,
            operations=tuple(self._operations),
            values=MappingProxyType(self._values),
            dependencies=self._analysis,
        )
