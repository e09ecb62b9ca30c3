"""Files that other programs read: they parse, and say what the rest of the project says."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import treeproof
from tests.architecture.sources import ROOT

yaml = pytest.importorskip("yaml")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def parsed(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_are_workflows(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    # YAML takes the key `on` for a truth value.
    assert set(workflow) <= {"name", True, "permissions", "concurrency", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert set(job) <= {
            *("needs", "if", "runs-on", "strategy", "steps", "permissions", "environment"),
            "timeout-minutes",
        }, name
        needs = job.get("needs", [])
        assert {needs} <= set(workflow["jobs"]) if isinstance(needs, str) else not needs
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1, step
            assert set(step) <= {"uses", "run", "with", "if", "name", "env", "id"}
            assert re.fullmatch(r"[\w-]+/[\w/-]+@[\w/.-]+", step.get("uses", "a/b@v1"))
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert target in make_targets()
            for script in re.findall(r"^(?:\./)?(\.ci/\S+|scripts/\S+)", step.get("run", "")):
                assert (ROOT / script).stat().st_mode & 0o111, script


def test_every_supported_python_is_tested_on_three_systems() -> None:
    matrix = parsed(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert len(matrix["system"]) == 3
    assert f">={PYTHONS[0]}" == PROJECT["requires-python"]


@pytest.mark.parametrize("name", ["question-or-idea", "wrong-answer"])
def test_issue_forms_are_forms(name: str) -> None:
    form = parsed(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    names = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(names) == len(set(names)) > 1
    for field in form["body"]:
        assert field["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        assert ("value" if field["type"] == "markdown" else "label") in field["attributes"]


def test_other_files_parse() -> None:
    assert parsed(".github/dependabot.yml")["version"] == 2
    json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    for repository in parsed(".pre-commit-config.yaml")["repos"]:
        for hook in repository["hooks"]:
            assert {"id", "name", "entry", "language"} <= set(hook)


def test_the_citation_is_of_this_version() -> None:
    citation = parsed("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == treeproof.__version__
    assert citation["license"] == PROJECT["license"]
    assert [a["name"] for a in citation["authors"]] == [a["name"] for a in PROJECT["authors"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"version = {{{treeproof.__version__}}}" in readme.partition("@software{")[2]


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = parsed("recipe/meta.yaml")
    assert recipe["package"]["version"] == treeproof.__version__
    wanted = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    extras = PROJECT["optional-dependencies"]
    needed = {*PROJECT["dependencies"], *extras["cli"], *extras["report"]}
    assert wanted == {f"python{PROJECT['requires-python']}", *needed}
    assert set(recipe["requirements"]["host"]) - {"pip"} == {
        f"python {PROJECT['requires-python']}",
        PYPROJECT["build-system"]["requires"][0].replace(">=", " >="),
    }


def test_the_image_is_made_of_files_that_there_are() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--)", line)]
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name in [name for names in copied for name in names]:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in kept, name
    assert lines[-1].startswith("ENTRYPOINT")
    assert any(line.startswith("USER ") and line != "USER root" for line in lines)


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert first is not None
    assert first[1] == treeproof.__version__


def test_lower_bounds_are_the_same_wherever_they_stand() -> None:
    """Whoever raises one raises it everywhere, and `make test-oldest` tries what users get."""
    groups = [*PROJECT["optional-dependencies"].values(), PYPROJECT["dependency-groups"]["test"]]
    bounds: dict[str, set[str]] = {}
    for line in [*PROJECT["dependencies"], *(line for lines in groups for line in lines)]:
        name, bound = re.match(r"([\w-]+)>=([\d.]+)", line).groups()
        bounds.setdefault(name, set()).add(bound)
    assert {name for name, found in bounds.items() if len(found) > 1} == set()


def test_the_licence_of_every_dependency_is_listed() -> None:
    page = (ROOT / "docs" / "contributing" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    needed = runpy.run_path(str(ROOT / "scripts" / "list-licences"))["needed"]()
    assert {name: places for name, places, _ in rows if name != "package"} == needed
    assert "not installed" not in page


def test_every_campaign_runs_at_night() -> None:
    nightly = runpy.run_path(str(ROOT / "scripts" / "nightly"))
    run = {name.partition(",")[0] for name in nightly["CAMPAIGNS"]}
    there = (ROOT / "tests" / "campaigns").glob("*.py")
    assert run == {path.stem for path in there if "__main__" in path.read_text(encoding="utf-8")}
