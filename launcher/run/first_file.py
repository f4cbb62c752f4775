"""The run file that `rdzv init` writes, for one scheduler."""

from __future__ import annotations

from launcher.plan.plan import LOCAL
from launcher.plan.set_variables import variables_to_set
from launcher.prepare.preparation import read_spec
from launcher.run_file.first import first_file
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.shipped import specs_folder


def first_file_for(scheduler: str, name: str) -> str:
    """The text of a run file with this name; raises UsageError for no scheduler."""
    entry = scheduler_entry(scheduler)
    spec = read_spec(specs_folder() / entry.spec)
    needs, also = variables_to_set(spec, entry.variables, entry.needs)
    return first_file(
        name,
        scheduler,
        local=scheduler == LOCAL,
        hosts="HOST" in entry.needs,
        needs=needs,
        also=also,
    )
