"""The fixture `wiring`, in pytest processes of their own."""

import subprocess
import sys
from typing import Any

import pytest

pytest_plugins = ["pytester"]

MODEL = '''
import torch
import torch.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.ffn = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return self.ffn(self.norm2(x))

class Broken(nn.Module):
    def forward(self, x):
        raise RuntimeError("the model's own fault")

x = torch.randn(2, 4, 8)
'''


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(net=MODEL)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> Any:
    return project.runpytest_subprocess("-q", "-p", "no:cacheprovider", *arguments)


def test_a_wrong_model_fails_with_the_report(project: pytest.Pytester) -> None:
    project.makepyfile("""
        from net import Block, x
        def test_block(wiring):
            wiring(Block(), x)
    """)
    done = run(project)
    done.assert_outcomes(failed=1)
    told = done.stdout.str()
    done.stdout.fnmatch_lines([">*wiring(Block(), x)", "E *WiringError: Block is not wired right", "E *Block  456 parameters  abstract*",
                               "E *net.py:13: SKW101 missing-skip: `ffn` keeps the shape*", "E *1 error; 1 site on 1 stream*"])
    assert "pytest_plugin.py" not in told and "checks/run.py" not in told and "__tracebackhide__" not in told


def test_what_is_returned_and_what_can_be_given(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest, skipway
        from net import Block, Broken, x
        def test_ignored(wiring):
            report = wiring(Block(), x, ignore=["missing-skip"])
            assert isinstance(report, skipway.Report) and report.ok and [s.placement for s in report.wiring.sites] == ["pre"]
            assert report.stage == "graph"
        def test_keyword_inputs_and_expect(wiring):
            with pytest.raises(AssertionError, match="SKW202"):
                wiring(Block(), x=x, ignore=["missing-skip"], expect=skipway.Expect(placement="post"))
        def test_select(wiring):
            assert wiring(Block(), x, select=["SKW205"]).rules_run == ("SKW205",)
        def test_the_models_own_fault(wiring):
            with pytest.raises(skipway.checks.run.TraceError, match="own fault"):
                wiring(Broken(), x)
        def test_of_ones_own(wiring, request):
            assert wiring.__name__ == "assert_wired"
    """)
    run(project).assert_outcomes(passed=5)


@pytest.mark.parametrize(("ini", "arguments", "stage"), [("", ("--skipway-stage", "values"), "values"), ("skipway_stage = values", (), "values"),
                                                         ("skipway_stage = values", ("--skipway-stage=graph",), "graph")])
def test_the_stage(project: pytest.Pytester, ini: str, arguments: tuple[str, ...], stage: str) -> None:
    project.makeini(f"[pytest]\n{ini}\n")
    project.makepyfile(f"""
        from net import Block, x
        def test_stage(wiring):
            assert wiring(Block(), x, select=["SKW205"]).stage == "{stage}"
        def test_the_call_decides(wiring):
            assert wiring(Block(), x, select=["SKW205"], stage="graph").stage == "graph"
    """)
    run(project, *arguments).assert_outcomes(passed=2)


def test_an_unknown_stage_is_an_error_before_the_tests(project: pytest.Pytester) -> None:
    project.makepyfile("def test_nothing(): pass")
    done = run(project, "--skipway-stage", "all")
    assert done.ret != 0 and "invalid choice: 'all'" in done.stderr.str()
    project.makeini("[pytest]\nskipway_stage = all\n")
    done = run(project)
    assert done.ret != 0 and "skipway_stage: got 'all', want one of graph, values, train" in done.stderr.str() + done.stdout.str()


# [tool.skipway] of a folder, what its test calls the fixture with besides the model, and whether the test passes.
FOLDERS = {
    "none": ("", "", False),
    "ignore": ("ignore = ['SKW101']", "", True),
    "select": ("select = ['SKW3']", "", True),
    "select_of_the_call": ("select = ['SKW3']", ", select=['SKW1']", False),
    "per_file": ("per-file = { '../net.py' = ['missing-skip'] }", "", True),
    "per_other_file": ("per-file = { 'other.py' = ['SKW1'] }", "", False),
    "expect": ("ignore = ['SKW101']\nexpect = { placement = 'post' }", "", False),
    "expect_of_the_call": ("ignore = ['SKW101']\nexpect = { placement = 'post', parallel = false }",
                           ", expect=skipway.Expect(placement='pre')", True),
    "comment": ("", "", True),
}


def test_the_configuration_nearest_to_the_test_counts(project: pytest.Pytester) -> None:
    project.makefile(".toml", pyproject="[tool.skipway]\nignore = ['SKW1']\n")
    for name, (table, options, _) in FOLDERS.items():
        folder = project.mkdir(name)
        (folder / "pyproject.toml").write_text(f"[tool.skipway]\n{table}\n")
        module = "marked" if name == "comment" else "net"
        (folder / f"test_{name}.py").write_text(f"import skipway\nfrom {module} import Block, x\n\ndef test_block(wiring):\n"
                                                f"    wiring(Block(), x{options})\n")
    project.makepyfile(marked=MODEL.replace("return self.ffn(self.norm2(x))", "return self.ffn(self.norm2(x))  # skipway: ignore[SKW101]"))
    project.makepyfile(test_above="from net import Block, x\ndef test_block(wiring):\n    assert wiring(Block(), x).ok")
    done = run(project, "-rA", "-p", "no:randomly")
    passed = {line.split("/")[0].removeprefix("PASSED ") for line in done.stdout.lines if line.startswith("PASSED")}
    assert passed == {name for name, (_, _, good) in FOLDERS.items() if good} | {"test_above.py::test_block"}
    done.assert_outcomes(passed=6, failed=4)


def test_it_can_be_turned_off_and_replaced(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import pytest
        @pytest.fixture
        def wiring():
            return 3
        def test_own(wiring):
            assert wiring == 3
    """)
    run(project).assert_outcomes(passed=1)
    project.makepyfile("def test_none(wiring):\n    pass")
    done = run(project, "-p", "no:skipway")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'wiring' not found*"])


def test_pytest_starts_without_torch(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import sys
        def test_light(request):
            assert request.config.pluginmanager.has_plugin("skipway")
            heavy = {"torch", "numpy", "typer", "rich", "jinja2"} & set(sys.modules)
            assert heavy == set() and [m for m in sys.modules if m.startswith("skipway.")] == ["skipway.pytest_plugin"]
    """)
    run(project, "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:xdist").assert_outcomes(passed=1)
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import pytest, skipway.pytest_plugin"], capture_output=True, text=True)
    own = [int(line.split("|")[1]) for line in done.stderr.splitlines() if line.endswith("| skipway.pytest_plugin")]
    assert own and own[0] < 50_000, "microseconds, for the plugin without pytest"
