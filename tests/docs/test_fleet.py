"""The page on fleets: its configurations parse, use what they declare, and are of the versions that were tested."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}


def configuration(section: str) -> Any:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return yaml.safe_load(block)


def test_the_router_is_of_the_version_that_the_local_tests_run() -> None:
    pins = (ROOT / "tests" / "local" / "router_pins.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^vllm-router==(\S+)", pins, re.MULTILINE)
    assert re.findall(r"vllm-router==(\S+)", SECTIONS["vllm-router"]) == [version]
    assert f"Run here, version {version} " in SECTIONS["vllm-router"]


def test_every_router_says_what_it_was_checked_against() -> None:
    for section in ("vLLM production stack", "llm-d", "Ray Serve LLM"):
        first = SECTIONS[section].split("\n")[2]
        assert first.startswith("Not run here. ")
        assert re.search(r"[Ss]ource of (2026-\d\d-\d\d|\w+ \d+\.\d+\.\d+)", SECTIONS[section].replace("\n", " "))


def test_the_production_stack_goes_by_the_header_that_headstay_sends() -> None:
    values = configuration("vLLM production stack")
    assert values["routerSpec"] == {"routingLogic": "session", "sessionKey": "X-Session-ID"}
    (model,) = values["servingEngineSpec"]["modelSpec"]
    assert model["vllmConfig"]["enablePrefixCaching"] is True
    assert model["replicaCount"] > 1


def test_the_endpoint_picker_weighs_plugins_that_it_declares() -> None:
    picker = configuration("llm-d")
    declared = [plugin["type"] for plugin in picker["plugins"]]
    (profile,) = picker["schedulingProfiles"]
    used = [plugin["pluginRef"] for plugin in profile["plugins"]]
    assert set(declared) - set(used) == {"single-profile-handler"}
    assert set(used) < set(declared)
    assert "session-affinity-scorer" in used


def test_ray_routes_several_replicas_by_the_header() -> None:
    (application,) = configuration("Ray Serve LLM")["applications"]
    (model,) = application["args"]["llm_configs"]
    assert model["engine_kwargs"]["enable_prefix_caching"] is True
    deployment = model["deployment_config"]
    assert deployment["autoscaling_config"]["min_replicas"] > 1
    assert deployment["request_router_config"]["request_router_class"].endswith(".ConsistentHashRouter")


@pytest.mark.parametrize("block", re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_the_python_is_python_and_its_names_exist(block: str) -> None:
    made: dict[str, Any] = {}
    calls = re.compile(r"^bare\.invoke\(", re.MULTILINE)
    exec(compile(calls.split(block)[0], "fleet.md", "exec"), made)
    assert made["bare"].openai_api_base.endswith("/v1")


def test_the_table_of_what_was_run_has_every_run_of_the_test() -> None:
    test = (ROOT / "tests" / "local" / "test_router.py").read_text(encoding="utf-8")
    runs = re.findall(r'^    \("(\w+)", "([^"]+)", \w+\),$', test, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)`(?: \(the default\))? \| ([\w ]+) \| [\d.]+% \|", PAGE, re.MULTILINE)
    told = {"the conversation": "the conversation", "the head's hash": "the head", "nothing": "none"}
    assert [(policy, told[name]) for policy, name in runs] == rows
    assert rows
