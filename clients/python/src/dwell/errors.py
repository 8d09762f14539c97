"""The errors that calls of a client raise."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .answers import PushResult


class DwellError(Exception):
    """The broker refused a request. `type` is stable, such as ``not-found``; `problem` is the whole answer.

    `repeated`: an earlier try had no answer and may have succeeded. Then a ``conflict`` or ``precondition-failed`` may be its doing.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float = 0.0, text: str | None = None) -> None:
        self.status = status
        self.problem = problem
        self.type: str = str(problem.get("type", "")).removeprefix("urn:dwell:error:")
        self.detail: str = str(problem.get("detail", ""))
        self.request_id: str = str(problem.get("request_id", ""))
        self.retry_after = retry_after
        self.repeated = False
        self._text = text
        super().__init__(text or (f"{status} {self.type}: {self.detail}" if status else self.detail))

    def __reduce__(self) -> tuple[Any, ...]:
        # An error that travels between processes keeps its fields.
        return type(self), (self.status, self.problem, self.retry_after, self._text), {"repeated": self.repeated}


class Unavailable(DwellError):
    """No answer, or none that is final, within `retry_for`. The text names the server and the cause, which is also ``__cause__``.

    A push may be stored: push again with the same id and key.
    """


class PushManyError(DwellError):
    """Some messages of a `push_many` were not accepted. `results` has one result for each message, in order."""

    def __init__(self, status: int, problem: Mapping[str, Any], results: Sequence[PushResult]) -> None:
        super().__init__(status, problem)
        self.results = list(results)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.problem, self.results), {"repeated": self.repeated}
