"""Values that conform to a JSON schema, made from what a text says where its types fit."""

import re
from collections.abc import Mapping
from typing import Any

from headstay.emulator.shape import mapping, sequence, text_of

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|`([^`\n]+)`")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DEPTH = 12

_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "date": "2026-01-01",
    "email": "user@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
    "duration": "PT1H",
}


class Synthesis:
    """Makes one value for a schema; the same text and schema give the same value.

    Args:
        text: Where numbers, quoted words and dates are taken from, each once and in order.
        root: The schema that local references such as `#/$defs/Item` point into.
    """

    def __init__(self, text: str, root: Mapping[str, Any]) -> None:
        self._text = text.strip() or "text"
        self._root = root
        self._numbers = [float(found) for found in _NUMBER.findall(text)]
        self._words = ["".join(groups) for groups in _QUOTED.findall(text)]
        self._dates = _DATE.findall(text)

    def value(self, schema: object, depth: int = 0) -> Any:
        """Return a value for a schema."""
        fields = self._resolved(mapping(schema))
        if "const" in fields:
            return fields["const"]
        if sequence(fields.get("enum")):
            return self._choice(fields["enum"])
        options = sequence(fields.get("anyOf")) or sequence(fields.get("oneOf"))
        return self.value(self._option(options), depth + 1) if options else self._typed(fields, depth)

    def _typed(self, fields: Mapping[str, Any], depth: int) -> Any:
        kind = self._kind(fields)
        if depth > _DEPTH or kind in {"boolean", "null"}:
            ends: dict[str, Any] = {"object": {}, "array": [], "boolean": True}
            return ends.get(kind)
        if kind == "object":
            return self._object(fields, depth)
        if kind == "array":
            return self._array(fields, depth)
        number = kind in {"integer", "number"}
        return self._number(fields, whole=kind == "integer") if number else self._string(fields)

    def loose(self) -> dict[str, str]:
        """Return an object for "any JSON": one key for each quoted word of the text."""
        return {word: f"{word} for: {self._text[:80]}" for word in self._words} or {"answer": self._text[:200]}

    def _resolved(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Follow local references and join `allOf`."""
        for _ in range(_DEPTH):
            reference = text_of(fields.get("$ref"))
            if not reference.startswith("#"):
                break
            target: Any = self._root
            for name in reference.lstrip("#/").split("/") if reference.strip("#/") else ():
                target = mapping(target).get(name.replace("~1", "/").replace("~0", "~"))
            fields = {**{k: v for k, v in fields.items() if k != "$ref"}, **mapping(target)}
        joined = dict(fields)
        for entry in sequence(fields.get("allOf")):
            more = self._resolved(mapping(entry))
            properties = {**mapping(joined.get("properties")), **mapping(more.get("properties"))}
            required = sequence(joined.get("required")) + sequence(more.get("required"))
            joined.update(more)
            joined.update({"properties": properties, "required": required} if properties else {})
        joined.pop("allOf", None)
        return joined

    def _kind(self, fields: Mapping[str, Any]) -> str:
        declared = fields.get("type")
        kinds = [declared] if isinstance(declared, str) else sequence(declared)
        solid = [kind for kind in kinds if kind != "null"]
        if solid or kinds:
            return str((solid or kinds)[0])
        if "properties" in fields:
            return "object"
        return "array" if "items" in fields else "string"

    def _option(self, options: list[Any]) -> Any:
        solid = [option for option in options if mapping(option).get("type") != "null"]
        return (solid or options)[0]

    def _choice(self, values: list[Any]) -> Any:
        """Take the first value the text mentions, else the first one."""
        lowered = self._text.lower()
        return next((v for v in values if isinstance(v, str) and v and v.lower() in lowered), values[0])

    def _object(self, fields: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = mapping(fields.get("properties"))
        required = [str(name) for name in sequence(fields.get("required"))]
        # A schema that requires nothing would otherwise always get {}.
        names = required or (list(properties) if depth == 0 else [])
        return {name: self.value(properties.get(name, {}), depth + 1) for name in names}

    def _array(self, fields: Mapping[str, Any], depth: int) -> list[Any]:
        fixed = [self.value(item, depth + 1) for item in sequence(fields.get("prefixItems"))]
        items = self._resolved(mapping(fields.get("items")))
        low, high = int(fields.get("minItems", 0)), fields.get("maxItems")
        numeric = self._kind(items) in {"integer", "number"}
        wanted = max(low, len(self._numbers) if numeric else 0, 0 if fixed else 1)
        wanted = wanted if high is None else min(wanted, int(high))
        return fixed + [self.value(items, depth + 1) for _ in range(wanted - len(fixed))]

    def _number(self, fields: Mapping[str, Any], *, whole: bool) -> int | float:
        """Take the next number of the text that fits, else the smallest sensible one."""
        low, high, step = _bounds(fields, whole=whole)
        for index, number in enumerate(self._numbers):
            fits = low <= number <= high and (not step or (number / step).is_integer())
            if fits and (number.is_integer() or not whole):
                del self._numbers[index]
                return int(number) if whole or number.is_integer() else number
        default = fields.get("default")
        if isinstance(default, int | float):
            return default
        start = min(max(1.0, low), high)
        fallback = -(-start // step) * step if step else start
        return int(fallback) if whole or float(fallback).is_integer() else fallback

    def _string(self, fields: Mapping[str, Any]) -> str:
        form = text_of(fields.get("format"))
        if form:
            return self._dates.pop(0) if form == "date" and self._dates else _FORMATS.get(form, "text")
        text = self._words.pop(0) if self._words else self._text[:200]
        text = text.ljust(int(fields.get("minLength", 0)), ".")
        return text[: int(fields["maxLength"])] if "maxLength" in fields else text


def _bounds(fields: Mapping[str, Any], *, whole: bool) -> tuple[float, float, float]:
    """Return the lowest and highest allowed number, and the step they must be a multiple of, or 0."""
    nudge = 1.0 if whole else 1e-6
    low = max(
        float(fields.get("minimum", float("-inf"))),
        float(fields.get("exclusiveMinimum", float("-inf"))) + nudge,
    )
    high = min(float(fields.get("maximum", float("inf"))), float(fields.get("exclusiveMaximum", float("inf"))) - nudge)
    return low, high, float(fields.get("multipleOf", 0) or 0)
