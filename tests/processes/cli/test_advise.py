"""``leasehold advise``: cases, answers in a file, and somebody who is asked on a terminal."""

from __future__ import annotations

import json
import os
import pty
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from leasehold.advice import CASES, advise
from leasehold.advice.questions import QUESTIONS
from leasehold.cli.advise import TRIES
from tests.processes.cli.test_completion import offered
from tests.support.cli.desk import SOON, Desk
from tests.support.cli.dialogue import Dialogue, at_terminal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", CASES)
def test_cases(desk: Desk, name: str) -> None:
    """Each prints what the library says, plain in a pipe, and nothing on standard error."""
    done = desk.run("advise", "--case", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{advise(CASES[name])}\n", "")


def test_a_case_that_is_none(desk: Desk) -> None:
    """2, and those that there are."""
    done = desk.run("advise", "--case", "world-peace")
    assert (done.returncode, done.stdout) == (2, "")
    assert "world-peace" in done.stderr and all(name in done.stderr for name in CASES)


def test_the_help_and_the_shell_know_the_cases(desk: Desk) -> None:
    """Every case is named in the help and offered by completion."""
    shown = desk.run("advise", "--help").stdout
    assert all(name in shown for name in CASES)
    assert offered(desk, "leasehold advise --case ") == set(CASES)
    assert offered(desk, "leasehold advise --case re") == {"report-export"}


def test_a_case_with_two_names(desk: Desk) -> None:
    """Both lead to the same verdict."""
    verdicts = [desk.run("advise", "--case", one) for one in ("monthly-invoices", "monthly-invoice-generation")]
    assert verdicts[0].returncode == verdicts[1].returncode == 0
    assert verdicts[0].stdout == verdicts[1].stdout != ""


def test_json_can_be_fed_back(desk: Desk) -> None:
    """The document has the verdict and the answers, which are answers again; ``--json`` stands on either side."""
    first = json.loads(desk.run("advise", "--case", "monthly-invoices", "--json").stdout)
    assert first["transaction"] == "yes, unique (customer, period)"
    assert set(first) == {
        "need", "situation", "tool", "lease", "fencing", "transaction", "duplicates", "store", "reach", "reasons",
        "warnings",
    }  # fmt: skip
    desk.path("answers.json").write_text(json.dumps(first["need"]))
    assert json.loads(desk.run("--json", "advise", "--answers", "answers.json").stdout) == first
    assert json.loads(desk.run("--json", "advise", "--answers", "-", stdin=json.dumps(first["need"])).stdout) == first


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "this is no JSON"),
        ('{"protects": ', "this is no JSON"),
        ("[]", "answers are a JSON object"),
        ('"efficiency"', "answers are a JSON object"),
        ("{}", "protects must be answered"),
        ('{"protects": "efficiency", "dupes": 1}', "no answer called 'dupes'"),
        ('{"protects": "efficiency", "audit": "yes"}', "audit must be one of True, False or None (in JSON: true"),
        ('{"protects": "efficiency", "protects": "correctness"}', "given twice"),
        ('{"protects": "efficiency", "duplicates": "wrong"}', "(protects: efficiency; duplicates: wrong)"),
        ('{"protects": "efficiency", "duration": -3}', "duration must not be negative"),
        ('{"protects": "efficiency", "duration": NaN}', "duration must be a finite number"),
        ('{"protects": "efficiency", "duration": 1' + "0" * 5000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "nested too deep"),
        ("\x1b]0;gotcha\x07", "this is no JSON"),
    ],
    ids=lambda part: part[:30],
)
def test_answers_that_are_none(desk: Desk, text: str, why: str) -> None:
    """2, with the name of the file and what is wrong, and never a traceback."""
    desk.path("answers.json").write_text(text)
    done = desk.run("advise", "--answers", "answers.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("leasehold: answers.json: ") and why in done.stderr
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr


@pytest.mark.parametrize("text", ["{}", "\x1b]0;gotcha\x07"], ids=["nothing", "control characters"])
def test_answers_that_are_none_as_json(desk: Desk, text: str) -> None:
    """2, and what is wrong is one event."""
    desk.path("answers.json").write_text(text)
    done = desk.run("--json", "advise", "--answers", "answers.json")
    assert (done.returncode, json.loads(done.stderr)["event"]) == (2, "failed")


def test_files_that_cannot_be_read(desk: Desk) -> None:
    """2, and why: no such file, a folder, no text."""
    desk.path("binary").write_bytes(b"\xff\xfe\x00")
    for name, why in (("nowhere.json", "No such file"), (".", "Is a directory"), ("binary", "no text in UTF-8")):
        done = desk.run("advise", "--answers", name)
        assert (done.returncode, done.stderr.startswith("leasehold: ")) == (2, True)
        assert why in done.stderr


def test_nobody_to_ask(desk: Desk) -> None:
    """Without a terminal and without answers it says what to do: 2. Two sources at once are one too many."""
    done = desk.run("advise")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--case" in done.stderr and "--answers FILE" in done.stderr
    assert desk.run("advise", "--case", "cache-rebuild", "--answers", "-").returncode == 2


# ---------------------------------------------------------------- on a terminal


def asked(desk: Desk, *arguments: str) -> AbstractContextManager[Dialogue]:
    """``leasehold advise`` at a terminal."""
    return at_terminal(desk, *arguments, "advise")


def test_somebody_answers(desk: Desk) -> None:
    """Each question in its order, by number, by name, by how that begins; Enter is not known."""
    typed = ["correctness", "8", "w", "yes", "n", "YES", "", "", "no", "10s", "", "1", "", "no", "h", "yes", ""]
    assert len(typed) == len(QUESTIONS)
    with asked(desk) as dialogue:
        for answer in typed:
            dialogue.type(f"{answer}\n")
        code, out = dialogue.ended()
    assert (code, out.splitlines()[0]) == (0, "Use hold.once: an idempotency key, with the result stored beside it.")
    assert "an audit trail is required is not known" in out


def test_wrong_answers_are_asked_again(desk: Desk) -> None:
    """What is none, and what contradicts an earlier answer, is told and asked again; JSON is alone in its pipe."""
    with asked(desk, "--json") as dialogue:
        dialogue.type("\n")
        dialogue.type("everything\n", after="without this answer there is no verdict")
        dialogue.type("2\n", after="type one of efficiency, correctness, or its number")
        dialogue.type("c\n", after="What is the work?")
        dialogue.type("general\n", after="type one of cache,")  # c is cache or command
        dialogue.type("harmless\n", after="What is a duplicate?")
        dialogue.type("wrong\n", after="(protects: correctness; duplicates: harmless)")
        dialogue.type("maybe\n", after="idempotent")
        dialogue.type("\n", after="type yes or no")
        for _ in range(4):
            dialogue.type("\n")
        dialogue.type("\n", after="survive")
        dialogue.type("soon\n", after="How long")
        dialogue.type("90\n", after="is not a duration")
        dialogue.type("\n", after="split")
        dialogue.type("many\n", after="How many")
        dialogue.type("2\n", after="type a number such as 3")
        for _ in range(5):
            dialogue.type("\n")
        code, out = dialogue.ended()
    need = {"protects": "correctness", "work": "general", "duplicates": "wrong", "duration": 90.0, "limit": 2}
    assert (code, json.loads(out)["need"]) == (0, need)


def test_it_gives_up(desk: Desk) -> None:
    """Nobody is asked the same for ever: 2."""
    with asked(desk) as dialogue:
        for _ in range(TRIES):
            dialogue.type("nonsense\n")
        assert dialogue.ended() == (2, "")
        assert "could not be used: no verdict" in dialogue.shown


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x04", 2)], ids=["Ctrl-C", "Ctrl-D"])
def test_somebody_ends_it(desk: Desk, key: str, code: int) -> None:
    """No verdict, no traceback, and the usual exit code."""
    with asked(desk) as dialogue:
        dialogue.type("efficiency\n")
        dialogue.type(key)
        assert dialogue.ended() == (code, "")
        assert "no verdict" in dialogue.shown and "Traceback" not in dialogue.shown


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_and_width_are_for_terminals(desk: Desk, environment: dict[str, str], coloured: bool) -> None:
    """On a terminal the lease is coloured, unless somebody asks for none, and sentences are as wide as it is."""
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "60", **environment}
    assert desk.start("advise", "--case", "payment-capture", stdout=theirs, env=env).wait(SOON) == 0
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert ("\x1b[33monly to save work" in shown) is coloured
    why = shown.replace("\r", "").partition("Why")[2].splitlines()
    assert len(why) > 8 and all(len(line) <= 60 for line in why if "\x1b" not in line)


def test_the_example_file(desk: Desk) -> None:
    """The answers that are shipped as an example lead somewhere."""
    example = Path(__file__).parents[3] / "examples" / "advise_answers.json"
    done = desk.run("advise", "--answers", str(example))
    assert (done.returncode, done.stderr) == (0, "")
