"""The evaluator of MLflow, by MLflow itself, in a store of its own."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_breast_cancer
from xgboost import XGBClassifier

import treeproof as tp

ROOT = Path(__file__).resolve().parents[3]
X, Y = load_breast_cancer(return_X_y=True, as_frame=True)
DATA = X[:60].assign(diagnosis=Y[:60])
MODEL = XGBClassifier(n_estimators=5, max_depth=3).fit(X, Y)
pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow, about itself


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry

    from treeproof.integrations.mlflow import TreeproofEvaluator

    _model_evaluation_registry.register("treeproof", TreeproofEvaluator)
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    return mlflow


def evaluate(mlflow: Any, config: dict[str, Any]) -> Any:
    with mlflow.start_run():
        info = mlflow.xgboost.log_model(MODEL, name="model")
        return mlflow.models.evaluate(
            info.model_uri,
            DATA,
            targets="diagnosis",
            model_type="classifier",
            evaluators="treeproof",
            evaluator_config=config,
        ), mlflow.active_run().info.run_id


def test_a_run_gets_the_verified_accuracy(mlflow: Any, tmp_path: Path) -> None:
    result, run_id = evaluate(mlflow, {"eps": 0.01})
    found = tp.verify(MODEL, X[:60], Y[:60], 0.01)
    share = (found.verdict == "verified").mean()
    assert result.metrics["treeproof_verified_accuracy"] == pytest.approx(share)
    client = mlflow.MlflowClient()
    logged = client.get_run(run_id).data.metrics
    assert logged["treeproof_verified_accuracy"] == pytest.approx(share)
    files = {file.path for file in client.list_artifacts(run_id)}
    assert {"treeproof.jsonl", "treeproof.html"} <= files
    path = client.download_artifacts(run_id, "treeproof.jsonl", str(tmp_path))
    assert tp.load_results(path).verdict.tolist() == found.verdict.tolist()


def test_a_threat_file_says_what_may_happen(mlflow: Any, tmp_path: Path) -> None:
    (tmp_path / "threat.toml").write_text("eps = 0.01\nfrozen = ['mean radius']\n")
    result, _ = evaluate(mlflow, {"threat": str(tmp_path / "threat.toml"), "page": False})
    found = tp.verify(MODEL, X[:60], Y[:60], tp.LInf(0.01, frozen="mean radius"))
    share = (found.verdict == "verified").mean()
    assert result.metrics["treeproof_verified_accuracy"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("config", "said"),
    [({}, "'eps', a radius, or 'threat'"), ({"eps": 1.0, "radius": 2.0}, "Got 'radius'")],
)
def test_wrong_configurations_are_refused(mlflow: Any, config: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        evaluate(mlflow, config)


def test_entry_points_lead_somewhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["entry-points"]
    assert set(groups) == {"pytest11", "mlflow.model_evaluator"}
    for entries in groups.values():
        for target in entries.values():
            module, _, name = target.partition(":")
            found = importlib.import_module(module)
            assert not name or hasattr(found, name)
