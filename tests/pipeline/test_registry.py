"""Lookups in a schema registry and the errors of failing ones: Apicurio, with its schemas in a topic of our broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.registry import by_id, client
from odradek.pipeline.registry.settings import Registry, split, url

from ..clients.admin import unique
from ..harness.process import free_port
from ..harness.registry import Door, SchemaRegistry

pytestmark = [pytest.mark.needs("schema-registry"), pytest.mark.timeout(600)]

USER = "ann:pass Word1"
QUICK = (("max.retries", "0"), ("timeout", "5"))


def order(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long"} for name in names]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


@pytest.mark.live
def test_schemas_are_found_by_subject_and_by_id(registry: SchemaRegistry) -> None:
    """The latest version of a subject is read each time; any version is found by its id."""
    topic, asked = unique("orders"), Registry(registry.url)
    assert client.latest(asked, topic) is None
    first = registry.register(topic, order("id"))
    assert json.loads(client.latest(asked, topic) or "") == order("id")
    second = registry.register(topic, order("id", "at"))
    assert json.loads(client.latest(asked, topic) or "") == order("id", "at")
    schemas = by_id.ById(asked)
    assert [json.loads(schemas(each) or "") for each in (first, second)] == [order("id"), order("id", "at")]
    assert [schemas(each) for each in (-1, 0, 2**31 - 1)] == [None] * 3


@pytest.mark.live
def test_each_schema_id_is_requested_once(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an unknown id, for some time; only the most recent ids are cached."""
    monkeypatch.setattr(by_id, "KEPT", 2)
    ids = [registry.register(unique("s"), order(f"a{at}")) for at in range(3)]
    with Door(registry) as door:
        schemas = by_id.ById(Registry(door.url))
        for number in (ids[0], ids[0], 99_999, 99_999, ids[1], ids[0], ids[2], ids[0], ids[1]):
            schemas(number)
        paths = [f"/schemas/ids/{number}" for number in (ids[0], 99_999, ids[1], ids[2], ids[1])]
        assert door.asked == paths
        monkeypatch.setattr(time, "monotonic", lambda: 1e12)
        schemas(99_999)
        assert door.asked == [*paths, "/schemas/ids/99999"]


@pytest.mark.live
def test_referenced_schemas_are_inlined(registry: SchemaRegistry) -> None:
    """The definition of another subject is put where its name occurs first."""
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "price", "type": "Money"}]}
    whole: dict[str, Any] = {"type": "record", "name": "Order", "namespace": "shop"}
    whole["fields"] = [{"name": "lines", "type": {"type": "array", "items": "Line"}}, {"name": "sum", "type": "Money"}]
    names = [unique("ref") for _ in range(3)]
    pairs = (("shop.Money", names[0]), ("shop.Line", names[1]))
    references = [{"name": name, "subject": subject, "version": 1} for name, subject in pairs]
    registry.register(names[0], money)
    registry.register(names[1], line, references=references[:1])
    number = registry.register(names[2], whole, references=references)
    found = json.loads(client.latest(Registry(registry.url), names[2]) or "")
    [lines, total] = found["fields"]
    assert lines["type"]["items"]["fields"][0]["type"]["fields"][0]["name"] == "cents"
    assert total["type"] == "shop.Money"
    assert json.loads(by_id.ById(Registry(registry.url))(number) or "") == found


@pytest.mark.live
def test_json_schema_of_a_registry_is_refused(registry: SchemaRegistry) -> None:
    topic = unique("json")
    number = registry.register(
        topic, '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}', schemaType="JSON"
    )
    with pytest.raises(OptionError, match=f"^the subject {topic} of {registry.url} is JSON, not AVRO$"):
        client.latest(Registry(registry.url), topic)
    assert by_id.ById(Registry(registry.url))(number) is None


@pytest.mark.live
def test_only_a_compatible_version_is_registered(registry: SchemaRegistry) -> None:
    """The subject's compatibility level is BACKWARD."""
    topic, asked = unique("orders"), Registry(registry.url)
    registry.register(topic, order("id"))
    registry.call("PUT", f"/config/{topic}", {"compatibility": "BACKWARD"})
    with pytest.raises(
        OptionError, match=f"^the subject {topic} of .* has a schema with which this schema is not compatible"
    ):
        client.register(asked, topic, json.dumps(order("id", "at")))
    wider = order("id", "at")
    wider["fields"][1]["default"] = 0
    number = client.register(asked, topic, json.dumps(wider))
    assert number == client.register(asked, topic, json.dumps(wider))
    assert json.loads(by_id.ById(asked)(number) or "") == wider


# -- failures


