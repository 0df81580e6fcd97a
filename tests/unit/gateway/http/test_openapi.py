"""The OpenAPI document says what the table of routes says, and is one."""

import re

from openapi_spec_validator import OpenAPIV31SpecValidator

from services.gateway.http.openapi import document
from services.gateway.table import ROUTES

DOCUMENT = document(ROUTES, "1.2.3")


def test_it_is_valid() -> None:
    assert not list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors())


def test_it_has_every_route_and_no_other() -> None:
    served = {(route.method.lower(), re.sub(r":[^{}]*}", "}", path)) for route in ROUTES for path in route.paths}
    assert served == {(method, path) for path, item in DOCUMENT["paths"].items() for method in item}


def test_every_operation_has_its_own_id() -> None:
    ids = [operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def test_streams_errors_and_keys_are_told() -> None:
    chat = DOCUMENT["paths"]["/v1/chat/completions"]["post"]
    assert set(chat["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert {"400", "401", "404", "413", "429", "503"} <= set(chat["responses"])
    assert "application/x-ndjson" in DOCUMENT["paths"]["/api/chat"]["post"]["responses"]["200"]["content"]
    shapes = {
        path: DOCUMENT["paths"][path]["post"]["responses"]["400"]["content"]["application/json"]["schema"]["$ref"]
        for path in ("/v1/chat/completions", "/api/chat")
    }
    assert shapes["/v1/chat/completions"] != shapes["/api/chat"]
    assert DOCUMENT["paths"]["/health"]["get"]["security"] == []
    assert {"bearer": []} in DOCUMENT["security"]


def test_a_parameter_of_a_path_is_required() -> None:
    [parameter] = DOCUMENT["paths"]["/v1/models/{id}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("id", "path", True)


def test_schemas_have_plain_names() -> None:
    """Two models of one name would get names with the paths of our modules in them."""
    schemas = DOCUMENT["components"]["schemas"]
    assert "ChatRequest" in schemas
    assert not [name for name in schemas if "__" in name]
