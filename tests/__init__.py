"""Tests of rdzv. Like each program of rdzv, they install its features before all else."""

from __future__ import annotations

from rdzv_command import install_features

install_features()
