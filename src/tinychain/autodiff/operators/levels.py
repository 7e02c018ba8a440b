"""The order in which rewriting ends: a rule of an operator emits nodes of lower levels only.

The one table for the operators of the package; each class says which of its forms has which level.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """From what nothing is rewritten into else, up to what needs the most steps."""

    PRIMITIVE = 0  #: reshape, fill, constant, and every operator of somebody else who says nothing
    ALIGNED = 1  #: element by element on matrices of the result's shape; here and below one more for other ranks
    LITERAL = 3  #: element by element with a literal
    COMPOSED_ALIGNED = 5  #: sub and div, which become other elementwise operators, on operands of the result's shape
    COMPOSED_LITERAL = 7
    MATRICES = 9  #: a matmul of two matrices
    BATCHES = 10  #: a matmul of operands with the same batch dims
    BROADCAST = 11
    BROADCASTING = 12  #: an elementwise operator or a matmul that stretches an operand
    COMPOSED_BROADCASTING = 13
    TRANSPOSE_MATRIX = 14
    TRANSPOSE = 15
    SUM = 16
    BROADCAST_REDUCE = 17
    MEAN = 18
    FUNCTION = 19  #: what no rule here can rewrite; a caller's own rule may use all of the above
    FUNCTION_ALIGNED = 20  #: maximum and minimum, whose forms have rules
    FUNCTION_LITERAL = 22
    FUNCTION_BROADCASTING = 24
