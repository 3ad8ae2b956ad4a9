"""Which models the emulator has, for an agent that asks for another one."""

from collections.abc import Sequence

from headstay.emulator import Exchange, anthropic_models, openai_models

OPENAI = ("gpt-4o", "gpt-4.1", "gpt-5 to gpt-5.6", "gpt-6 to gpt-6.2", "o1", "o3", "o3-mini", "o3-pro", "o4-mini")
"""The families of OpenAI models that the emulator has; each with its further names, such as `gpt-5.4-mini`."""


def unknown(exchange: Exchange) -> str:
    """Return the model of a request that was refused because the emulator does not have it; else empty."""
    model = exchange.body.get("model")
    if exchange.status != 404 or not isinstance(model, str):
        return ""
    known = anthropic_models.find(model) if _is_anthropic(exchange) else openai_models.find_model(model)
    return model if known is None else ""


def offered(exchange: Exchange) -> str:
    """Name the models that the provider of a request has in the emulator."""
    return (
        f"of Anthropic's it has {_anthropic()}"
        if _is_anthropic(exchange)
        else f"of OpenAI's it has {', '.join(OPENAI)}"
    )


def _is_anthropic(exchange: Exchange) -> bool:
    return exchange.wire == "anthropic-messages"


def _anthropic() -> str:
    families: dict[str, list[str]] = {}
    for name in anthropic_models.names():
        _, family, version = name.split("-", 2)
        families.setdefault(family, []).append(version)
    return ", ".join(f"claude-{family}-{_either(versions)}" for family, versions in families.items())


def _either(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"({'|'.join(versions)})"
