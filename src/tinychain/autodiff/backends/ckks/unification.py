"""Variables that stand for axes: which are the same, and which are several indices in one.

Two axes that meet become one variable. Where an axis meets several, it is split into parts, the most significant first.
"""

from __future__ import annotations

from collections.abc import Sequence


class Variables:
    """A union-find forest over variables of known sizes, each of which may be split into parts."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._sizes: list[int] = []
        self._parts: list[tuple[int, ...]] = []  # of roots; () where it is not split

    def fresh(self, size: int) -> int:
        """A new variable."""
        self._parents.append(len(self._parents))
        self._sizes.append(size)
        self._parts.append(())
        return len(self._parents) - 1

    def size(self, variable: int) -> int:
        return self._sizes[variable]

    def unify(self, left: Sequence[int], right: Sequence[int]) -> tuple[int, int] | None:
        """Makes two sequences of variables the same, the most significant first; their sizes have one product.

        The sizes of two that do not divide each other are returned, and nothing is of use afterwards.
        """
        pending = [(left, right)]
        while pending:
            rests = [list(sequence) for sequence in pending.pop()]
            while rests[0]:
                a, b = [self._root(rest.pop()) for rest in rests]
                if a == b:
                    continue
                if self._sizes[a] == self._sizes[b]:
                    if self._parts[a] and self._parts[b]:
                        pending.append((self._parts[a], self._parts[b]))
                    self._merge(a, b)
                    continue
                longer, shorter = (0, 1) if self._sizes[a] > self._sizes[b] else (1, 0)
                large, small = (a, b) if longer == 0 else (b, a)
                if not self._parts[large]:
                    if self._sizes[large] % self._sizes[small]:
                        return self._sizes[a], self._sizes[b]
                    self._split(large, self._sizes[small])
                rests[longer].extend(self._parts[large])
                rests[shorter].append(small)
        return None

    def leaves(self, variable: int) -> list[int]:
        """The unsplit variables that it consists of, the most significant first; one for all that are the same."""
        found, rest = [], [variable]
        while rest:
            root = self._root(rest.pop())
            if self._parts[root]:
                rest.extend(reversed(self._parts[root]))
            else:
                found.append(root)
        return found

    def _root(self, variable: int) -> int:
        parents = self._parents
        while parents[variable] != variable:
            parents[variable] = variable = parents[parents[variable]]
        return variable

    def _merge(self, a: int, b: int) -> None:
        """The one that is split, if one is, stays a root; else the elder."""
        root, other = (a, b) if self._parts[a] or (not self._parts[b] and a < b) else (b, a)
        self._parents[other] = root

    def _split(self, variable: int, size: int) -> None:
        self._parts[variable] = (self.fresh(self._sizes[variable] // size), self.fresh(size))
