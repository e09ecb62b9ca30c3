"""An evaluator for MLflow, known there as ``treeproof``: verified accuracy as a metric of a run."""

import tempfile
from pathlib import Path
from typing import Any

from treeproof.errors import InvalidInput, require_backend

require_backend("mlflow", "mlflow")

from mlflow import MlflowClient  # noqa: E402 - after its check
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator  # noqa: E402

_OPTIONS = ("eps", "threat", "model", "n_jobs", "time_limit_s", "page")


class TreeproofEvaluator(ModelEvaluator):  # type: ignore[misc] # mlflow is untyped here
    """Proves which rows of a data set keep their label, and logs how many.

    ``evaluator_config`` takes ``eps`` (a radius) or ``threat`` (a threat file), ``n_jobs``,
    ``time_limit_s``, ``page`` (False leaves out the page) and ``model``: a model file or object,
    where MLflow does not hand out the library's own.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:
        """Whether it is for models of a kind: for classifiers."""
        del evaluator_config, kwargs
        return model_type == "classifier"

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Any,
        model: Any = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Prove, and log metrics, the run file and its page to the run."""
        del model_type, kwargs
        import treeproof

        config = dict(evaluator_config or {})
        for name in config.keys() - {*_OPTIONS}:
            raise InvalidInput(
                f"The configuration of the evaluator must be of {list(_OPTIONS)}. Got {name!r}."
            )
        loaded = treeproof.load(config.get("model") or _own_model(model))
        rows, labels = dataset.features_data, dataset.labels_data
        options = {k: config[k] for k in ("n_jobs", "time_limit_s") if config.get(k) is not None}
        if (config.get("eps") is None) == (config.get("threat") is None):
            raise InvalidInput(
                "The evaluator needs 'eps', a radius, or 'threat', a threat file, in"
                " evaluator_config. Got none or both."
            )
        within: Any = config.get("eps")
        if within is None:
            asked = treeproof.load_threat(config["threat"])
            within, options = asked.perturbation(loaded, rows), asked.options | options
        found = treeproof.verify(loaded, rows, labels, within, **options)
        metrics = _metrics(found)
        client = MlflowClient()
        for name, value in metrics.items():
            client.log_metric(run_id, name, value)
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "treeproof.jsonl"
            found.save(run)
            client.log_artifact(run_id, str(run))
            if config.get("page", True):
                page = Path(folder) / "treeproof.html"
                treeproof.write_report(run, page, title="Robustness")
                client.log_artifact(run_id, str(page))
        return EvaluationResult(metrics=metrics, artifacts={}, run_id=run_id)


def _metrics(found: Any) -> dict[str, float]:
    """How many of the attacked rows have each verdict, and which share is verified."""
    from treeproof.results.summary import RunSummary

    summary = RunSummary(found.asks_radius)
    summary.add(found)
    counts = {name: summary.verdicts[name] for name in ("verified", "falsified", "unknown")}
    shown = {f"treeproof_{name}": float(count) for name, count in counts.items()}
    return {"treeproof_verified_accuracy": summary.share(counts["verified"])} | shown


def _own_model(model: Any) -> Any:
    """The library's own model behind what MLflow gives evaluators."""
    raw = getattr(model, "get_raw_model", lambda: None)()
    if raw is None:
        raise InvalidInput(
            "The evaluator needs the model itself, since a proof is about its trees. Got"
            f" {type(model).__name__}: log the model with the flavour of its library, or give its"
            " file as 'model' in evaluator_config."
        )
    return raw
