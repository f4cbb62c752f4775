"""What `rendezvous/serving` uses of uvicorn's inside is there in the installed version.

None of it is documented, so that any version of uvicorn may lack it: pyproject.toml states the
range in which all of it is there and means what it means here.
"""

from __future__ import annotations

import pytest
import uvicorn
from uvicorn.lifespan.on import LifespanOn
from uvicorn.server import ServerState

CONFIG = uvicorn.Config(lambda: None)
USED = {
    ServerState(): "connections default_headers tasks",
    uvicorn.Server(
        CONFIG
    ): "config handle_exit main_loop on_tick server_state shutdown started startup",
    LifespanOn(CONFIG): "should_exit shutdown startup",
}
"""By an instance: the attributes that are used or overridden, but for those that it sets later."""


@pytest.mark.parametrize("of", USED, ids=lambda of: type(of).__name__)
def test_what_is_used_of_uvicorn_is_there(of: object) -> None:
    missing = [name for name in USED[of].split() if not hasattr(of, name)]
    assert not missing, f"adapt uvicorn_server.py, or bound uvicorn {uvicorn.__version__}"
