"""Values printed as Python prints them, back to the values. Nothing is ever evaluated."""

import ast
import json
import re
from json.encoder import encode_basestring

_STRING = r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*\""""
_BRACKET = re.compile(rf"{_STRING}|[\[\](){{}}]", re.DOTALL)
_TOKEN = re.compile(rf"({_STRING})|\b(True|False|None)\b|([()])", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null", "(": "[", ")": "]"}


def printed_value(text: str, start: int) -> tuple[object, int]:
    """Read the list, tuple or dictionary that is printed at a place in a text.

    Args:
        text: The text.
        start: Where its opening bracket stands.

    Returns:
        The value, and the place behind it.

    Raises:
        ValueError: It does not end, or holds something that Python prints without its content.
    """
    depth = 0
    for found in _BRACKET.finditer(text, start):
        bracket = found[0]
        if bracket in "[({":
            depth += 1
        elif bracket in "])}":
            depth -= 1
            if not depth:
                return _value(text[start : found.end()]), found.end()
    raise ValueError("it ends early")


def _value(text: str) -> object:
    try:
        return json.loads(_TOKEN.sub(_as_json, text))  # several times as fast, and what it cannot read it refuses
    except (ValueError, SyntaxError, RecursionError):
        pass
    try:
        return json.loads(
            json.dumps(ast.literal_eval(text))
        )  # as the SDK sends it, tuples and numbers as keys included
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("it holds a value that Python prints without its content") from None


def _as_json(found: re.Match[str]) -> str:
    token = found[0]
    if found[1] is None:
        return _WORDS[token]
    return encode_basestring(ast.literal_eval(token) if "\\" in token else token[1:-1])
