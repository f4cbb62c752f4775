# rdzv beside what BASE holds. BASE is any Debian or Ubuntu image with Python 3.10 or later, such as
# your own training image; its packages stay as they are, and torchrun is the one on its PATH:
#
#   docker build --target rdzv --build-arg BASE=my-image -t my-image-rdzv .
#
# EXTRAS=launcher,postgres for the replicas of a standing registry.
ARG BASE=python:3.12-slim

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
