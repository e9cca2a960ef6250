"""A stand-in for Ray in one process, as a cluster takes long to start."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class TaskError(Exception):
    """Stands for ``ray.exceptions.RayTaskError``."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class LostError(Exception):
    """Stands for ``ray.exceptions.RayError``."""


class StandIn(ModuleType):
    """What ``map_on_ray`` uses of Ray; a task is done when its result is asked for."""

    def __init__(self, cpus: float = 2, gpus: float = 0) -> None:
        super().__init__("ray")
        self.resources = {"CPU": cpus, "GPU": gpus}
        self.running = False
        self.settings: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}
        self.most_waiting = self.waiting = 0
        self.cancelled = 0

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **settings: Any) -> None:
        if settings.get("address") == "nowhere:1":
            raise ConnectionError("no\ncluster")
        self.settings, self.running = settings, True

    def shutdown(self) -> None:
        self.running = False

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def remote(self, **asked: Any) -> Callable[[Callable[..., Any]], Any]:
        self.asked = asked

        def wrap(function: Callable[..., Any]) -> Any:
            remote = ModuleType("remote")

            def send(*arguments: Any) -> Callable[[], Any]:
                self.waiting += 1
                self.most_waiting = max(self.waiting, self.most_waiting)
                return lambda: function(*arguments)

            remote.remote = send  # type: ignore[attr-defined]
            return remote

        return wrap

    def get(self, reference: Callable[[], Any]) -> Any:
        self.waiting -= 1
        try:
            return reference()
        except LostError:
            raise
        except Exception as error:
            raise TaskError(error) from None

    def cancel(self, _: object, force: bool) -> None:
        self.cancelled += force
