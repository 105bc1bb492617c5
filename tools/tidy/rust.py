"""What the rules need to know of Rust source that rustfmt has formatted: functions, types, and where each begins."""

import re
from dataclasses import dataclass

_QUALIFIERS = r"(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern \"[^\"]*\" )*"
_FUNCTION = re.compile(rf"^( *){_QUALIFIERS}fn (\w+)")
_TYPE = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|union) (\w+)")
_STRUCT = re.compile(r"^(?:pub(?:\([^)]*\))? )?struct (\w+).*\{$")
_CRATE_FIELD = re.compile(r"^    pub\((?:crate|super|in [\w:]+)\) \w+:")
_INHERENT_IMPL = re.compile(r"^impl(?:<[^{]*?>)? (\w+)(?:<[^{]*>)?(?: where[^{]*)? \{")


@dataclass(frozen=True)
class Function:
    """A function with a body; lines count from 1, both ends included."""

    name: str
    first: int
    last: int

    @property
    def length(self):
        return self.last - self.first + 1


def functions(lines):
    """All functions with a body, nested ones too."""
    found = []
    for index, line in enumerate(lines):
        match = _FUNCTION.match(line)
        if match:
            last = _end_of(lines, index, match.group(1))
            if last is not None:
                found.append(Function(match.group(2), index + 1, last + 1))
    return found


def _end_of(lines, first, indent):
    """The index of the function's last line; None where it has no body."""
    if lines[first].endswith(("}", ";")):
        return first if lines[first].endswith("}") else None
    for index in range(first + 1, len(lines)):
        line = lines[index]
        if line == indent + "}":
            return index
        # The signature's last line, without a body.
        if line.startswith(indent + ")") and line.endswith(";"):
            return None
    return None


def types(lines):
    """Names of the types that are defined at the top level, and their lines."""
    return {match.group(1): number for number, line in enumerate(lines, 1) if (match := _TYPE.match(line))}


def inherent_impls(lines):
    """(type, line) of each `impl T {` at the top level: methods, not traits."""
    return [(match.group(1), number) for number, line in enumerate(lines, 1) if (match := _INHERENT_IMPL.match(line))]


def visible_fields(lines):
    """(struct, line, how many of its fields the crate can touch, or a part of it) for each struct at the top level."""
    found, current = [], None
    for number, line in enumerate(lines, 1):
        if match := _STRUCT.match(line):
            current = [match.group(1), number, 0]
        elif current and line == "}":
            found.append(tuple(current))
            current = None
        elif current and _CRATE_FIELD.match(line):
            current[2] += 1
    return found
