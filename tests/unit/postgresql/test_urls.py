"""URLs of PostgreSQL: forms and options, and what is said about a bad one. Nothing is sent here."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import pq

import leasehold
from leasehold import InvalidRequest
from leasehold.stores.postgresql.target import OPTIONS, from_url
from tests.support.tables import each

SECRET = "hunter2"
USER = f"postgresql://app:{SECRET}@host"
CONNECTS = [leasehold.connect, leasehold.aio.connect]
PERCENT = "percent-encode the special characters of the user and the password"


def leaks(error: BaseException) -> bool:
    """Does anything that can be shown of an error hold the password?"""
    chain = [error.__cause__, None if error.__suppress_context__ else error.__context__]
    shown = [str(error), repr(error), repr(error.__dict__), *traceback.format_exception(error)]
    return SECRET in "".join([*shown, repr(pickle.dumps(error)), *map(repr, chain)])


@pytest.mark.parametrize("connect", CONNECTS)
@each(
    "url",
    [
        "postgresql://",
        "postgresql:///app",
        "postgres://host/app",
        "postgresql+psycopg://app@host/app",
        "postgresql://app:p%40ss%2Fword@host:5433/app",
        "postgresql://[::1]:5432/app",
        "postgresql://one,two:5433,three:5434/app?target_session_attrs=read-write",
        "postgresql://one:5433,two/app",
        "postgresql:///app?host=/var/run/postgresql",
        "postgresql://host/app?sslmode=verify-full&sslrootcert=ca.pem&connect_timeout=3&application_name=a%40b",
        "postgresql://host/app?ssl=true",
        "postgresql://host/app?options=-csearch_path%3Dops",
        "postgresql://host/app?schema=ops&table=leases&create=no&unlogged=no&max_connections=3",
        "postgresql://host:6432/app?listen=no",
        "postgresql://host:6432/app?listen=postgresql%3A%2F%2Fapp%3Asecret%40host%2Fapp",
        "postgresql://host/app?client_encoding=utf-8",
    ],
)
def test_what_works(connect: Callable[[str], Any], url: str) -> None:
    """It makes a coordinator, and connects to nothing."""
    assert connect(url).guarantees.store == "postgresql"


BAD = {
    # the scheme
    "postgresql:/host/app": "that is no URL",
    "postgresql+asyncpg://host/app": "unknown scheme: write",
    "postgresql+psycopg2://host/app": "unknown scheme",
    "pgsql://host/app": "unknown scheme",
    # the place
    f"{USER}:54x/app": "a port is a number from 1 to 65535",
    f"{USER}:0/app": "a port is a number",
    f"{USER}:65536/app": "a port is a number",
    f"postgresql://app:{SECRET}@a:1,b:2,c/app?port=1,2": "2 ports for 3 hosts",
    f"postgresql://app:{SECRET}@[::1/app": "that is no URL of PostgreSQL",
    f"postgresql://app:{SECRET}%zz@host/app": "that is no URL of PostgreSQL (invalid percent-encoded token)",
    "postgresql://host/app%00": "that is no URL of PostgreSQL",
    "postgresql://host/app\0": "the URL has a NUL character",
    "postgresql://host\ud800/app": "cannot be sent as UTF-8",
    # a password that is not percent-encoded
    f"postgresql://app:a/{SECRET}@host/app": PERCENT,
    f"postgresql://app:1/{SECRET}@host/app": PERCENT,
    f"postgresql://app:a@{SECRET}@host/app": PERCENT,
    f"postgresql://app:a?{SECRET}@host/app": PERCENT,
    f"postgresql://app:a?{SECRET}=b@host/app": PERCENT,
    f"postgresql://app:a/{SECRET}/app": "a port is a number",
    # options
    f"{USER}/app?max_conections=3": "has no option 'max_conections': did you mean max_connections?",
    f"{USER}/app?ssl_mode=require": "did you mean sslmode?",
    f"{USER}/app?prepare_threshold=5": "has no option 'prepare_threshold'",
    f"{USER}/app?replication=database": "has no option 'replication'",
    f"{USER}/app?sslmode=on": "sslmode= is one of disable, allow",
    f"{USER}/app?target_session_attrs=standby": "target_session_attrs= is one of read-write, primary, any",
    f"{USER}/app?connect_timeout=soon": "connect_timeout= is a number, not 'soon'",
    f"{USER}/app?client_encoding=LATIN1": "client_encoding= is UTF8",
    f"{USER}/app?table=a&table=b": "the option 'table' twice",
    f"{USER}/app?sslmode=require&sslmode=disable": "the option 'sslmode' twice",
    f"{USER}/app?table=": "table must be a plain name",
    f"{USER}/app?table=a b": "table must be a plain name",
    f'{USER}/app?table=a";drop': "table must be a plain name",
    f"{USER}/app?table=a.b.c": "table must be a plain name",
    f"{USER}/app?schema=a&table=b.c": "table must be a plain name",
    f"{USER}/app?schema=&table=b": "table must be a plain name",
    f"{USER}/app?table={'x' * 64}": "at most 63",
    f"{USER}/app?create=maybe": "create= is yes or no, not 'maybe'",
    f"{USER}/app?unlogged=1": "unlogged= is yes or no",
    f"{USER}/app?max_connections=0": "max_connections= is a number from 1 to 1000",
    f"{USER}/app?max_connections=\u0663": "max_connections= is a number from 1 to 1000",
    f"{USER}/app?listen=yes": "listen= is a URL",
    f"{USER}/app?listen=redis://host": "listen= is a URL",
    f"{USER}/app?listen=postgresql://app:{SECRET}@host:x/app": "a port is a number",
    f"{USER}/app?listen=postgresql://host/app?sslmode=on": "sslmode= is one of",
}


@pytest.mark.parametrize("connect", CONNECTS)
@each("url, message", BAD.items())
def test_one_sentence_and_no_password(connect: Callable[[str], Any], url: str, message: str) -> None:
    """InvalidRequest says what is wrong, in one line, and shows no part of a password."""
    with pytest.raises(InvalidRequest) as refused:
        connect(url)
    text = str(refused.value)
    assert message in text
    assert "\n" not in text and len(text) < 300 and not leaks(refused.value)


def test_every_option_of_libpq_is_known() -> None:
    """Whatever this libpq takes is passed on, and ours are not among its."""
    known = {one.keyword.decode() for one in pq.Conninfo.get_defaults()}
    assert {"host", "sslmode", "target_session_attrs", "passfile", "application_name"} <= known
    assert not known & set(OPTIONS)


def test_names_of_servers_have_no_password() -> None:
    """Messages name the host and the port."""
    assert SECRET not in repr(leasehold.connect(f"{USER}/app"))
    assert from_url(f"{USER}/app").table == "leasehold_leases"
    assert from_url("postgresql://host/app?schema=ops&table=t").table == "ops.t"


MISSING = """
import sys
sys.modules[{module!r}] = None
import leasehold
try:
    leasehold.connect("postgresql://host/app")
except leasehold.Unsupported as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["psycopg", "psycopg.pq.pq_ctypes"])
def test_psycopg_is_missing(module: str) -> None:
    """The error says what to type: also where psycopg is there, and finds no libpq."""
    program = MISSING.format(module=module)
    environment = {"PYTHONPATH": ":".join(sys.path), "PSYCOPG_IMPL": "python"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'leasehold[postgresql]'" in done.stdout, done.stderr
