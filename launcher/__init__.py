"""One job: from options and a worker spec to a run, and its result on one line."""
