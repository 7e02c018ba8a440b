"""One artifact on its way to one machine: node by node kept, rewritten by its plan, or a problem with its reasons."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, cast

from tinychain.autodiff.emitter import Emitter, mint
from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.dividing import Numbers, division_by
from tinychain.autodiff.expansion.placing import Placer
from tinychain.autodiff.expansion.planner import CONSTANTS, Impossible, Plan, Planner, Rules, check_rules
from tinychain.autodiff.expansion.provenance import LegalizedRegion
from tinychain.autodiff.expansion.refusal import Problem
from tinychain.autodiff.expansion.rewriter import check_prefix
from tinychain.autodiff.expansion.target import Form, Target
from tinychain.autodiff.expansion.transposing import Duals, Transposer, is_swap
from tinychain.autodiff.form import check_graph, check_program
from tinychain.autodiff.graph import Decline, DerivativeProgram, TensorGraph, TensorNodeRecord, TensorOperator
from tinychain.autodiff.hashing import params_text
from tinychain.autodiff.operators import ReshapeOperator
from tinychain.autodiff.types import TensorType, Typespec, is_sequence
from tinychain.autodiff.walks import declared_specs, first_duplicate, needed_by, producer_index

GRAPH_PREFIX: Final = "lg"
PROGRAM_PREFIX: Final = "lp"

#: The name, among those of rules, of pushing a transpose down to the inputs.
BY_DUALS: Final = "transpose by duals"
WITHOUT_DUALS: Final = "duals=False"


class Rewriting:
    """One artifact on its way to one machine. After `run`, `problems` or `regions` say what came of it.

    `forward_graph` goes with a derivative program, and with that the `source_graph` that it was made of, in which
    reductions and broadcasts are not yet the reshapes that no transpose is pushed through. Without `duals`, transposes
    are not pushed down to the inputs.
    """

    def __init__(
        self,
        artifact: TensorGraph | DerivativeProgram,
        target: Target,
        *,
        rules: Rules | None = None,
        duals: bool = True,
        forward_graph: TensorGraph | None = None,
        source_graph: TensorGraph | None = None,
        prefix: str | None = None,
    ) -> None:
        if not isinstance(target, Target):
            raise TypeError(f"target must be a Target, got {quote(target)}")
        if not isinstance(duals, bool):
            raise TypeError(f"duals must be a bool, got {quote(duals)}")
        self._planner = Planner(target, check_rules(rules))
        self._artifact = artifact
        self._nodes, self._specs, outputs, mentioned = _read(artifact)
        if forward_graph is not None:
            _check_forward(artifact, forward_graph)
            node_ids = [node.node_id for node in forward_graph.nodes]
            mentioned = chain(mentioned, node_ids, _values(forward_graph.nodes), dict(forward_graph.inputs))
        default = GRAPH_PREFIX if isinstance(artifact, TensorGraph) else PROGRAM_PREFIX
        prefix = check_prefix(default if prefix is None else prefix)
        taken = {id_ for id_ in mentioned if id_.startswith(prefix)}
        self._mint = mint(f"{prefix}v", taken), mint(f"{prefix}n", taken)
        self._emit = self._emitter()
        producers = self._index(artifact)
        needed = needed_by(outputs, producers)
        self.needed = {node.output_value_id for node in needed}
        self._plans: dict[tuple[object, ...], Plan | Impossible] = {}
        self._same: dict[tuple[object, ...], Plan] = {}
        self._constants = {node.output_value_id for node in self._nodes if isinstance(node.operator, CONSTANTS)}
        captured = forward_graph.nodes if forward_graph is not None else []
        self._placer = Placer(self._emit, constants=self._constants, lasting=self.needed)
        self._numbers = Numbers()
        for node in (*captured, *needed):
            self._numbers.note(node)
        self.duals: dict[str, Typespec] = {}  # those that the legal artifact reads and that nothing declares yet
        self.problems: list[Problem] = []
        # Rules, source, value, and where the emitted nodes are: tuples of atoms, as the collector does not visit those.
        self._rewritten: list[tuple[tuple[str, ...], str, str, int, int]] = []
        self._pushed = self._emitter()
        self._transposer = self._make_transposer(needed, producers, forward_graph, source_graph) if duals else None

    def _index(self, artifact: TensorGraph | DerivativeProgram) -> dict[str, TensorNodeRecord]:
        producers = producer_index(self._nodes, category="malformed_derivative_ir")
        for value_id, _ in artifact.inputs if isinstance(artifact, TensorGraph) else ():
            if value_id in producers:
                raise AutodiffError("malformed_derivative_ir", f"the input {quote(value_id)} is produced by a node too")
        return producers

    def _emitter(self) -> Emitter:
        return Emitter(specs=self._specs, mint_value=self._mint[0], mint_node=self._mint[1])

    def _make_transposer(
        self,
        needed: Sequence[TensorNodeRecord],
        producers: Mapping[str, TensorNodeRecord],
        forward_graph: TensorGraph | None,
        source_graph: TensorGraph | None,
    ) -> Transposer:
        """One that pushes through the artifact, and through what a program captures of the forward graph too."""
        readable: Container[str] = self._specs
        inputs: Container[str] | None = None
        if forward_graph is not None:
            inputs = dict(forward_graph.inputs)
            readable = {*inputs, *producers, *chain.from_iterable([node.input_value_ids for node in needed])}
            through = forward_graph if source_graph is None else source_graph
            producers = {**producer_index(through.nodes, category="malformed_derivative_ir"), **producers}
            for value_id, spec in (*forward_graph.inputs, *declared_specs(through).items()):
                self._specs.setdefault(value_id, spec)
        duals = Duals(self._specs, produced=producers, inputs=inputs)
        return Transposer(
            self._pushed,
            producers=producers,
            readable=readable,
            specs=self._specs,
            duals=duals,
            refusal=self._refusal,
        )

    @property
    def regions(self) -> tuple[LegalizedRegion, ...]:
        """What was rewritten so far, in artifact order."""
        node_ids = [node.node_id for node in self._emit.nodes]
        return tuple(
            [
                LegalizedRegion(rules, (source,), tuple(node_ids[start:end]), value_id)
                for rules, source, value_id, start, end in self._rewritten
            ]
        )

    @property
    def declared(self) -> dict[str, Typespec]:
        """What the legal artifact has to declare beside what it does: duals, and what else a program newly reads."""
        if isinstance(self._artifact, TensorGraph):
            return self.duals
        known = self._artifact.value_typespecs
        read = dict.fromkeys(chain.from_iterable([node.input_value_ids for node in self._emit.nodes]))
        produced = {node.output_value_id for node in self._emit.nodes}
        outside = [value_id for value_id in read if value_id not in known and value_id not in produced]
        return {value_id: spec for value_id in outside if (spec := self._specs.get(value_id)) is not None}

    @property
    def changes(self) -> bool:
        """Whether anything was rewritten."""
        return bool(self._rewritten)

    def run(self) -> list[TensorNodeRecord]:
        """The nodes of the legal artifact, each rewritten one where its source stood."""
        needed, nodes = self.needed, self._emit.nodes
        for node in self._nodes:
            if node.output_value_id not in needed:
                nodes.append(node)
                continue
            plan = self._plan_again(node)
            if isinstance(plan, Plan) and not plan.rules:
                self._placer.keep(node)
            else:
                self._rewrite(node, plan)
        return nodes

    def _plan_again(self, node: TensorNodeRecord) -> Plan | Impossible:
        """`_plan` of a node of the artifact, found by the very objects that it shares with one before it."""
        specs, constants, operands = self._specs, self._constants, node.input_value_ids
        text = params_text(node.op_params) if node.op_params else ""
        flags = tuple([operand in constants for operand in operands]) if constants else ()
        key = (id(node.operator), text, flags, id(specs.get(node.output_value_id)), *map(id, map(specs.get, operands)))
        known = self._same.get(key)
        if known is not None:
            return known
        plan = self._plan(node, self._emit)
        if isinstance(plan, Plan) and self._numbers.divisor(node) is None:  # a refusal may name a value
            self._same[key] = plan
        return plan

    def _rewrite(self, source: TensorNodeRecord, plan: Plan | Impossible) -> None:
        """By the plan; a transpose that would cost something by duals rather, where that is possible."""
        nodes = self._emit.nodes
        start = len(nodes)
        rules = None
        if (isinstance(plan, Impossible) or plan.flops) and is_swap(source):
            answer = self._by_duals(source)
            if not isinstance(answer, Decline):
                rules = answer
            elif isinstance(plan, Impossible):
                plan = plan.and_also(BY_DUALS if self._transposer else WITHOUT_DUALS, answer.reason)
        if rules is None:
            if isinstance(plan, Impossible):
                self.problems.append(Problem(source, plan))
                return
            rules = plan.rules
            self._placer.place(source, plan)
        self._rewritten.append((rules, source.node_id, source.output_value_id, start, len(nodes)))

    def _by_duals(self, source: TensorNodeRecord) -> tuple[str, ...] | Decline:
        """The rules by which the transpose was emitted, computed from duals."""
        if self._transposer is None:
            return Decline("transposed inputs are forbidden; transpose_by_constants is a rule that needs none")
        answer = self._transposer.of(source.input_value_ids[0])
        if isinstance(answer, Decline):
            return answer
        self._pushed(ReshapeOperator, answer, shape=list(self._pushed.shape(answer)), into=source.output_value_id)
        last = self._pushed.nodes[-1]
        refusal = self._refusal(last)
        if refusal is not None:
            return Decline(f"it needs {last.operator.name}, and {refusal}")
        rules, bound = [BY_DUALS], self._transposer.duals.bound
        for node in (*self._transposer.take(answer), last):
            plan = self._plan(node, self._pushed)
            assert isinstance(plan, Plan)  # as nobody has refused it
            rules += plan.rules
            self._placer.place(node, plan)
            self.duals.update([(id_, bound[id_]) for id_ in node.input_value_ids if id_ in bound])
        return tuple(dict.fromkeys(rules))

    def _refusal(self, node: TensorNodeRecord) -> str | None:
        """Why a node that pushes a transpose does not fit."""
        if isinstance(node.operator, CONSTANTS):
            self._constants.add(node.output_value_id)
        self._numbers.note(node)
        plan = self._plan(node, self._pushed)
        return plan.refusal if isinstance(plan, Impossible) else None

    def _plan(self, node: TensorNodeRecord, emit: Emitter) -> Plan | Impossible:
        operands = node.input_value_ids
        types = tuple(map(emit.type, operands))
        result = emit.type(node.output_value_id)
        if result is None or not all(types):  # a type is never empty
            unknown = next(v for v in (*operands, node.output_value_id) if emit.type(v) is None)
            return Impossible(f"value {quote(unknown)} has no known dtype and shape; give it a typespec")
        constants = tuple([operand in self._constants for operand in operands])
        operator, op_params = node.operator, node.op_params
        key = type(operator), operator.route_name, params_text(op_params), types, result, constants
        plan = self._plans.get(key)
        divisor = self._numbers.divisor(node) if plan is None or isinstance(plan, Impossible) else None
        by_numbers = key if divisor is None else (*key, *self._numbers.key(divisor))
        known = self._plans.get(by_numbers)
        if known is not None:
            return known
        if type(operator).result_type is not TensorOperator.result_type:
            result = emit.derive(node) or result
        form = Form(operator, op_params, cast(tuple[TensorType, ...], types), result, constants)
        if plan is None:
            emit.check(node)
            plan = self._plans[key] = self._planner.plan(form)
        if isinstance(plan, Impossible) and divisor is not None:
            plan = self._plans[by_numbers] = self._planner.plan_by(division_by(divisor), form, plan)
        return plan


def _read(
    artifact: TensorGraph | DerivativeProgram,
) -> tuple[Sequence[TensorNodeRecord], dict[str, Typespec | None], Sequence[str], Iterable[str]]:
    """The nodes, the typespecs, the outputs, and every id that the artifact mentions; checks the ids."""
    declared: list[str] = []
    known: list[str] = []
    if isinstance(artifact, TensorGraph):
        check_graph(artifact, "artifact")
        declared = [value_id for value_id, _ in artifact.inputs]
        specs: dict[str, Typespec | None] = declared_specs(artifact)
        outputs = artifact.outputs
    else:
        check_program(artifact, "artifact")
        specs = dict(artifact.value_typespecs)
        known = [value_id for value_id in specs if isinstance(value_id, str)]
        for node in artifact.nodes:
            if node.output_typespec is not None:
                specs[node.output_value_id] = node.output_typespec
        if not is_sequence(artifact.output_gradients):
            raise TypeError(f"output_gradients must be a list, got {quote(artifact.output_gradients)}")
        outputs = [value_id for value_id in artifact.output_gradients if value_id is not None]
    for value_id in outputs:
        if not isinstance(value_id, str):
            raise AutodiffError("invalid_selected_output", f"an output must be a value id, got {quote(value_id)}")
    nodes = artifact.nodes
    node_ids = [node.node_id for node in nodes]
    duplicate = first_duplicate(node_ids)
    if duplicate is not None:
        raise AutodiffError("malformed_derivative_ir", f"the node id {quote(duplicate)} stands twice")
    duplicate = first_duplicate(declared)
    if duplicate is not None:
        raise AutodiffError("malformed_derivative_ir", f"the input {quote(duplicate)} is declared twice")
    return nodes, specs, outputs, chain(node_ids, _values(nodes), declared, outputs, known)


def _values(nodes: Iterable[TensorNodeRecord]) -> Iterable[str]:
    """The values that nodes make and read."""
    return chain(
        [node.output_value_id for node in nodes], chain.from_iterable([node.input_value_ids for node in nodes])
    )


def _check_forward(artifact: TensorGraph | DerivativeProgram, forward_graph: TensorGraph) -> None:
    check_graph(forward_graph, "forward_graph")
    if isinstance(artifact, TensorGraph):
        raise TypeError("forward_graph goes with a DerivativeProgram; the artifact is a TensorGraph")
