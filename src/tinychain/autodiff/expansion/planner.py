"""How a node of some form becomes nodes that a machine has: planned once per form, by trying the rules of its operator.

A rule emits nodes of lower levels only, and those that the machine lacks are planned in turn, so planning ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from tinychain.autodiff.errors import AutodiffError, describe, quote
from tinychain.autodiff.expansion.emission import ask, broken, level_of, operand_id, rule_name, source_of
from tinychain.autodiff.expansion.merging import Step, merged
from tinychain.autodiff.expansion.target import Form, Target
from tinychain.autodiff.graph import Decline, ExpansionRule, TensorOperator
from tinychain.autodiff.hashing import params_text
from tinychain.autodiff.operators import ConstantOperator, FillOperator, ReshapeOperator
from tinychain.autodiff.types import as_int, is_sequence, parse_type

CONSTANTS: Final = (FillOperator, ConstantOperator)

#: The most nodes that one node may become.
MAX_STEPS: Final = 2**17


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes that the source becomes, the last one in its place, and the names of the rules that lead there.

    Without rules the machine has the source as it is.
    """

    rules: tuple[str, ...]
    steps: tuple[Step, ...]
    flops: int
    cost: float

    @property
    def is_constant(self) -> bool:
        """Whether the result is a fill or a constant."""
        return isinstance(self.steps[-1].node.operator, CONSTANTS)


class Objection(NamedTuple):
    """Why a rule does not help; "outer > inner" is the inner rule for what the outer one emits.

    `concerns` is false where the rule is for other forms, so that the reason tells little.
    """

    rule: str
    reason: str
    concerns: bool


class Impossible(NamedTuple):
    """Why the machine cannot run the node, and why each rule does not help."""

    refusal: str
    objections: tuple[Objection, ...] = ()

    def and_also(self, rule: str, reason: str) -> Impossible:
        """The same with one more rule that does not help."""
        return self._replace(objections=(*self.objections, Objection(rule, reason, True)))

    def told(self) -> list[Objection]:
        """The objections that concern the node."""
        return [objection for objection in self.objections if objection.concerns]


#: Rules of a caller's own, by the operator class whose nodes they rewrite.
Rules: TypeAlias = Mapping[type[TensorOperator], Sequence[ExpansionRule]]


def check_rules(rules: object) -> Rules:
    """The caller's rules, None meaning none; expansion_contract_violation for what is no such mapping."""
    if rules is None:
        return {}
    if not isinstance(rules, Mapping):
        raise _bad_rules(f"got {quote(rules)}")
    for operator, given in rules.items():
        if not isinstance(operator, type) or not issubclass(operator, TensorOperator):
            raise _bad_rules(f"got the key {quote(operator)}")
        if not is_sequence(given) or not all(map(callable, given)):
            raise _bad_rules(f"got {quote(given)} for {operator.__name__}")
    return dict(rules)


def _bad_rules(what: str) -> AutodiffError:
    return AutodiffError(
        "expansion_contract_violation", f"rules must map operator classes to lists of callables, {what}"
    )


