# treeproof with its command line and compiled kernels: `docker build -t treeproof .`, then
# `docker run --rm -v "$PWD:/work" treeproof radius model.json rows.csv`.
FROM python:3.13-slim AS build
COPY pyproject.toml README.md LICENSE /src/
COPY scripts/wheel_tag.py /src/scripts/
COPY src /src/src
RUN python -m venv /opt/treeproof && /opt/treeproof/bin/pip install --no-cache-dir "/src[cli,report,parquet]"
# Kernels are compiled for common processors, so that the image answers at once on any of them.
ENV NUMBA_CACHE_DIR=/opt/kernels NUMBA_CPU_NAME=x86-64-v3
RUN /opt/treeproof/bin/treeproof warmup

FROM python:3.13-slim
COPY --from=build /opt /opt
RUN useradd --create-home user && chown -R user /opt/kernels
ENV NUMBA_CACHE_DIR=/opt/kernels NUMBA_CPU_NAME=x86-64-v3
USER user
WORKDIR /work
ENTRYPOINT ["/opt/treeproof/bin/treeproof"]
