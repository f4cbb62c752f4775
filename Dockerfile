# rdzv beside what BASE holds. BASE is any Debian or Ubuntu image with Python 3.10 or later, such as
# your own training image; its packages stay as they are, and torchrun is the one on its PATH:
#
#   docker build --target rdzv --build-arg BASE=my-image -t my-image-rdzv .
#
# EXTRAS=launcher,postgres for the replicas of a standing registry.
#
# Of the wheel that `make wheel` leaves in dist/, and not of the checkout:
#
#   docker build --target slim -t rdzv .      rdzv alone: `docker run rdzv --version`, a registry, ...
#   docker build --target torch -t rdzv-torch --build-arg TORCH=torch==2.13.0 .      with torch
ARG BASE=python:3.12-slim
ARG SLIM=debian:12-slim

FROM ${BASE} AS build
ARG EXTRAS=launcher
COPY . /rdzv
RUN PIP_NO_CACHE_DIR=1 RDZV_EXTRAS=$EXTRAS sh /rdzv/specs/install.sh

FROM ${BASE} AS rdzv
# InfiniBand and RoCE from inside of a container: the verbs libraries, and ibv_devinfo to look.
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ibverbs-utils libibverbs1 libmlx5-1 > /dev/null \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/rdzv /opt/rdzv
RUN ln -s /opt/rdzv/command/rdzv /usr/local/bin/rdzv
WORKDIR /workspace

# What the demo of docker-compose.yml trains with stands for the packages of a user.
FROM rdzv AS demo
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/demo \
 && /opt/demo/bin/pip install --quiet --no-cache-dir --index-url "$TORCH_INDEX" torch \
 && /opt/demo/bin/pip install --quiet --no-cache-dir scikit-learn
ENV PATH=/opt/demo/bin:$PATH

# --- from the wheel -------------------------------------------------------------------------------

FROM ${SLIM} AS slim-python
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates python3 > /dev/null

# Without a pip, and without what only debuggers read. Of Python, what every start imports is compiled.
FROM slim-python AS slim-build
ARG EXTRAS=launcher
RUN DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      binutils python3-pip > /dev/null
COPY specs/install.sh constraints.txt dist/rdzv-*.whl /build/
RUN PIP_NO_CACHE_DIR=1 PIP_COMPILE=0 RDZV_EXTRAS=$EXTRAS RDZV_CONSTRAINTS=/build/constraints.txt \
      sh /build/install.sh /build/rdzv-*.whl \
 && find /opt/rdzv -name '*.so*' -type f -exec strip --strip-unneeded {} + \
 && cd /opt/rdzv/venv/lib/python3*/site-packages \
 && python3 -m compileall -q rdzv pydantic httpx httpcore anyio click

# What installs further packages goes: this image is to be run, and not to be built on.
FROM slim-python AS slim-files
COPY --from=slim-build /opt/rdzv /opt/rdzv
RUN ln -s /opt/rdzv/command/rdzv /usr/local/bin/rdzv \
 && cd /usr \
 && rm -rf bin/perl* lib/*-linux-gnu/perl* lib/*-linux-gnu/libperl* lib/*-linux-gnu/gconv lib/apt \
      share/perl* share/doc share/info share/locale share/man lib/python3*/ensurepip lib/python3*/lib2to3 \
      lib/python3*/pydoc_data /var/cache/* /var/lib/apt /var/lib/dpkg/info /var/lib/dpkg/*-old /var/log/*

FROM scratch AS slim
COPY --from=slim-files / /
WORKDIR /workspace
ENTRYPOINT ["rdzv"]

FROM ${BASE} AS torch-build
ARG EXTRAS=launcher
COPY specs/install.sh constraints.txt dist/rdzv-*.whl /build/
RUN PIP_NO_CACHE_DIR=1 RDZV_EXTRAS=$EXTRAS RDZV_CONSTRAINTS=/build/constraints.txt \
      sh /build/install.sh /build/rdzv-*.whl

FROM ${BASE} AS torch
ARG TORCH=torch
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu130
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ibverbs-utils libibverbs1 libmlx5-1 > /dev/null \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/torch \
 && /opt/torch/bin/pip install --quiet --no-cache-dir \
      ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" numpy
COPY --from=torch-build /opt/rdzv /opt/rdzv
RUN ln -s /opt/rdzv/command/rdzv /usr/local/bin/rdzv
ENV PATH=/opt/torch/bin:$PATH
WORKDIR /workspace
