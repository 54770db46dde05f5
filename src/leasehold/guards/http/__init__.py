"""A guard in front of an HTTP service: a request whose fencing token is stale or missing is refused.

``FencingMiddleware`` is for ASGI, ``WSGIFencingMiddleware`` for WSGI; both work with any guard. A client sends
``lease.headers()``, and passes the response to ``check_response``. ``fencing(request)`` is what a request presented:
guards take it in place of a lease, inside the transaction of a handler.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold._core.headers import Fencing
from leasehold.errors import InvalidRequest
from leasehold.guards.http.admission import KEY
from leasehold.guards.http.asgi import FencingMiddleware
from leasehold.guards.http.problems import Problem, check_response, problem
from leasehold.guards.http.wsgi import WSGIFencingMiddleware

__all__ = [
    "Fencing",
    "FencingMiddleware",
    "Problem",
    "WSGIFencingMiddleware",
    "check_response",
    "fencing",
    "problem",
]


def fencing(request: object) -> Fencing:
    """What a request presented and the middleware accepted; takes a scope, an environ, or a framework's request.

    Raises InvalidRequest if there is none: the route is not guarded, or the method needs no token."""
    for place in (request, getattr(request, "scope", None), getattr(request, "environ", None)):
        found = place.get(KEY) if isinstance(place, Mapping) else None
        if isinstance(found, Fencing):
            return found
    raise InvalidRequest(
        "this request has presented no fence: put FencingMiddleware around the application, and take the path and the "
        "method of this request into resource= and methods="
    )
