"""Schemas of a registry: each is fetched once, by GET; whatever a registry sends or does not send costs little."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import config as configuration
from odradek.broker.config import InvalidConfig
from odradek.broker.exporter.console import schema_registry, schema_requests
from odradek.broker.exporter.console.errors import NotAvro
from odradek.broker.exporter.console.schema_registry import SchemaRegistry
from odradek.broker.exporter.console.schema_requests import REQUESTS, URL, USER_INFO, Page, Requests

from ....security.tls.conftest import certificates_in
from .registry_server import Answer, RegistryServer, endless, reply, silent, slow_head

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AT = "/v7/schemas/ids/7"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def failed(registry: SchemaRegistry, number: int = 7) -> tuple[str, list[str]]:
    """What is said of a value with that id, and of the page."""
    page = Page()
    with pytest.raises(NotAvro) as error:
        registry.find(number, page)
    assert "\n" not in f"{error.value}{''.join(page.notes)}"
    return str(error.value), page.notes


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    server.add(7, ORDER)
    registry = SchemaRegistry(Requests(server.url))
    assert registry.find(7, Page()).name == "Order" and registry.find(7, Page()).name == "Order"
    assert server.asked == [f"GET {AT}"]


def test_an_unknown_id_is_asked_for_again_later(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = SchemaRegistry(Requests(server.url))
    line = "no schema 7: the registry has no such schema, or not all that it names"
    assert failed(registry) == (line, []) == failed(registry)
    assert len(server.asked) == 1
    monkeypatch.setattr(schema_registry, "UNKNOWN_S", 0.0)
    assert failed(registry, 8)[0] == line.replace("7", "8") == failed(registry, 8)[0]
    assert len(server.asked) == 3


def test_schemas_that_it_names_are_loaded_first(server: RegistryServer) -> None:
    field = {"name": "order", "type": "Order"}
    named = {"name": "Order", "subject": "orders/a b", "version": 3}
    server.answers["/v7/subjects/orders%2Fa%20b/versions/3"] = reply({"schema": '"int"', "references": [named]})
    server.add(7, {"type": "record", "name": "Sale", "fields": [field]}, references=[named])
    assert failed(SchemaRegistry(Requests(server.url)))[0] == "no schema 7: it has no type 'Order'"
    server.add(8, ORDER)
    server.answers["/v7/subjects/orders%2Fa%20b/versions/3"] = server.answers["/v7/schemas/ids/8"]
    found = SchemaRegistry(Requests(server.url)).find(7, Page())
    assert found.fields[0][1].fields[0][0] == "id"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"schemaType": "PROTOBUF"}, "no schema 7: it is PROTOBUF, not AVRO"),
        ({"references": [{"subject": "a"}]}, "no schema 7: its references have no subject and version"),
        ({"references": 5}, "no schema 7: its references have no subject and version"),
        (
            {"references": [{"subject": "\ud800", "version": 1}]},
            "no schema 7: the registry has no such schema, or not all that it names",
        ),
        ({"schema": "{"}, "no schema 7: it is not JSON"),
    ],
)
def test_a_schema_that_is_not_avro_is_one_line(server: RegistryServer, more: dict[str, Any], line: str) -> None:
    server.answers[AT] = reply({"schema": '"int"', **more})
    assert failed(SchemaRegistry(Requests(server.url))) == (line, [])


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (silent, "has not answered in 5 s"),
        (slow_head, "has not answered in 5 s"),
        (reply(b"<html>"), "does not answer with JSON"),
        (reply(b"[" * 100_000), "does not answer with JSON"),
        (reply([]), "does not answer with a schema"),
        (reply({"schema": 5}), "does not answer with a schema"),
        (reply({}, 401), f"answers 401: set {USER_INFO} to USER:PASSWORD of a user that may read schemas"),
        (reply({}, 404), "gives no schema: the server at 127.0.0.1 answers 404"),
        (reply({}, 302, Location="http://127.0.0.1:1/"), "gives no schema: the server at 127.0.0.1 answers 302"),
    ],
)
def test_a_registry_that_fails_is_one_line(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, answer: Answer, line: str
) -> None:
    """It is not asked again for a while."""
    server.answers[AT] = answer
    if "5 s" in line:
        monkeypatch.setattr(schema_requests, "WHOLE_S", 0.5)
        line = line.replace("5 s", "0 s")
    registry = SchemaRegistry(Requests(server.url))
    whole = f"values are not shown as Avro: the schema registry of {URL} {line}"
    for number in (7, 8):
        why, notes = failed(registry, number)
        assert why == "its schema is not known"
        assert notes == [whole]
    assert server.asked == [f"GET {AT}"]


@pytest.mark.parametrize(
    ("answer", "line"),
    [(endless, "it has more than 262144 bytes"), (reply({}, 403), "the registry answers 403")],
)
def test_a_failure_of_one_schema_hides_no_other(server: RegistryServer, answer: Answer, line: str) -> None:
    server.answers[AT] = answer
    server.add(8, ORDER)
    registry, page = SchemaRegistry(Requests(server.url)), Page()
    with pytest.raises(NotAvro, match=f"no schema 7: {line}"):
        registry.find(7, page)
    assert registry.find(8, page).name == "Order"
    assert not page.notes


def test_a_request_that_does_not_end_is_the_only_one(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_requests, "WHOLE_S", 0.5)
    monkeypatch.setattr(schema_registry, "DOWN_S", 0.0)
    server.answers[AT] = slow_head
    registry = SchemaRegistry(Requests(server.url))
    failed(registry)
    assert "has not ended an earlier answer" in failed(registry)[1][0]
    assert len(server.asked) == 1


def test_a_page_asks_for_few_schemas(server: RegistryServer) -> None:
    registry, page = SchemaRegistry(Requests(server.url)), Page()
    for number in range(REQUESTS + 3):
        with pytest.raises(NotAvro):
            registry.find(number, page)
    assert len(server.asked) == REQUESTS and len(page.notes) == 1


def test_a_chain_of_references_ends(server: RegistryServer) -> None:
    for version in range(REQUESTS + 3):
        following = {"name": "x", "subject": "s", "version": version + 1}
        server.answers[f"/v7/subjects/s/versions/{version}"] = reply({"schema": '"int"', "references": [following]})
    server.answers[AT] = server.answers["/v7/subjects/s/versions/0"]
    registry = SchemaRegistry(Requests(server.url))
    for _ in range(2):  # the second time from memory: it must not use up what other schemas need
        assert failed(registry)[0] == f"no schema 7: it refers to {REQUESTS} other schemas or more"
        assert len(server.asked) <= REQUESTS


def test_only_the_last_schemas_are_kept(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "KEPT", 3 * 600)
    registry = SchemaRegistry(Requests(server.url))
    for number in (1, 2, 3, 3, 1):
        server.add(number, ["int"])
        registry.find(number, Page())
    assert [path[-1] for path in server.asked] == ["1", "2", "3", "1"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://registry.example:8081", "must begin with https://, or with http:// and a loopback address"),
        ("ftp://127.0.0.1", "must begin with https://"),
        ("https://ann:secret@registry.example", "must not contain a user"),
        ("127.0.0.1:8081", "must be the URL of a schema registry"),
        ("http://127.0.0.1:99999", "must be the URL of a schema registry"),
        ("https://registry.example/?key=1", "must be the URL of a schema registry"),
    ],
)
def test_an_address_that_does_not_fit_ends_the_start(url: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        configuration.resolve({"log.dirs": "data", "broker.id": "0", URL: url})


@pytest.mark.parametrize("url", ["", "http://localhost:8081/apis/ccompat/v7", "http://[::1]:1", "https://r.example"])
def test_an_address_of_this_machine_or_https_fits(url: str) -> None:
    assert configuration.resolve({"log.dirs": "data", "broker.id": "0", URL: url})[URL] == url


PREFIX = "odradek.console.schema.registry."


def registry_of(url: str, **settings: str) -> SchemaRegistry:
    """As the console makes it of its settings."""
    given = {PREFIX + name.replace("_", "."): value for name, value in settings.items()}
    return SchemaRegistry(schema_requests.of(configuration.resolve({"log.dirs": "data", URL: url, **given})))


def test_the_user_of_the_settings_is_sent(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past a proxy of the environment, which could read it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.add(7, ORDER)
    registry_of(server.url, basic_auth_user_info="zoë:pass:wörd").find(7, Page())
    assert server.logins == ["Basic " + base64.b64encode("zoë:pass:wörd".encode()).decode()]
    registry_of(server.url).find(7, Page())
    assert server.logins[1] is None


def test_a_refused_user_is_one_line_without_it(server: RegistryServer) -> None:
    server.answers[AT] = reply({"error_code": 401, "message": "Unauthorized"}, 401)
    _, notes = failed(registry_of(server.url, basic_auth_user_info="alice:geheim"))
    assert notes[0].endswith(f"answers 401: set {USER_INFO} to USER:PASSWORD of a user that may read schemas")
    assert "geheim" not in notes[0]


def test_a_redirect_does_not_get_the_user(server: RegistryServer) -> None:
    with RegistryServer() as other:
        server.answers[AT] = reply(b"", 302, Location=f"{other.url}/schemas/ids/7")
        failed(registry_of(server.url, basic_auth_user_info="alice:geheim"))
        assert other.asked == []


@pytest.mark.parametrize("value", ["alice", ":geheim", "alice:ge\nheim"])
def test_a_wrong_user_info_is_one_line_without_it(value: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        registry_of("http://127.0.0.1:1", basic_auth_user_info=value)
    assert USER_INFO in str(error.value) and "must be USER:PASSWORD" in str(error.value)
    assert "geheim" not in str(error.value) and "\n" not in str(error.value)


def test_the_certificates_of_the_setting_are_trusted(tmp_path: Path) -> None:
    server_pem, ca = certificates_in(tmp_path)
    trust = {"ssl_truststore_location": ca, "ssl_truststore_type": "PEM"}
    with RegistryServer(server_pem) as server:
        server.add(7, ORDER)
        assert "certificate" in failed(registry_of(server.url))[1][0]
        assert registry_of(server.url, **trust).find(7, Page()).name == "Order"
        _, notes = failed(registry_of(server.url, **{**trust, "ssl_truststore_location": "/no/such"}))
        assert f"{PREFIX}ssl.truststore.location: /no/such" in notes[0]
        _, notes = failed(registry_of(server.url, ssl_truststore_location=ca))
        assert f"{PREFIX}ssl.truststore.type" in notes[0]
