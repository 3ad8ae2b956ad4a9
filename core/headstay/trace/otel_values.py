"""Values and attributes of OpenTelemetry records, in OTLP's JSON or as the console exporters of the SDKs print them."""

from collections.abc import Mapping
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.trace.fields import decoded, json_objects
from headstay.trace.untyped import items

_SCALARS = ("stringValue", "boolValue", "doubleValue", "bytesValue")
_DEEPEST_NAME = 12


def plain(value: object) -> object:
    """Return the plain form of an OTLP value; null for an empty one."""
    fields = mapping(value)
    for name in _SCALARS:
        if name in fields:
            return fields[name]
    if "intValue" in fields:
        return count(fields["intValue"])
    if "arrayValue" in fields:
        return [plain(item) for item in items(mapping(fields["arrayValue"]).get("values"))]
    if "kvlistValue" in fields:
        return attributes_of(mapping(fields["kvlistValue"]).get("values"))
    return None


def attributes_of(value: object) -> dict[str, object]:
    """Return attributes by name: OTLP has a list of keys and values, the console exporters an object."""
    if isinstance(value, Mapping):
        return dict(cast("Json", value))
    return {str(pair.get("key")): plain(pair.get("value")) for pair in json_objects(value)}


def count(value: object) -> int:
    """Return a count, also where it is written as text, as OTLP's JSON does; 0 for anything that is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def first_count(attributes: Json, *names: str) -> int:
    """Return the first of some counts that is there and above zero; 0 where none is."""
    return next((found for name in names if (found := count(attributes.get(name)))), 0)


def listed(attributes: Json, name: str) -> list[Json]:
    """Return the objects of a list, however it was put into attributes.

    Args:
        attributes: All attributes of a record.
        name: Of the list. It may stand as a list or its JSON text under that name, in objects of objects, or flat with
            one attribute for each leaf: `llm.tools.0.tool.json_schema`.
    """
    found = json_objects(decoded(attributes.get(name)))
    if found:
        return found
    inner: object = attributes
    for step in name.split("."):
        inner = mapping(inner).get(step)
    return json_objects(decoded(inner)) or json_objects(_unflattened(attributes, f"{name}."))


def _unflattened(attributes: Json, prefix: str) -> object:
    root: dict[str, object] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *steps, leaf = name[len(prefix) :].split(".", _DEEPEST_NAME)
        place = root
        for step in steps:
            inner = place.setdefault(step, {})
            if not isinstance(inner, dict):
                break
            place = cast("dict[str, object]", inner)
        else:
            place[leaf] = value
    return _with_lists(root)


def _with_lists(value: object) -> object:
    """Turn objects whose names are numbers into lists, in the order of the numbers."""
    if not isinstance(value, dict):
        return value
    fields = {name: _with_lists(item) for name, item in cast("dict[str, object]", value).items()}
    if fields and all(name.isascii() and name.isdecimal() for name in fields):
        return [item for _, item in sorted(fields.items(), key=lambda pair: (len(pair[0]), pair[0]))]
    return fields
