"""What tracing tools call the providers, to the names of `genai-prices` and to the wire form that a call had."""

from collections.abc import Mapping

# `ls_provider` of LangChain's packages, `gen_ai.provider.name` and the older `gen_ai.system` of OpenTelemetry's
# semantic conventions, `llm.provider` of OpenInference; lower case, without "-", "_", "." and spaces.
_IDS: Mapping[str, str] = {
    "amazonbedrock": "aws",
    "awsbedrock": "aws",
    "bedrock": "aws",
    "bedrockconverse": "aws",
    "amazonbedrockconverse": "aws",
    "azureaiinference": "azure",
    "azureaiopenai": "azure",
    "azureopenai": "azure",
    "azureopenaichat": "azure",
    "anthropicvertex": "google",
    "gcpgemini": "google",
    "gcpgenai": "google",
    "gcpvertexai": "google",
    "gemini": "google",
    "googlegenai": "google",
    "googlevertexai": "google",
    "vertexai": "google",
    "googleanthropicvertex": "google",
    "mistralai": "mistral",
    "togetherai": "together",
    "xai": "x-ai",
}
_CLOUDS = ("", "aws", "azure", "google")  # they pass Claude through in Anthropic's own form


def provider_id(name: str) -> str:
    """Return the id that `genai-prices` has for a provider; a name that is not known stays as it is."""
    lowered = name.strip().lower()
    plain = "".join(letter for letter in lowered if letter not in "-_. ")
    return _IDS.get(plain, lowered)


def speaks_anthropic(provider: str, model: str) -> bool:
    """Whether calls of a model go out in the form of Anthropic Messages.

    Args:
        provider: The provider's id; empty where the log tells none.
        model: The model.
    """
    return provider == "anthropic" or (provider in _CLOUDS and "claude" in model.lower())
