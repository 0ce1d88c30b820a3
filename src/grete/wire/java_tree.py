"""A HashMap bin that has become a red-black tree (java.util.HashMap.TreeNode).

Iteration follows `next` links, not the tree: a new node comes right after its parent, and after every insertion the
root is moved to the front. So the tree has to be kept as Java keeps it, rotations and all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from grete.model.ids import SystemStreamPartition

K = TypeVar("K", bound=Hashable)
_UNTREEIFY = 6


class _Node:
    __slots__ = ("hash", "key", "left", "parent", "red", "right")

    def __init__(self, hash_: int, key: Any) -> None:
        self.hash = hash_
        self.key = key
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.parent: _Node | None = None
        self.red = False


def _order(key: Any) -> Any:
    """The sort key of compareTo: strings by UTF-16 code units, SSPs by system, stream, partition."""
    if isinstance(key, SystemStreamPartition):
        return (_order(key.system), _order(key.stream), key.partition, key.key_bucket)
    return key.encode("utf-16-be", "surrogatepass") if isinstance(key, str) else key


def _comparable(node: _Node) -> tuple[int, Any]:
    """Hashes are compared as signed 32-bit numbers, then keys."""
    signed = node.hash - (1 << 32) if node.hash >= 1 << 31 else node.hash
    return signed, _order(node.key)


class TreeBin(Generic[K]):
    """The bin. Iterating yields (hash, key) in Java's order."""

    def __init__(self, entries: Iterable[tuple[int, K]]) -> None:
        """treeify: nodes are inserted in list order, which stays, but for the root that moves to the front."""
        self._order: list[_Node] = [_Node(hash_, key) for hash_, key in entries]
        self._root: _Node | None = None
        for node in list(self._order):
            self._link(node)
        self._move_root_to_front()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[int, K]]:
        return iter([(node.hash, node.key) for node in self._order])

    def insert(self, hash_: int, key: K) -> None:
        """putTreeVal: the new node follows its parent in iteration order."""
        node = _Node(hash_, key)
        parent = self._link(node)
        if parent is None:
            self._order.append(node)
        else:
            self._order.insert(self._order.index(parent) + 1, node)
        self._move_root_to_front()

    def remove(self, key: K) -> TreeBin[K] | list[tuple[int, K]] | None:
        """removeTreeNode: what the bin is afterwards, a list again when it has become small."""
        kept = [(node.hash, node.key) for node in self._order if node.key != key]
        if not kept:
            return None
        if self._is_too_small():
            return kept
        self._delete(next(node for node in self._order if node.key == key))
        self._order = [node for node in self._order if node.key != key]
        self._move_root_to_front()
        return self

    def _is_too_small(self) -> bool:
        root = self._root
        return root is None or root.right is None or root.left is None or root.left.left is None

    def _move_root_to_front(self) -> None:
        if self._root is not None and self._order[0] is not self._root:
            self._order.remove(self._root)
            self._order.insert(0, self._root)

    def _link(self, node: _Node) -> _Node | None:
        """Put the node into the tree; returns its parent at the moment of insertion."""
        if self._root is None:
            self._root = node
            return None
        parent = self._root
        while True:
            goes_left = _comparable(node) <= _comparable(parent)
            child = parent.left if goes_left else parent.right
            if child is None:
                break
            parent = child
        node.parent = parent
        if goes_left:
            parent.left = node
        else:
            parent.right = node
        self._balance_insertion(node)
        return parent

    def _rotate_left(self, p: _Node) -> None:
        r = p.right
        assert r is not None
        p.right = r.left
        if r.left is not None:
            r.left.parent = p
        self._replace(p, r)
        r.left = p
        p.parent = r

    def _rotate_right(self, p: _Node) -> None:
        left = p.left
        assert left is not None
        p.left = left.right
        if left.right is not None:
            left.right.parent = p
        self._replace(p, left)
        left.right = p
        p.parent = left

    def _replace(self, old: _Node, new: _Node | None) -> None:
        """Put `new` where `old` hangs."""
        parent = old.parent
        if new is not None:
            new.parent = parent
        if parent is None:
            self._root = new
        elif parent.left is old:
            parent.left = new
        else:
            parent.right = new

    def _balance_insertion(self, x: _Node) -> None:
        x.red = True
        while x.parent is not None and x.parent.red and x.parent.parent is not None:
            parent, grand = x.parent, x.parent.parent
            left_side = grand.left is parent
            uncle = grand.right if left_side else grand.left
            if uncle is not None and uncle.red:
                uncle.red = parent.red = False
                grand.red = True
                x = grand
                continue
            if x is (parent.right if left_side else parent.left):
                x = parent
                (self._rotate_left if left_side else self._rotate_right)(x)
                assert x.parent is not None
                parent = x.parent
            parent.red = False
            grand.red = True
            (self._rotate_right if left_side else self._rotate_left)(grand)
        if x.parent is None:
            x.red = False
        assert self._root is not None
        self._root.red = False

    def _delete(self, p: _Node) -> None:
        """Remove a node from the tree, as removeTreeNode does: one with two sons swaps with its successor first."""
        if p.left is not None and p.right is not None:
            successor = p.right
            while successor.left is not None:
                successor = successor.left
            self._swap(p, successor)
        replacement = p.left if p.left is not None else p.right
        if replacement is not None:
            self._replace(p, replacement)
            if not p.red:
                self._balance_deletion(replacement)
        else:
            if not p.red:
                self._balance_deletion(p)
            self._replace(p, None)

    def _swap(self, p: _Node, s: _Node) -> None:
        """Exchange places and colours of a node and its successor."""
        p.red, s.red = s.red, p.red
        p_left, p_right, p_parent = p.left, p.right, p.parent
        s_right, s_parent = s.right, s.parent
        on_left = p_parent is not None and p_parent.left is p
        s.left = p_left
        if p_left is not None:
            p_left.parent = s
        if s_parent is p:
            s.right = p
            p.parent = s
        else:
            assert s_parent is not None
            s.right = p_right
            if p_right is not None:
                p_right.parent = s
            s_parent.left = p
            p.parent = s_parent
        p.left, p.right = None, s_right
        if s_right is not None:
            s_right.parent = p
        s.parent = p_parent
        if p_parent is None:
            self._root = s
        elif on_left:
            p_parent.left = s
        else:
            p_parent.right = s

    def _balance_deletion(self, x: _Node) -> None:
        while x is not self._root and not x.red:
            parent = x.parent
            assert parent is not None
            left_side = parent.left is x
            sibling = parent.right if left_side else parent.left
            if sibling is not None and sibling.red:
                sibling.red, parent.red = False, True
                (self._rotate_left if left_side else self._rotate_right)(parent)
                sibling = parent.right if left_side else parent.left
            if sibling is None:
                x = parent
                continue
            near = sibling.left if left_side else sibling.right
            far = sibling.right if left_side else sibling.left
            if not (near is not None and near.red) and not (far is not None and far.red):
                sibling.red = True
                x = parent
                continue
            if not (far is not None and far.red):
                assert near is not None
                near.red, sibling.red = False, True
                (self._rotate_right if left_side else self._rotate_left)(sibling)
                sibling = parent.right if left_side else parent.left
                assert sibling is not None
                far = sibling.right if left_side else sibling.left
            sibling.red = parent.red
            if far is not None:
                far.red = False
            parent.red = False
            (self._rotate_left if left_side else self._rotate_right)(parent)
            assert self._root is not None
            x = self._root
        x.red = False