def said(registry: Registry) -> str:
    """The error of each kind of request, which must be the same."""
    found = set[str]()
    for ask in (
        lambda: client.latest(registry, "s"),
        lambda: by_id.ById(registry)(1),
        lambda: client.register(registry, "s", '"int"'),
    ):
        with pytest.raises(PipelineError) as caught:
            ask()
        found.add(str(caught.value))
    assert len(found) == 1
    assert "\n" not in min(found)
    assert "Word1" not in min(found)
    return min(found)


def test_unreachable_registry_is_an_error() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    assert said(Registry(address, QUICK)).startswith(f"the schema registry {address} does not respond: ")


@pytest.mark.live
def test_registry_with_authentication(registry: SchemaRegistry) -> None:
    with Door(registry, USER) as door:
        refused = f"the schema registry {door.url} returned 401: Unauthorized; see schema.registry.basic.auth.user.info"
        assert said(Registry(door.url)) == refused
        assert said(Registry(door.url, (("basic.auth.user.info", "ann:Word1"),))) == refused
        assert client.latest(Registry(door.url, (("basic.auth.user.info", USER),)), "none") is None


@pytest.mark.live
def test_404_of_another_server_is_an_error(registry: SchemaRegistry) -> None:
    """Such a 404 does not mean that the schema does not exist."""
    address = registry.url.removesuffix("/v7")
    assert said(Registry(address)).startswith(f"the schema registry {address} returned 404: ")


@pytest.mark.live
def test_registry_over_tls(registry: SchemaRegistry, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(both), "-out", str(tmp_path / "ca.pem")]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(both.read_text() + (tmp_path / "ca.pem").read_text())
    with Door(registry, None, both) as door:
        assert "certificate verify failed" in said(Registry(door.url, QUICK))
        _, trusting = split({"schema.registry.ssl.ca.location": str(tmp_path / "ca.pem")})
        assert client.latest(Registry(door.url, trusting), "none") is None


@pytest.mark.long
@pytest.mark.live
def test_schemas_survive_a_restart_of_the_registry(registry: SchemaRegistry) -> None:
    """The registry reads them from our topic again."""
    number = registry.register(unique("s"), order("kept"))
    registry.__exit__()
    registry.__enter__()
    assert json.loads(by_id.ById(Registry(registry.url))(number) or "") == order("kept")


# -- settings


def test_registry_settings_are_parsed() -> None:
    rest, found = split({"a": "b", "schema.registry.max.retries": "0", "schema.registry.basic.auth.user.info": USER})
    assert rest == {"a": "b"}
    asked = Registry(url("http://a:8081/, https://b"), found)
    assert asked.conf == {
        **{"url": "http://a:8081,https://b", "basic.auth.user.info": USER},
        **{"max.retries": 0, "timeout": 10, "retries.wait.ms": 500},
    }
    assert "Word1" not in repr(asked)
    javas = {"basic.auth.credentials.source": "USER_INFO", "ssl.truststore.type": "PEM"}
    javas["ssl.truststore.location"] = __file__
    assert split({f"kafka.schema.registry.{name}": value for name, value in javas.items()}, "kafka.") == (
        {},
        (("ssl.ca.location", __file__),),
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ssl.ca.locaton", "x", "unknown setting schema.registry.ssl.ca.locaton; did you mean schema.registry.ssl"),
        ("url", "x", "unknown setting schema.registry.url; the registry's URL belongs to the format"),
        ("ssl.ca.location", "/not/there", "schema.registry.ssl.ca.location: cannot read /not/there"),
        ("ssl.truststore.type", "JKS", "schema.registry.ssl.truststore.type must be PEM, not 'JKS'"),
        ("timeout", "x", "schema.registry.timeout must be a whole number"),
        ("basic.auth.user.info", "Word1", "schema.registry.basic.auth.user.info must be USER:PASSWORD$"),
    ],
)  # fmt: skip
def test_invalid_registry_settings_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        split({f"schema.registry.{name}": value})


@pytest.mark.parametrize("text", ["localhost:8081", "ftp://h", "http://", "http://h:x", "http://ann:Word1@h:1"])
def test_invalid_registry_urls_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"^the registry's URL") as caught:
        url(text)
    assert "Word1" not in str(caught.value)


def test_invalid_certificate_file_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^schema\.registry\.\*: "):
        client.latest(Registry("https://localhost:1", (("ssl.ca.location", __file__),)), "s")


def test_missing_packages_are_reported_with_the_extra_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the packages that the extra installs are hidden."""
    for name in [name for name in sys.modules if name.startswith("confluent_kafka.schema_registry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "authlib", None)
    for name in [name for name in sys.modules if name.startswith("authlib.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        OptionError, match=r"^a schema registry needs authlib.*: pip install 'odradek\[spark,registry\]'$"
    ):
        client.latest(Registry("http://localhost:1"), "s")
