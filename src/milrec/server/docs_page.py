"""The page at /docs: every route of the OpenAPI schema, what it takes and what it answers, and a form to send it.

The page is plain HTML, the same for every server. Its script, docs_page.js, puts in the address that the page came from
and ids of the models that are served, and sends requests; without it, the examples remain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

_METHODS = ("get", "post")
_ADDRESS = "http://HOST:PORT"  # the script puts the page's own in its place


def reference_page(schema: Mapping[str, Any]) -> str:
    """The API reference as HTML, made from the schema alone."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    routes = [
        _route(schema, path, method, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        if method in _METHODS
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for route in routes:
        groups.setdefault(route["group"], []).append(route)
    forms = {name: _fields(schema, form) for name, form in schema["components"]["schemas"].items()}
    about = {name: form.get("description", "") for name, form in schema["components"]["schemas"].items()}
    page = environment.from_string(files("milrec.server").joinpath("docs_page.html.j2").read_text(encoding="utf-8"))
    return page.render(address=_ADDRESS, info=schema["info"], groups=groups, forms=forms, about=about)


def _route(schema: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    example = _example(schema, body) if body else None
    return {
        "group": operation.get("tags", ["other"])[0],
        "path": path,
        "method": method.upper(),
        "id": operation["operationId"],
        "about": operation.get("description", ""),
        "parameters": [_parameter(one) for one in operation.get("parameters", [])],
        "body": _kind(body) if body else None,
        "example": None if example is None else json.dumps(example, indent=2, ensure_ascii=False),
        "answers": [_answer(status, one) for status, one in sorted(operation["responses"].items())],
        "curl": _curl(path, method, example),
    }


def _parameter(one: Mapping[str, Any]) -> dict[str, Any]:
    form = one["schema"]
    return {
        "name": one["name"],
        "place": one["in"],
        "kind": _kind(form),
        "default": json.dumps(form["default"]) if "default" in form else None,
        "value": str(form.get("default", "")),
        "needed": one.get("required", False),
        "about": one.get("description", form.get("description", "")),
    }


def _answer(status: str, one: Mapping[str, Any]) -> dict[str, Any]:
    content = one.get("content", {}).get("application/json", {}).get("schema")
    about = str(one["description"]).replace("Successful Response", "The answer")
    return {"status": status, "about": about, "kind": _kind(content) if content else None}


def _fields(schema: Mapping[str, Any], form: Mapping[str, Any]) -> list[dict[str, Any]]:
    needed = form.get("required", [])
    return [
        {
            "name": name,
            "kind": _kind(one),
            "needed": name in needed,
            "default": json.dumps(one["default"]) if "default" in one else None,
            "about": one.get("description", ""),
        }
        for name, one in form.get("properties", {}).items()
    ]


def _kind(form: Mapping[str, Any]) -> str:
    """What a schema allows, in a word or two."""
    if "$ref" in form:
        return str(form["$ref"]).rpartition("/")[2]
    if "anyOf" in form:
        return " or ".join(dict.fromkeys(_kind(one) for one in form["anyOf"]))
    if "enum" in form:
        return " or ".join(json.dumps(one) for one in form["enum"])
    if form.get("type") == "array":
        return f"list of {_kind(form.get('items', {}))}"
    return {"integer": "whole number", "string": "text", "object": "object", "null": "null"}.get(
        str(form.get("type")), str(form.get("type", "anything"))
    )


def _example(schema: Mapping[str, Any], body: Mapping[str, Any]) -> Any:
    form = schema["components"]["schemas"][_kind(body)]
    if "examples" in form:
        return form["examples"][0]
    return {name: [_example(schema, one["items"])] for name, one in form["properties"].items() if "items" in one}


def _curl(path: str, method: str, example: Any) -> str:
    if method == "get":
        return f"curl {_ADDRESS}{path}"
    if example is None:
        return f"curl -X POST {_ADDRESS}{path}"
    return (
        f"curl {_ADDRESS}{path} \\\n  -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(example, ensure_ascii=False)}'"
    )
