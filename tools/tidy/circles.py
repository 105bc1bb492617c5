"""Which files of a crate use each other in a circle: none of them can be understood, moved or tested without the rest.

What a file uses is read off its paths: `use crate::a::B`, `use super::b`, and `crate::a::f()` in the midst of code. A
name that a module only passes on (`pub use`) counts for the file where it is defined.
"""

import re
from pathlib import PurePosixPath

_COMMENT = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"")
_USE = re.compile(r"^ *(pub(?:\([^)]*\))? )?use ((?:crate|super|self|\w+)(?:[^;]*));", re.MULTILINE)
_INLINE = re.compile(r"\b(?:crate|super)(?:::\w+)+")
_TOKEN = re.compile(r"[{},*]|::|\w+")
_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{.*", re.MULTILINE | re.DOTALL)
_DEEP = 8


class Crate:
    """The files below a crate's `src`, as modules: tuples of names, the crate's root is the empty one."""

    def __init__(self, sources):
        self.texts, self.paths = {}, {}
        for source in sources:
            parts = PurePosixPath(source.path).with_suffix("").parts
            inside = parts[parts.index("src") + 1 :]
            module = inside[:-1] if inside[-1] in ("lib", "main", "mod") else inside
            text = _TESTS.sub("", source.text)
            self.texts[module], self.paths[module] = _COMMENT.sub("", text), source.path
        self.passed_on = {module: dict(self._passed_on(module)) for module in self.texts}

    def uses(self):
        """For each module the modules that it names, itself and tests left out."""
        return {
            module: {other for path in self._named(module) if (other := self._home(path)) not in (None, module)}
            for module in self.texts
            if not is_test(module)
        }

    def _named(self, module):
        text = self.texts[module]
        for passed_on, tree in _USE.findall(text):
            if not passed_on:
                yield from (path for path, _ in self._leaves(module, tree))
        for path in _INLINE.findall(_USE.sub("", text)):
            yield self._absolute(module, path.split("::"))

    def _passed_on(self, module):
        for passed_on, tree in _USE.findall(self.texts[module]):
            if passed_on:
                yield from ((name, path) for path, name in self._leaves(module, tree))

    def _leaves(self, module, tree):
        for path, name in leaves(tree):
            absolute = self._absolute(module, path)
            if absolute is not None:
                yield absolute, name

    def _absolute(self, module, path):
        """The path from the crate's root; None where it is another crate's."""
        at = ()
        if path[0] == "crate":
            path = path[1:]
        elif path[0] in ("super", "self"):
            at = module
            while path and path[0] in ("super", "self"):
                at, path = (at[:-1] if path[0] == "super" else at), path[1:]
        elif (*module, path[0]) in self.texts:
            at = module
        else:
            return None
        return (*at, *path)

    def _home(self, path, depth=0):
        """The module where what `path` names is defined."""
        if path is None or depth > _DEEP:
            return None
        module = path
        while module not in self.texts:
            module = module[:-1]
        rest = path[len(module) :]
        if rest and rest[0] in self.passed_on[module]:
            return self._home((*self.passed_on[module][rest[0]], *rest[1:]), depth + 1)
        # Who names a folder's module or its root without a type names nothing in it that could be used.
        return module


def leaves(tree):
    """(path, name) of everything that a `use` names, by the name that it gets; a glob has the name `*`."""
    tokens = iter(_TOKEN.findall(tree))
    found, outer, path, name = [], [], [], None

    def end():
        if path and name:
            found.append((path[:-1] if path[-1] in ("*", "self") else path, name))

    for token in tokens:
        if token == "{":
            outer.append(path)
            name = None
        elif token in (",", "}"):
            end()
            path, name = list(outer[-1]), None
            if token == "}":
                outer.pop()
        elif token == "as":
            name = next(tokens)
        elif token != "::":
            path, name = [*path, token], token
    end()
    return found


def is_test(module):
    """A module that is only compiled for tests, by its name."""
    return any(name == "tests" or name.endswith("_tests") for name in module)


def circles(uses):
    """The groups of more than one module that all use each other, by way of others or directly (Tarjan, 1972)."""
    index, low, on, stack, found = {}, {}, set(), [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in sorted(uses.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
                on.discard(group[-1])
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(uses):
        if node not in index:
            visit(node)
    return found
