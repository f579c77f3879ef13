"""Find the first of many numbers that is large enough, in logarithmic time."""

from __future__ import annotations


class MaxTree:
    """A list of numbers with a fast search for the first one of at least some size."""

    def __init__(self, values: list[int]) -> None:
        """Store the values."""
        self._size = 1
        while self._size < len(values):
            self._size *= 2
        self._tree = [0] * self._size + values + [0] * (self._size - len(values))
        for place in range(self._size - 1, 0, -1):
            self._tree[place] = max(self._tree[2 * place], self._tree[2 * place + 1])

    @property
    def largest(self) -> int:
        """Return the largest value."""
        return self._tree[1]

    def put(self, index: int, value: int) -> None:
        """Change one value.

        Args:
            index: Its index in the list.
            value: The new value.
        """
        tree, place = self._tree, index + self._size
        tree[place] = value
        place //= 2
        while place:
            left, right = tree[2 * place], tree[2 * place + 1]
            larger = left if left >= right else right
            if tree[place] == larger:
                return
            tree[place] = larger
            place //= 2

    def first(self, least: int, start: int = 0) -> int | None:
        """Return the first index from `start` on whose value is at least `least`; None if there is none.

        Args:
            least: The required value.
            start: The first index that is checked.
        """
        tree, place = self._tree, start + self._size
        if start >= self._size:
            return None
        while True:
            if tree[place] >= least:
                while place < self._size:
                    place *= 2
                    if tree[place] < least:
                        place += 1
                return place - self._size
            # Go up to the next subtree on the right.
            while place & 1:
                place //= 2
            if place == 0:
                return None
            place += 1
