"""What is known of a vLLM server that the user runs with `headstay local serve`."""

import os

from headstay.errors import LocalError
from headstay.local import state as states
from headstay.local.home import find_home
from headstay.providers.vllm import SALT_KEY, Engine


def engine_at(url: object) -> Engine | None:
    """Return what is known of the server at a URL, if it is the user's own and alive.

    Args:
        url: The base URL of an LLM; anything else is no server.
    """
    if not isinstance(url, str) or not url:
        return None
    try:
        state = states.read(find_home())
    except LocalError:  # a home that cannot be read holds no server of ours
        return None
    if state is None or not state.is_alive or url.rstrip("/") != state.base_url.rstrip("/"):
        return None
    key = os.environ.get(SALT_KEY, "").encode()
    return Engine(block=state.block or Engine().block, in_place_system=bool(state.in_place_system), salt_key=key)
