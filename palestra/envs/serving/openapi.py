"""The routes of wire v1, and the OpenAPI document generated from them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, NamedTuple

import msgspec

from palestra.core.types import Step, Task
from palestra.envs.serving import wire
from palestra.envs.serving.wire import STATUS


class Route(NamedTuple):
    method: str
    path: str
    name: str
    summary: str
    result: Any
    call: Any = None
    query: tuple[str, ...] = ()


def _of_session(kind: Any, name: str, result: Any, summary: str) -> Route:
    return Route("POST", "/v1/sessions/{session}/" + name, name, summary, result, call=kind)


ROUTES = (
    Route("GET", "/v1/envs", "envs", "The environments, and the seats that are free", wire.EnvList),
    Route("GET", "/v1/envs/{env}", "env", "All about an environment", wire.EnvAbout),
    Route(
        "GET",
        "/v1/envs/{env}/tasks",
        "tasks",
        "The tasks of a split, in pages",
        wire.TaskPage,
        query=("split", "offset", "limit"),
    ),
    Route(
        "GET",
        "/v1/envs/{env}/task",
        "task",
        "The task with an id, whatever its split",
        Task,
        query=("id",),
    ),
    Route("POST", "/v1/sessions", "open", "Open a session", wire.Opened, call=wire.Open),
    _of_session(wire.Reset, "reset", wire.Observed, "Begin a task"),
    _of_session(wire.Act, "step", Step, "Act"),
    _of_session(wire.Actions, "actions", wire.ActionList, "The actions that are valid now"),
    _of_session(wire.Expert, "expert", wire.ExpertAction, "What an oracle would do now"),
    _of_session(wire.Observe, "observe", wire.Observed, "The last observation again"),
    _of_session(wire.Renew, "renew", wire.Lease, "Keep the session"),
    Route(
        "DELETE", "/v1/sessions/{session}", "close", "Close the session", wire.Done, call=wire.Close
    ),
    Route(
        "POST",
        "/v1/batch",
        "batch",
        "Many calls at once; the answers come in their order",
        list[wire.Answer],
    ),
    Route(
        "GET",
        "/v1/stream",
        "stream",
        "A WebSocket: binary frames, each an array of calls or of answers in MessagePack",
        None,
    ),
    Route("GET", "/health", "health", "Whether new sessions are taken", wire.Health),
    Route("GET", "/metrics", "metrics", "Numbers for Prometheus", None),
    Route("GET", "/openapi.json", "openapi", "This document", None),
)

IN_PATH = ("call", "id", "session")
"""Fields of a call that are not part of an HTTP body."""


@cache
def openapi() -> dict[str, Any]:
    kinds = [
        *(route.result for route in ROUTES if route.result is not None),
        *(r.call for r in ROUTES if r.call),
        wire.AnyCall,
        wire.Error,
    ]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    schema_of = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    components = components | {
        "ErrorBody": {
            "type": "object",
            "properties": {"error": schema_of[str(wire.Error)]},
            "required": ["error"],
        }
    }
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, schema_of, components
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palestra environment server", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(
    route: Route, schema_of: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    in_path = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in in_path
    ]
    for name in route.query:
        is_text = name in ("split", "id")
        schema = {"type": "string" if is_text else "integer"}
        parameters.append({"name": name, "in": "query", "required": is_text, "schema": schema})
    good: dict[str, Any] = {"description": route.summary}
    if route.result is not None:
        good["content"] = {"application/json": {"schema": schema_of[str(route.result)]}}
    refusals = {
        "description": f"Refused: {', '.join(STATUS)}",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
    }
    operation = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {"101" if route.name == "stream" else "200": good, "default": refusals},
    }
    body = _body(route, schema_of, components)
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return operation


def _body(
    route: Route, schema_of: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any] | None:
    """The schema of the body: the call's fields that are not in the path."""
    if route.name == "batch":
        return {
            "type": "array",
            "items": schema_of[str(wire.AnyCall)],
            "maxItems": wire.BATCH_CALLS,
        }
    if route.call is None:
        return None
    schema = copy.deepcopy(components[schema_of[str(route.call)]["$ref"].rsplit("/", 1)[1]])
    schema.pop("title", None)
    schema["properties"] = {
        name: value for name, value in schema["properties"].items() if name not in IN_PATH
    }
    schema["required"] = [name for name in schema["required"] if name not in IN_PATH]
    return schema if schema["properties"] else None
