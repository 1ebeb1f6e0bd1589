# `milrec serve` on CPUs, as an unprivileged user: docs/how-to/deploy.md says how to build and run it.
#   docker build --build-arg PIP_EXTRA_INDEX_URL=… -t milrec .
#   docker run --read-only -p 127.0.0.1:8000:8000 -v "$PWD/model:/models/current:ro" milrec
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# Where pip looks besides its usual place, for the CPU build of torch. Nothing of it is left in the image.
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ARG PIP_FIND_LINKS=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
RUN python -m venv /opt/milrec
COPY constraints.txt ./
# torch alone at first: a build for GPUs would bring several GB of libraries with it.
RUN /opt/milrec/bin/pip install --no-deps -c constraints.txt torch \
    && { grep -q '^cuda.*= None' /opt/milrec/lib/python3*/site-packages/torch/version.py \
         || { echo 'This torch is built for GPUs. Tell pip where the CPU build is: see docs/how-to/deploy.md.' >&2; exit 1; }; }
RUN /opt/milrec/bin/pip install -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/milrec/bin/pip wheel --no-deps -c constraints.txt --wheel-dir /wheels . \
    && /opt/milrec/bin/pip install -c constraints.txt "$(ls /wheels/milrec-*.whl)[serve]" \
    && /opt/milrec/bin/pip uninstall --yes pip \
    && cd /opt/milrec/lib/python3*/site-packages \
    && rm -rf torch/include torch/share torch/test pyarrow/include \
    && find torch/bin -type f ! -name torch_shm_manager -delete \
    && find numba numpy pyarrow scipy sympy -type d -name tests -prune -exec rm -rf {} +

FROM ${BASE}
COPY --from=build /opt/milrec /opt/milrec
RUN mkdir -p /models && install -d -o 10001 -g 10001 /scratch
# Only /scratch is written to: private copies of models, and loops compiled for this machine's CPU.
ENV PATH=/opt/milrec/bin:$PATH HOME=/scratch NUMBA_CACHE_DIR=/scratch/numba PYTHONDONTWRITEBYTECODE=1
VOLUME /scratch
WORKDIR /scratch
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-c", "import http.client as http; server = http.HTTPConnection('127.0.0.1', 8000, timeout=4); server.request('GET', '/healthz'); raise SystemExit(server.getresponse().status != 200)"]
ENTRYPOINT ["milrec"]
CMD ["serve", "/models/current", "--host", "0.0.0.0", "--scratch", "/scratch"]
