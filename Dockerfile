# treeproof with its command line and compiled kernels, for x86-64: `docker build -t treeproof .`, then
# `docker run --rm -v "$PWD:/work" treeproof radius model.json rows.csv`.
FROM python:3.13-slim AS build
COPY pyproject.toml README.md LICENSE /src/
COPY scripts /src/scripts
COPY src /src/src
WORKDIR /src
RUN python -m venv /opt/treeproof
ENV PATH=/opt/treeproof/bin:$PATH
RUN pip install --no-cache-dir -e ".[cli,report,parquet]"
# Kernels come compiled for processors since 2013, so that the image answers at once.
RUN python scripts/build-wheel && pip install --no-cache-dir --no-deps --force-reinstall dist/*.whl

FROM python:3.13-slim
COPY --from=build /opt/treeproof /opt/treeproof
RUN useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["/opt/treeproof/bin/treeproof"]
