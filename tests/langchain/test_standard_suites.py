"""LangChain's standard suites: nothing fails or is skipped that the bare class passes."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SUITE = Path(__file__).with_name("standard_suite.py")
# Ten unit tests at least, and the 50 items of the integration suite less those that fetch images or need cassettes.
_UNIT = ("UnitAnthropic", "UnitOpenAI", "UnitLocal")
_WHOLE = ("Anthropic", "OpenAI", "Responses", "Local")
LEAST = dict.fromkeys(_UNIT, 10) | dict.fromkeys(_WHOLE, 41)
LEAST["UnitLocal"] = 9  # LangChain loads classes of its own list only


def run(report: Path) -> dict[str, dict[str, str]]:
    """Run the suite in a process of its own; return class name to test name to outcome."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--benchmark-disable", f"--junitxml={report}"]
    offline = ["--disable-socket", "--allow-hosts=127.0.0.1", "--allow-unix-socket"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(SUITE), *options, *offline],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=SUITE.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        found[case.attrib["classname"].rpartition(".")[2]][case.attrib["name"]] = outcome
    return found


# One test, so that the suite runs once whatever the number of workers.
def test_nothing_fails_or_is_skipped_that_the_bare_class_passes(tmp_path: Path) -> None:
    outcomes = run(tmp_path / "report.xml")
    for suite, least in LEAST.items():
        bare = outcomes[f"Test{suite}Bare"]
        assert {name: was for name, was in bare.items() if was in ("failure", "error")} == {}, suite
        assert sum(was == "passed" for was in bare.values()) >= least, suite
        for form in ("Copy", "Wrapper"):
            ours = outcomes[f"Test{suite}{form}"]
            worse = {name: ours.get(name) for name, was in bare.items() if was == "passed" != ours.get(name)}
            assert worse == {}, f"{suite}, {form}"
