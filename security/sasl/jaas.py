"""The JAAS syntax of sasl.jaas.config: one login module, a flag, and options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_alice="secret";

Kafka reads it with Java's StreamTokenizer, whose rules are these: a word begins with a letter, `_`, `$` or a character
above U+009F and goes on with these, digits, `-` and `.`; a number is no word; a text in double or single quotes knows
the escapes of C and ends with its line at the latest; `/* */`, `//` and a lone `/` begin comments. Each error says what
is right, and never the value of an option: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from odradek.security.sasl.password import Password

FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
      (?P<skip>     [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /.?[^\r\n]* )
    | (?P<number>   -?(?:[0-9]+\.?[0-9]*|\.[0-9]*) )
    | (?P<word>     [A-Za-z_$\xa0-\U0010ffff][A-Za-z_$\xa0-\U0010ffff0-9.\-]* )
    | "(?P<double>  (?:\\.|[^"\\\r\n])* ) (?:"|\\?\Z|(?=[\r\n]))
    | '(?P<single>  (?:\\.|[^'\\\r\n])* ) (?:'|\\?\Z|(?=[\r\n]))
    | (?P<sign>     . )
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """The text is not what Kafka takes; the message says what is right."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry."""

    name: str
    flag: str
    options: dict[str, Password]

    def option(self, name: str) -> str | None:
        """The value of an option."""
        found = self.options.get(name)
        return None if found is None else found.value


_Token = tuple[str | None, str]
"""(text of a word or a quoted text, else None; the sign, "" if it is none)."""


def login_module(text: str) -> LoginModule:
    """The one login module in `text`."""
    modules = parse(text)
    if len(modules) != 1:
        raise JaasError(f"there must be one login module, not {len(modules)}")
    return modules[0]


def parse(text: str) -> list[LoginModule]:
    """All login modules in `text`, one at least."""
    tokens = _Tokens(text)
    modules = []
    while not tokens.ended:
        modules.append(_module(tokens))
    if not modules:
        raise JaasError("there must be a login module, such as ….plain.PlainLoginModule required;")
    return modules


def sections(text: str) -> dict[str, list[LoginModule]]:
    """The sections `NAME { … };` of a file of JAAS (java.security.auth.login.config)."""
    tokens = _Tokens(text)
    found: dict[str, list[LoginModule]] = {}
    while not tokens.ended:
        name = tokens.next()[0]
        if not name or tokens.next()[1] != "{":
            raise JaasError("a section must have the form NAME { MODULE FLAG OPTIONS; };")
        found[name] = []
        while tokens.peek() != "}":
            found[name].append(_module(tokens))
        if (tokens.next()[1], tokens.next()[1]) != ("}", ";"):
            raise JaasError(f"the section {name} must end with }};")
    return found


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.next()[0]
    if not name:
        raise JaasError("an entry must begin with the class of a login module")
    flag = (tokens.next()[0] or "").lower()
    if flag not in FLAGS:
        raise JaasError(f"{name} must be followed by one of {', '.join(FLAGS)}")
    options: dict[str, Password] = {}
    while (token := tokens.next())[1] != ";":
        options[token[0] or ""] = Password(_value(token[0], tokens))
    return LoginModule(name, flag, options)


def _value(key: str | None, tokens: _Tokens) -> str:
    sign, value = tokens.next()[1], tokens.next()[0]
    if sign != "=" or value is None:
        raise JaasError(f'the option {key or "?"} must have the form {key or "name"}="value", and ; must end the entry')
    return value


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._ahead = next(self._tokens, None)

    @property
    def ended(self) -> bool:
        return self._ahead is None

    def peek(self) -> str:
        """The next token, if it is a sign."""
        return "" if self._ahead is None else self._ahead[1]

    def next(self) -> _Token:
        if self._ahead is None:
            raise JaasError("the entry must end with ;")
        token, self._ahead = self._ahead, next(self._tokens, None)
        return token


def _tokenize(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup, match[match.lastgroup or 0]
        if kind in ("double", "single"):
            yield _ESCAPE.sub(_unescape, found), ""
        elif kind == "word":
            yield found, ""
        elif kind != "skip":
            yield None, found


def _unescape(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found, 8)) if found[0] in "01234567" else _ESCAPED.get(found, found)
