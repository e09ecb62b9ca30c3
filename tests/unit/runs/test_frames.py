"""`FrameMapper`: the answers of `radius` and `verify`, here, in Spark and in Ray Data."""

import pickle
import sys
import tempfile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    data = load_breast_cancer(as_frame=True)
    return data.data.assign(diagnosis=data.target, patient=np.arange(len(data.target)))[:70]


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> tp.Model:
    X, y = frame.drop(columns=["diagnosis", "patient"]), frame["diagnosis"]
    return tp.load(GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y))


@pytest.fixture(scope="module")
def mapper(model: tp.Model) -> tp.FrameMapper:
    return tp.FrameMapper(model, label="diagnosis", keep=["patient"])


def expected(model: tp.Model, frame: pd.DataFrame) -> tp.Results:
    return tp.radius(model, frame.drop(columns=["diagnosis", "patient"]), frame["diagnosis"])


def assert_same(found: pd.DataFrame, results: tp.Results) -> None:
    found = found.sort_values("patient")
    assert found["patient"].tolist() == list(range(len(results)))
    for name in ("verdict", "lower", "upper", "exact", "attained"):
        assert found[name].tolist() == getattr(results, name).tolist(), name


def test_answers_are_those_of_radius(
    mapper: tp.FrameMapper, model: tp.Model, frame: pd.DataFrame
) -> None:
    found = mapper(frame)
    results = expected(model, frame)
    assert_same(found, results)
    for witness, row in zip(found["witness"], results.witness, strict=True):
        assert witness == row.tolist()


def test_a_radius_or_a_box_asks_for_verdicts(model: tp.Model, frame: pd.DataFrame) -> None:
    X = frame.drop(columns=["diagnosis", "patient"])
    for perturbation in (tp.LInf(0.1), tp.Box(X.min(), X.max())):
        mapper = tp.FrameMapper(model, perturbation, keep=["patient", "diagnosis"], node_limit=50)
        results = tp.verify(model, X, perturbation=perturbation, node_limit=50)
        found = mapper(frame)
        assert found["verdict"].tolist() == results.verdict.tolist()
        is_broken = results.verdict == "falsified"
        assert [w is not None for w in found["witness"]] == is_broken.tolist()
        assert found["diagnosis"].tolist() == frame["diagnosis"].tolist()


def test_it_travels_with_its_model(
    mapper: tp.FrameMapper, model: tp.Model, frame: pd.DataFrame
) -> None:
    sent = pickle.loads(pickle.dumps(mapper))
    parts = list(sent.over([frame[:32], frame[:0], frame[32:]]))
    assert [len(part) for part in parts] == [32, 0, 38]
    assert_same(pd.concat(parts), expected(model, frame))


@pytest.mark.parametrize("kind", [tp.L1, tp.L2, tp.L0, tp.Cost])
def test_without_a_limit_the_least_one_is_asked_for(
    kind: type[tp.L1], model: tp.Model, frame: pd.DataFrame
) -> None:
    rows = frame.drop(columns=["diagnosis", "patient"])[:8]
    found = tp.FrameMapper(model, kind())(rows)
    results = tp.radius(model, rows, perturbation=kind())
    for name in ("verdict", "lower", "upper", "exact"):
        assert found[name].tolist() == getattr(results, name).tolist(), name
    assert (found["lower"] > 0.0).all()


def test_what_frames_of_any_rows_cannot_mean_is_refused(
    model: tp.Model, frame: pd.DataFrame
) -> None:
    X = frame.drop(columns=["diagnosis", "patient"]).to_numpy()
    with pytest.raises(tp.InvalidInput, match=r"A mapper asks the same .* per row"):
        tp.FrameMapper(model, tp.Box(X - 1.0, X + 1.0))
    with pytest.raises(tp.InvalidInput, match="must be a column of the frames"):
        tp.FrameMapper(model, tp.LInf(np.ones(len(X))))
    with pytest.raises(tp.InvalidInput, match="'perturbation' must be a radius such as 0"):
        tp.FrameMapper(model, "near")
    with pytest.raises(tp.InvalidInput, match=r"names of answers\. Got 'lower'"):
        tp.FrameMapper(model, keep=["patient", "lower"])
    for name in ("evidence", "time_limit"):  # there is no column of proofs
        with pytest.raises(TypeError, match=rf"got an unexpected .* '{name}'"):
            tp.FrameMapper(model, **{name: True})


def test_one_column_to_keep_is_its_name(model: tp.Model, frame: pd.DataFrame) -> None:
    found = tp.FrameMapper(model, label="diagnosis", keep="patient")(frame[:3])
    assert found["patient"].tolist() == [0, 1, 2]


def test_batches_that_are_no_frames_get_a_remedy(
    mapper: tp.FrameMapper, frame: pd.DataFrame
) -> None:
    with pytest.raises(tp.InvalidInput, match=r"Got a dict.*batch_format='pandas'"):
        mapper({name: frame[name].to_numpy() for name in frame})


def test_a_column_that_is_not_there_is_named(mapper: tp.FrameMapper, frame: pd.DataFrame) -> None:
    with pytest.raises(tp.InvalidInput, match="Got none named 'patient'"):
        mapper(frame.drop(columns="patient"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Spark and Ray warn of their own affairs
def test_spark(
    mapper: tp.FrameMapper,
    model: tp.Model,
    frame: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with sql.SparkSession.builder.master("local[1]").getOrCreate() as spark:
        rows = spark.createDataFrame(frame)
        found = rows.mapInPandas(mapper.over, mapper.spark_schema("patient long")).toPandas()
    assert_same(found, expected(model, frame))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_ray_data(mapper: tp.FrameMapper, model: tp.Model, frame: pd.DataFrame) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("ray.data", reason="ray.data is not installed")
    # Ray has sockets in its folder, whose paths may be no longer than 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder)
        try:
            rows = ray.data.from_pandas(frame)
            found = rows.map_batches(mapper, batch_format="pandas").to_pandas()
        finally:
            ray.shutdown()
    assert_same(found, expected(model, frame))
