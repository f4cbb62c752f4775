"""Check manifests against the published schemas of Kubernetes; runs where they are installed.

Argument: versions of Kubernetes. Standard input: a manifest. Prints each fault on a line.
"""

from __future__ import annotations

import sys

import kubernetes_validate  # type: ignore[import-not-found,unused-ignore]
import yaml

for found in yaml.safe_load_all(sys.stdin.read()):
    for version in sys.argv[1:]:
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as exc:
            path = ".".join(str(part) for part in exc.path)
            print(f"{version} {found['kind']} {path}: {exc.message}")
