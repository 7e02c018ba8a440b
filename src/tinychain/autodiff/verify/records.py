"""What a verification says: what was checked, and where two artifacts differ."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from tinychain.autodiff.errors import AutodiffError, quote
from tinychain.autodiff.expansion.provenance import Region
from tinychain.autodiff.graph import Record


@dataclass(frozen=True)
class ExactCheck(Record):
    """Evaluation at random points over prime fields, one prime a trial.

    `degree` bounds that of the difference of two outputs, as polynomials; `error_probability` that of a difference that
    no trial shows. `sizes` are those of the symbols. `random_functions` names the operators that were none but that.
    """

    trials: int
    seed: int
    primes: tuple[int, ...]
    degree: int
    error_probability: float
    sizes: dict[str, int]
    random_functions: tuple[str, ...]

    def __str__(self) -> str:
        bits = self.primes[0].bit_length()
        exponent = ceil(log2(self.error_probability)) if self.error_probability else -1074
        text = (
            f"exact at {_count(self.trials, 'random point')} modulo a prime of {bits} bits:"
            f" degree at most {self.degree}, error probability at most 2**{exponent}"
        )
        if self.sizes:
            text += f"; sizes {', '.join(f'{symbol} = {size}' for symbol, size in self.sizes.items())}"
        if self.random_functions:
            text += f"; as random functions: {', '.join(self.random_functions)}"
        return text


@dataclass(frozen=True)
class NumericCheck(Record):
    """The worst error of each output of `before`, in units in the last place, at each kind of point.

    It is infinite where just one of two values is a number.
    """

    points: tuple[str, ...]
    ulps: dict[str, dict[str, float]]

    @property
    def worst_ulps(self) -> dict[str, float]:
        """By output, over all points."""
        return {output: max(errors.values(), default=0.0) for output, errors in self.ulps.items()}

    def __str__(self) -> str:
        lines = [f"numeric at {', '.join(self.points)}:"]
        for output, errors in self.ulps.items():
            worst = max(errors, key=errors.__getitem__)
            lines.append(f"  {output}: at most {errors[worst]:.4g} ulp" + (f" ({worst})" if errors[worst] else ""))
        return "\n".join(lines)


@dataclass(frozen=True)
class Difference(Record):
    """An element of an output that is not the same, and how to see it again.

    `before` and `after` are its two values modulo `prime`, drawn from `seed` at these `sizes` of the symbols.
    `first_value_id` is the first value, in the schedule of `before`, that both compute and that differs; `region` what
    the rewrite says of it.
    """

    position: int
    output: str
    element: tuple[int, ...]
    seed: int
    prime: int
    before: int
    after: int
    sizes: dict[str, int]
    first_value_id: str | None
    region: Region | None

    def __str__(self) -> str:
        text = f"output {self.position} ({quote(self.output)}) differs at {list(self.element)} with seed {self.seed}"
        if self.sizes:
            text += f" and {', '.join(f'{symbol} = {size}' for symbol, size in self.sizes.items())}"
        if self.first_value_id is not None:
            text += f"; the first value that differs is {quote(self.first_value_id)}"
        if self.region is not None:
            text += f", which {self.region.pass_name} rewrote from nodes {', '.join(self.region.source_node_ids)}"
        return text


@dataclass(frozen=True)
class EquivalenceResult(Record):
    """The verdict on two artifacts. `numeric` is None where no points were asked for.

    They are equivalent if there is no exact `difference` and no numeric error above `max_ulps`, where that is a limit.
    """

    equivalent: bool
    outputs: tuple[str, ...]
    exact: ExactCheck
    numeric: NumericCheck | None
    difference: Difference | None
    max_ulps: float | None = None

    def __bool__(self) -> bool:
        return self.equivalent

    def check(self) -> EquivalenceResult:
        """Itself; raises not_equivalent, with the difference, where the artifacts are not."""
        if self.equivalent:
            return self
        raise AutodiffError("not_equivalent", self._reason())

    def _reason(self) -> str:
        if self.difference is not None:
            return str(self.difference)
        return f"the same function, but the outputs are more than {self.max_ulps:g} ulp apart; {self.numeric}"

    def __str__(self) -> str:
        verdict = "equivalent" if self.equivalent else f"not equivalent: {self._reason()}"
        parts = [f"{verdict} ({_count(len(self.outputs), 'output')})", str(self.exact)]
        if self.numeric is not None and (self.equivalent or self.difference is not None):
            parts.append(str(self.numeric))
        return "\n".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
