"""Load jobs as `az ml job create` does, with the official SDK; runs where that is installed.

Arguments: files. Prints a JSON list: the SDK's verdict, and what it would send, for each file.
"""

from __future__ import annotations

import json
import logging
import sys

from azure.ai.ml import load_job  # type: ignore[import-not-found,unused-ignore]

logging.disable()
found = []
for path in sys.argv[1:]:
    job = load_job(source=path)
    verdict = job._validate()
    sent = job._to_job()._to_rest_object()
    body = sent.serialize() if hasattr(sent, "serialize") else sent.as_dict()
    found.append({"faults": verdict.error_messages, "name": job.name, "sent": body})
    body["properties"]["environmentId"] = str(job.environment.image)
print(json.dumps(found, default=str))
