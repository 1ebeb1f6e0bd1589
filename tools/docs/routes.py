"""The reference of the HTTP API, made from the OpenAPI schema of the server."""

import asyncio
import json
from typing import Any
from unittest.mock import Mock

from tools.docs.markup import plain, table

_METHODS = ("get", "post")


def schema() -> dict[str, Any]:
    """What the server says about itself at /openapi.json."""
    from milrec.server.app import create_app
    from milrec.server.service import Server

    app = create_app(Server(Mock()))  # routes look at the models only when a list is asked for
    found = bytearray()

    async def ask() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            found.extend(message.get("body", b""))

        await app({"type": "http", "method": "GET", "path": "/openapi.json", "headers": [(b"host", b"localhost")],
                   "query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": "",
                   "raw_path": b"/openapi.json", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000)},
                  receive, send)  # fmt: skip

    asyncio.run(ask())
    parsed: dict[str, Any] = json.loads(found)
    return parsed


def reference() -> str:
    """Markdown: every address, what it takes and what it answers, and the form of each body."""
    whole = schema()
    groups: dict[str, list[str]] = {}
    for path, operations in whole["paths"].items():
        for method in _METHODS:
            if method in operations:
                operation = operations[method]
                groups.setdefault(operation.get("tags", ["other"])[0], []).append(_route(path, method, operation))
    parts = [whole["info"]["description"]]
    for name, routes in groups.items():
        parts += [f"## {name.capitalize()}", *routes]
    parts.append("## Bodies")
    parts += [_form(name, form) for name, form in whole["components"]["schemas"].items()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _route(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"### {method.upper()} `{path}`", plain(operation.get("description", ""))]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        parts.append(f"Takes: {kind(body)}.")
    if operation.get("parameters"):
        rows = [_parameter(one) for one in operation["parameters"]]
        parts.append(table(["parameter", "in", "kind", "default", ""], rows))
    rows = [_answer(status, one) for status, one in sorted(operation["responses"].items())]
    parts.append(table(["status", "answer", ""], rows))
    return "\n\n".join(part for part in parts if part)


def _parameter(one: dict[str, Any]) -> list[str]:
    form = one["schema"]
    default = f"`{json.dumps(form['default'])}`" if "default" in form else ""
    about = plain(one.get("description", form.get("description", "")))
    return [f"`{one['name']}`", one["in"], kind(form), default, about]


def _answer(status: str, one: dict[str, Any]) -> list[str]:
    form = one.get("content", {}).get("application/json", {}).get("schema")
    return [status, kind(form) if form else "", plain(one["description"].replace("Successful Response", ""))]


def _form(name: str, form: dict[str, Any]) -> str:
    parts = [f"### {name} {{#body-{name.lower()}}}", plain(" ".join(form.get("description", "").split()))]
    needed = form.get("required", [])
    rows = []
    for field, one in form.get("properties", {}).items():
        default = f"`{json.dumps(one['default'])}`" if "default" in one else "required" if field in needed else ""
        rows.append([f"`{field}`", kind(one), default, plain(one.get("description", ""))])
    parts.append(table(["field", "kind", "default", ""], rows))
    return "\n\n".join(part for part in parts if part)


def kind(form: dict[str, Any]) -> str:
    """What a schema allows, in a word or two; forms of their own are linked."""
    if "$ref" in form:
        name = form["$ref"].rpartition("/")[2]
        return f"[{name}](#body-{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in form:
            return " or ".join(kind(one) for one in form[several])
    if "enum" in form:
        return " or ".join(f"`{value}`" for value in form["enum"])
    if form.get("type") == "array":
        return f"array of {kind(form.get('items', {}))}"
    return str(form.get("type", "anything"))
