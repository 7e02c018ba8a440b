"""Random programs whose tensors have named axes, so that all of them can be packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from backends.ckks.building import ProgramBuilder
from tinychain.autodiff.backends.ckks.program import Program
from tinychain.autodiff.operators import (
    AddOperator,
    MatmulOperator,
    MulOperator,
    ReshapeOperator,
    SubOperator,
    TransposeOperator,
)

ADD, SUB, MUL, MATMUL = AddOperator(), SubOperator(), MulOperator(), MatmulOperator()

#: Of each index; 4 has no padding.
SMALL_SIZES = {"i": 5, "j": 3, "k": 4}


class Pool:
    """Random tensors whose axes are named, so that what is drawn can be packed."""

    def __init__(self, draw: st.DrawFn, sizes: Mapping[str, int]) -> None:
        self.draw = draw
        self.sizes = sizes
        self.build = ProgramBuilder()
        self.axes: dict[int, str] = {}
        for number, axes in enumerate(("ij", "ik", "jk", "i", "j", "")):
            self.axes[self.build.input(f"s{number}", self.shape(axes))] = axes
        self.plain: dict[int, str] = {}
        for number, axes in enumerate(("ij", "jk", "k")):
            self.plain[self.build.input(f"p{number}", self.shape(axes), secret=False)] = axes

    def shape(self, axes: str) -> list[int]:
        return [self.sizes[axis] for axis in axes]

    def pick(self, pool: dict[int, str], want: Sequence[str] | None = None) -> int:
        return self.draw(st.sampled_from([at for at, axes in pool.items() if want is None or axes in want]))

    def partner(self, axes: str) -> int | None:
        """A tensor that broadcasts with one of these axes, aligned from the right."""
        wanted = {axes[at:] for at in range(len(axes) + 1)}
        found = [at for pool in (self.axes, self.plain) for at, other in pool.items() if other in wanted]
        return self.draw(st.sampled_from(found)) if found else None

    def step(self) -> None:
        build = self.build
        x = self.pick(self.axes)
        axes = self.axes[x]
        what = self.draw(st.sampled_from(["add", "sub", "mul", "literal", "ones", "matmul", "transpose", "shift"]))
        if what in ("add", "sub", "mul"):
            y = self.partner(axes)
            assert y is not None  # the scalar always fits
            swap = self.draw(st.booleans())
            operands = (y, x) if swap else (x, y)
            self.axes[build.apply({"add": ADD, "sub": SUB, "mul": MUL}[what], *operands)] = axes
        elif what in ("literal", "shift"):
            number = self.draw(st.sampled_from([-1.0, 0.1, -1 / 3, 1.7]))
            self.axes[build.apply(MUL if what == "literal" else SUB, x, right_literal=number)] = axes
        elif what == "transpose" and len(axes) == 2:
            self.axes[build.apply(TransposeOperator(), x, perm=[1, 0])] = axes[::-1]
        elif what == "ones" and len(axes) == 2:
            ones = build.known(np.full([self.sizes[axes[1]], 1], self.draw(st.sampled_from([1.0, 0.3]))))
            summed = build.apply(MATMUL, x, ones)
            self.axes[build.apply(ReshapeOperator(), summed, shape=[self.sizes[axes[0]]])] = axes[0]
        elif what == "matmul" and len(axes) == 2:
            pool = self.axes | self.plain
            fits = [at for at, other in pool.items() if other[:1] == axes[1] and other[1:] != axes[0]]
            if fits:
                self.matmul(x, self.draw(st.sampled_from(fits)))

    def matmul(self, x: int, y: int) -> None:
        """The product of a matrix with another one or with a vector."""
        build = self.build
        rows, columns = self.axes[x][0], (self.axes | self.plain)[y][1:]
        matrix = y if columns else build.apply(ReshapeOperator(), y, shape=[*build.shape(y), 1])
        product = build.apply(MATMUL, x, matrix)
        if not columns:
            product = build.apply(ReshapeOperator(), product, shape=[self.sizes[rows]])
        self.axes[product] = rows + columns


@st.composite
def programs(draw: st.DrawFn, sizes: Mapping[str, int] = SMALL_SIZES) -> Program:
    """A program of up to nine operations, and some of their results."""
    pool = Pool(draw, sizes)
    for _ in range(draw(st.integers(1, 9))):
        pool.step()
    chosen = draw(st.lists(st.sampled_from([*pool.axes]), min_size=1, max_size=3, unique=True))
    last = max(pool.axes)
    return pool.build.program(**{f"o{at}": at for at in {*chosen, last}})
