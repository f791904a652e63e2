# The images of HorovodJob:
#   docker build --target operator    -t $IMAGE_REGISTRY/horovodjob/operator:0.1.0    .
#   docker build --target dashboard   -t $IMAGE_REGISTRY/horovodjob/dashboard:0.1.0   .   (docs/dashboard.md)
#   docker build --target hvj         -t $IMAGE_REGISTRY/horovodjob/hvj:0.1.0         .   (docs/schedules.md)
#   docker build --target trainer     -t $IMAGE_REGISTRY/horovodjob/trainer:0.1.0     .
#   docker build --target trainer-gpu -t $IMAGE_REGISTRY/horovodjob/trainer-gpu:0.1.0 .   (docs/gpu-image.md)
#   docker build --target mpi         -t $IMAGE_REGISTRY/horovodjob/mpi:0.1.0         .   (for the tests)
# Every Python package comes from uv.lock. The layers are ordered by how seldom they change: Debian's
# packages, the locked packages, this project's own files (well under a megabyte, and the only layer that an
# edit of the sources touches). What is built twice from the same packages has the same digest, where the builder
# gives all files one time (buildah's --timestamp).

# Any Debian 12: a mirror of it, a hardened variant, or one that was made without a registry. The default is the next stage.
ARG BASE_IMAGE=debian

# In a FROM of its own, so that Dependabot updates the digest.
FROM docker.io/library/debian:bookworm-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241 AS debian


# ---- Debian with its Python and the user that everything runs as ------------------------------------------
FROM ${BASE_IMAGE} AS python

