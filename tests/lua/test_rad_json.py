from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lua.lua_programs import VERSIONS, LuaProgram

VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
BYTES = st.integers(1, 255).filter(lambda byte: byte != ord("\n"))
"""Lua 5.1's io.lines() ends at a zero byte and the answer would never come; test_rad.py sends some by socket."""


@pytest.fixture(scope="module", params=VERSIONS)
def codec(request: pytest.FixtureRequest) -> Iterator[LuaProgram]:
    program = LuaProgram(request.param, "codec.lua")
    yield program
    program.close()


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 1


@given(value=VALUES, ascii_only=st.booleans())
def test_what_python_writes_comes_back(codec: LuaProgram, value: object, ascii_only: bool) -> None:
    answer = codec.ask(json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass"))
    if depth(value) > 8:
        assert answer.startswith(b"error")
    else:
        assert answer.startswith(b"value "), answer
        assert json.loads(answer[6:].decode(errors="surrogatepass")) == value


@given(st.lists(BYTES, max_size=200).map(bytes))
def test_any_bytes_are_an_answer(codec: LuaProgram, line: bytes) -> None:
    assert codec.ask(line).startswith((b"error ", b"value "))


@given(value=VALUES, at=st.integers(0, 400), byte=BYTES)
def test_damaged_json_is_an_answer(codec: LuaProgram, value: object, at: int, byte: int) -> None:
    text = bytearray(json.dumps(value).encode())
    text[at % len(text)] = byte
    assert codec.ask(bytes(text)).startswith((b"error ", b"value "))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":}',
        b'{"a" 1}',
        b"[1,]",
        b"[1 2]",
        b'"open',
        b'"bad \\x escape"',
        b'"\\ud800 alone"',
        b'"\\udc00"',
        b"tru",
        b"1 2",
        b"{1:2}",
        b"[" * 100_000,
        b'"tab\tinside"',
        b"nan",
    ],
)
def test_what_is_not_json_is_refused(codec: LuaProgram, text: bytes) -> None:
    assert codec.ask(text).startswith(b"error ")


def test_bytes_that_are_no_utf8_survive(codec: LuaProgram) -> None:
    assert codec.ask(b'"caf\xe9 \xff"') == b'value "caf\xe9 \xff"'