class Planner:
    """The plans for one machine. `rules` are tried before the operators' own."""

    def __init__(self, target: Target, rules: Rules) -> None:
        self._target = target
        self._rules = rules
        self._plans: dict[tuple[object, ...], Plan | Impossible] = {}

    def plan(self, form: Form) -> Plan | Impossible:
        """The cheapest plan by the target's costs, then in FLOPs, then in nodes, the first of equals; or every reason
        against one.

        Raises expansion_contract_violation for a rule or an operator that breaks its promises.
        """
        operator, op_params, operands, result, constants = form
        key = type(operator), operator.route_name, params_text(op_params), operands, result, constants
        known = self._plans.get(key)
        if known is None:
            try:
                known = self._plans[key] = self._make(form)
            except RecursionError:
                raise AutodiffError(
                    "expansion_contract_violation", f"rules lead from {form} through more levels than can be followed"
                ) from None
        return known

    def plan_by(self, rule: ExpansionRule, form: Form, why: Impossible) -> Plan | Impossible:
        """The plan by one more rule, not for every node of the form; `why` is what stands against the other rules."""
        found = self._try(rule, form, why.refusal)
        return found if isinstance(found, Plan) else why._replace(objections=(*why.objections, *found))

    def _make(self, form: Form) -> Plan | Impossible:
        refusal = self._target.refusal(form)
        if refusal is None:
            operands = range(-1, -1 - len(form.operands), -1)
            flops = _flops(form)
            return Plan((), (Step(source_of(form), tuple(operands)),), flops, self._target.cost(form, flops))
        plans: list[Plan] = []
        objections: list[Objection] = []
        for rule in (*self._rules.get(type(form.operator), ()), *form.operator.expansions):
            found = self._try(rule, form, refusal)
            if isinstance(found, Plan):
                plans.append(found)
            else:
                objections += found
        if plans:
            return min(plans, key=lambda plan: (plan.cost, plan.flops, len(plan.steps)))
        why = Impossible(refusal, tuple(objections))
        inexact = form.operator.inexact
        if not objections or (inexact != TensorOperator.inexact and not why.told()):
            return why.and_also(form.operator.name, inexact)
        return why

    def _try(self, rule: ExpansionRule, form: Form, refusal: str) -> Plan | list[Objection]:
        """The plan that begins with this rule, or why there is none."""
        name = rule_name(rule)
        nodes = ask(rule, form)
        if isinstance(nodes, Decline):
            return [Objection(name, nodes.reason, nodes.concerns)]
        known = {operand_id(i): (-1 - i, type_, form.constants[i]) for i, type_ in enumerate(form.operands)}
        level = level_of(form)
        rules = [name]
        steps: list[Step] = []
        flops, cost = 0, 0.0
        for node in nodes:
            operands = [known[operand] for operand in node.input_value_ids]
            emitted = Form(
                node.operator,
                node.op_params,
                tuple([type_ for _, type_, _ in operands]),
                parse_type(node.output_typespec, label=f"value {quote(node.output_value_id)}"),
                tuple([constant for _, _, constant in operands]),
            )
            if level_of(emitted) >= level:
                raise broken(
                    rule,
                    f"emitted {emitted} of level {level_of(emitted)} for {form} of level {level}; rewriting ends as a"
                    " rule emits lower levels only, see expansion_level",
                )
            plan = self.plan(emitted)
            if isinstance(plan, Impossible):
                return _stuck(name, form, refusal, emitted, plan)
            if len(steps) + len(plan.steps) > MAX_STEPS:
                return [Objection(name, f"it takes more than {MAX_STEPS} operations", True)]
            places = [place for place, _, _ in operands]
            start = len(steps)
            for step in plan.steps:
                steps.append(Step(step.node, tuple([i + start if i >= 0 else places[-1 - i] for i in step.operands])))
            rules += plan.rules
            flops += plan.flops
            cost += plan.cost
            known[node.output_value_id] = (len(steps) - 1, emitted.result, plan.is_constant)
        fewer = merged(steps, [type_.shape for type_ in form.operands])
        if len(fewer) < len(steps):
            cost -= (len(steps) - len(fewer)) * self._target.operators[ReshapeOperator].node_cost
        return Plan(tuple(dict.fromkeys(rules)), tuple(fewer), flops, cost)


def _stuck(rule: str, form: Form, refusal: str, emitted: Form, why: Impossible) -> list[Objection]:
    """Why a rule does not help that emits what is impossible: each reason against that, once."""
    own = form.operator.name  # it has its own reason that no rule is exact
    inner = {objection.reason: objection.rule for objection in why.told() if objection.rule != own}
    if inner:
        return [Objection(f"{rule} > {inner_rule}", reason, True) for reason, inner_rule in inner.items()]
    if why.refusal == refusal:  # it emits another form of what the machine lacks
        return [Objection(rule, f"it needs {emitted}", False)]
    return [Objection(rule, f"it needs {emitted}, and {why.refusal}", True)]


def _flops(form: Form) -> int:
    """An operator or a size that nothing is known of counts as nothing."""
    operator = form.operator
    try:
        given = operator.flops(form.result, *form.operands, **form.op_params)
    except AutodiffError:  # a symbolic dim
        return 0
    except Exception as error:
        raise AutodiffError(
            "expansion_contract_violation", f"flops of {operator.name} raised {describe(error)} for {form}"
        ) from error
    count = as_int(given)
    if given is not None and (count is None or count < 0):
        raise AutodiffError(
            "expansion_contract_violation",
            f"flops of {operator.name} returned {quote(given)} for {form}; expected None or a non-negative int",
        )
    return count or 0