# The standard library's bytecode is made again without time stamps in it: it stays valid wherever a builder
# rewrites the files' times, and a read-only root could not repair it.
RUN export DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH=0 \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/* \
 && python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3.11 /usr/lib/python3 \
 && groupadd --gid 1000 horovod \
 && useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash horovod
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin


# ---- uv ---------------------------------------------------------------------------------------------------
FROM python AS uv

# A requirement of pip, with the hashes of the wheels for x86-64 and ARM; the tests install the same one.
ARG UV_REQUIREMENT="uv==0.13.9 \
    --hash=sha256:d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19 \
    --hash=sha256:5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe \
    --hash=sha256:ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375"
# The certificates that downloads are checked with: a network that inspects TLS has others than Debian.
ARG CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
ENV DEBIAN_FRONTEND=noninteractive \
    SSL_CERT_FILE=${CA_BUNDLE} \
    PIP_CERT=${CA_BUNDLE} \
    UV_PROJECT_ENVIRONMENT=/opt/venv \
    UV_PYTHON=/usr/bin/python3.11 \
    UV_PYTHON_DOWNLOADS=never \
    UV_LINK_MODE=copy \
    SOURCE_DATE_EPOCH=0 \
    COMPILERS="g++ cmake make patch libopenmpi-dev openmpi-bin python3-dev"
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3-venv \
 && python3 -m venv /opt/uv \
 && echo "${UV_REQUIREMENT}" > /tmp/uv.txt \
 && /opt/uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r /tmp/uv.txt \
 && ln -s /opt/uv/bin/uv /usr/local/bin/uv
WORKDIR /src


# ---- the locked versions, without the parts of pyproject.toml that only linters read ----------------------
FROM uv AS lock

COPY pyproject.toml uv.lock /tmp/lock/
RUN awk '/^\[/ { keep = !/^\[+tool\.(ruff|mypy|pytest|importlinter)/ } keep' \
      /tmp/lock/pyproject.toml > pyproject.toml \
 && cp /tmp/lock/uv.lock .


# ---- the operator's packages ------------------------------------------------------------------------------
FROM uv AS operator-packages

COPY --from=lock /src/ ./
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    uv sync --frozen --only-group operator-image \
 && find /opt/venv -type d -name tests -prune -exec rm -rf {} + \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib


# ---- the dashboard's packages -----------------------------------------------------------------------------
FROM uv AS dashboard-packages

COPY --from=lock /src/ ./
# kubernetes/aio is a second client, for asyncio, and half of the package; nothing imports it.
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    uv sync --frozen --only-group dashboard-image \
 && find /opt/venv -type d -name tests -prune -exec rm -rf {} + \
 && rm -r /opt/venv/lib/python3.11/site-packages/kubernetes/aio \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib


# ---- the packages of `hvj` --------------------------------------------------------------------------------
FROM uv AS hvj-packages

COPY --from=lock /src/ ./
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    uv sync --frozen --no-default-groups --no-install-project \
 && find /opt/venv -type d -name tests -prune -exec rm -rf {} + \
 && rm -r /opt/venv/lib/python3.11/site-packages/kubernetes/aio \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib


# ---- Horovod, compiled against exactly the locked TensorFlow ----------------------------------------------
FROM uv AS horovod

COPY --from=lock /src/ ./
COPY images/horovod ./images/horovod
# The cache may have the wheel already. Only if it is not there, the compilers are installed. Of the other packages
# only TensorFlow's version matters: links suffice.
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    --mount=type=cache,id=horovodjob-horovod,target=/root/.cache/horovod \
    export UV_LINK_MODE=symlink \
 && uv sync --frozen --only-group trainer --no-install-package horovod \
 && build() { images/horovod/build.py --python /opt/venv/bin/python --wheels /root/.cache/horovod; } \
 && { wheel=$(build) || { apt-get install -y --no-install-recommends ${COMPILERS} && wheel=$(build); }; } \
 && uv pip install --python /opt/venv --no-installer-metadata --no-deps --link-mode copy "$wheel" \
 && mkdir -p /out/bin /out/lib/python3.11/site-packages \
 && cp -a /opt/venv/bin/horovodrun /out/bin/ \
 && cp -aL /opt/venv/lib/python3.11/site-packages/horovod* /out/lib/python3.11/site-packages/ \
 && rm -rf /opt/venv


# ---- the trainer's packages --------------------------------------------------------------------------------
# In a stage of their own, although they are copied then: what a builder leaves behind of mounts is not always the same.
FROM uv AS trainer-packages

RUN apt-get install -y --no-install-recommends binutils
COPY --from=lock /src/ ./
COPY --from=horovod /out/ /tmp/horovod/
COPY images/slim.sh ./
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    uv sync --frozen --only-group trainer --no-install-package horovod \
 && cp -a /tmp/horovod/. /opt/venv/ \
 && ./slim.sh


# ---- the trainer's packages for GPUs -----------------------------------------------------------------------
# CUDA comes as TensorFlow's own Python packages, but these have no compiler of NVIDIA's: clang is in its place.
FROM uv AS trainer-gpu-packages

RUN apt-get install -y --no-install-recommends ${COMPILERS} clang-19
COPY --from=lock /src/ ./
COPY images/slim.sh ./
COPY images/horovod ./images/horovod
COPY images/cuda ./images/cuda
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    --mount=type=cache,id=horovodjob-horovod,target=/root/.cache/horovod \
    uv sync --frozen --only-group trainer-gpu --only-group cuda-build --no-install-package horovod \
 && images/cuda/toolkit.sh /opt/venv/lib/python3.11/site-packages /opt/cuda \
 && wheel=$(images/horovod/build.py --cuda /opt/cuda --python /opt/venv/bin/python --wheels /root/.cache/horovod) \
 && uv sync --frozen --only-group trainer-gpu --no-install-package horovod \
 && uv pip install --python /opt/venv --no-installer-metadata --no-deps "$wheel" \
 && images/cuda/links.sh /opt/venv/lib/python3.11/site-packages \
 && ./slim.sh


# ---- this project, built once for each image from the sources that the image has --------------------------
FROM lock AS operator-project

COPY LICENSE ./
COPY operator ./operator
# The README is not part of an image, so that an edit of it is no reason for a new one.
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    touch README.md \
 && uv build --wheel --out-dir /tmp/wheel \
 && uv venv /opt/venv \
 && uv pip install --python /opt/venv --no-installer-metadata --no-deps --no-index /tmp/wheel/*.whl \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib \
 && mkdir -p /out/lib/python3.11/site-packages \
 && cp -a /opt/venv/lib/python3.11/site-packages/horovodjob* /out/lib/python3.11/site-packages/

FROM lock AS trainer-project

# Horovod's own Keras layers train without synchronisation on Keras 3: imports of them get this project's.
COPY trainer ./trainer
RUN --mount=type=cache,id=horovodjob-uv,target=/root/.cache/uv \
    export PYTHONDONTWRITEBYTECODE=1 \
 && uv build --wheel --out-dir /tmp/wheel trainer \
 && uv venv /opt/venv \
 && uv pip install --python /opt/venv --no-installer-metadata --no-deps --no-index /tmp/wheel/*.whl \
 && /opt/venv/bin/python -m horovodjob_trainer.import_hook enable \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib \
 && mkdir -p /out/bin /out/lib/python3.11/site-packages \
 && cp -a /opt/venv/bin/horovodjob-trainer /opt/venv/bin/horovodjob-compat /out/bin/ \
 && cp -a /opt/venv/lib/python3.11/site-packages/horovodjob* /out/lib/python3.11/site-packages/


# ---- operator ---------------------------------------------------------------------------------------------
FROM python AS operator

LABEL org.opencontainers.image.title="HorovodJob operator" \
      org.opencontainers.image.description="Runs HorovodJobs: distributed Keras/Horovod training on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-packages /opt/venv /opt/venv
COPY --from=operator-project /out/ /opt/venv/
# The root file system may be read-only: nothing is written, bytecode included.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/horovod
USER 1000:1000
ENTRYPOINT ["python", "-m", "horovodjob_operator"]


# ---- dashboard --------------------------------------------------------------------------------------------
FROM python AS dashboard

LABEL org.opencontainers.image.title="HorovodJob dashboard" \
      org.opencontainers.image.description="A page with the HorovodJobs of a cluster, with the rights of each viewer" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=dashboard-packages /opt/venv /opt/venv
COPY --from=operator-project /out/ /opt/venv/
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/horovod
USER 1000:1000
ENTRYPOINT ["python", "-m", "horovodjob_dashboard"]


# ---- hvj, for the pods of schedules and for pipelines -----------------------------------------------------
FROM python AS hvj

LABEL org.opencontainers.image.title="hvj" \
      org.opencontainers.image.description="The command line of HorovodJob, for schedules and pipelines" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=hvj-packages /opt/venv /opt/venv
COPY --from=operator-project /opt/venv/bin/hvj /opt/venv/bin/
COPY --from=operator-project /out/ /opt/venv/
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/horovod
USER 1000:1000
ENTRYPOINT ["hvj"]


# ---- trainer, for CPUs and for GPUs -----------------------------------------------------------------------
FROM python AS trainer-system

# Host keys that many clusters share would be no secret: a job brings its own.
# /run/sshd is for jobs that run as root: the sshd of another user has no use for it.
RUN export DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH=0 \
 && apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates openmpi-bin openssh-client openssh-server \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/cache/ldconfig/* /var/log/* \
 && rm -rf /etc/ssh/ssh_host_* \
 && mkdir -p /run/sshd \
 && install -d -o 1000 -g 1000 /workspace
ENV HOME=/home/horovod
WORKDIR /workspace
USER 1000:1000
CMD ["python", "-m", "horovodjob_trainer", "--help"]

FROM trainer-system AS trainer

LABEL org.opencontainers.image.title="HorovodJob trainer" \
      org.opencontainers.image.description="TensorFlow, Keras, Horovod, Open MPI and sshd for HorovodJobs, with a ready-made trainer" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=trainer-packages /opt/venv /opt/venv
COPY --from=trainer-project /out/ /opt/venv/

FROM trainer-system AS trainer-gpu

LABEL org.opencontainers.image.title="HorovodJob trainer for GPUs" \
      org.opencontainers.image.description="TensorFlow with CUDA, Keras, Horovod with NCCL, Open MPI and sshd for HorovodJobs, with a ready-made trainer" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=trainer-gpu-packages /opt/venv /opt/venv
# Which GPUs a container sees is the device plugin's word; of the driver it needs these parts.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=type=bind,source=images/check_gpu.py,target=/tmp/check_gpu.py python /tmp/check_gpu.py
COPY --from=trainer-project /out/ /opt/venv/


# ---- other MPI implementations, for the tests: each in an environment of its own, Debian's Open MPI in /opt/venv ---
FROM trainer-system AS mpi

ARG CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
# Of what is mounted. Not every builder notices by itself that it has changed.
ARG MOUNTED_DIGEST=""
USER 0
RUN --mount=type=cache,id=horovodjob-uv,target=/tmp/uv-cache \
    --mount=type=bind,from=uv,source=/opt/uv,target=/tmp/uv \
    --mount=type=bind,from=lock,source=/src,target=/tmp/lock \
    export SSL_CERT_FILE=${CA_BUNDLE} UV_CACHE_DIR=/tmp/uv-cache UV_LINK_MODE=copy \
 && export UV_PYTHON=/usr/bin/python3.11 UV_PYTHON_DOWNLOADS=never \
 && cd /tmp/lock \
 && install() { \
      UV_PROJECT_ENVIRONMENT=$1 /tmp/uv/bin/uv sync \
        --frozen --only-group mpi4py ${2:+--only-group $2}; \
    } \
 && install /opt/venv \
 && install /opt/openmpi openmpi \
 && install /opt/mpich mpich \
 && install /opt/intel-mpi intel-mpi \
 && cd /opt/intel-mpi && rm -r bin/IMB* lib/libmpcp* lib/libmpi_* lib/libmpifort* lib/libmpi.so.12.* opt \
 && rm -f /tmp/uv-*.lock
USER 1000:1000
