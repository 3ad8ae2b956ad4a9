"""`headstay cache`: list, show, forget and import, on files that real caches made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from typer.testing import CliRunner

from headstay.cli import app
from headstay.semantic import Entry, Filter, SQLiteStore
from headstay.semantic.answer import Answer
from headstay.semantic.entry import new_id
from langchain_headstay import SemanticCache, cached

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"
HOURS = "When does your office open?"


def run(*words: object, answer: str | None = None) -> Any:
    return CliRunner().invoke(app, ["cache", *map(str, words)], input=answer, env={"COLUMNS": "80"})


def told(*words: object) -> Any:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words: object) -> str:
    """Return the one line on stderr of a command that found its input bad."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return str(line).removeprefix("headstay: ")


def entry(query: str, **more: Any) -> Entry:
    exact = f"{query}/{more.get('tenant')}/{more.get('user')}"
    made = {"answer": Answer(f"About: {query}", {}, "stop", False, False, 10, 4).to_json(), "vector": None}
    return Entry(id=new_id(), scope="5c", exact=exact, query=query, **{**made, "created": 1_700_000_000.0, **more})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A cache with five answers of two tenants."""
    path = tmp_path / "answers.db"
    with SQLiteStore(path) as store:
        store.put_many(
            [
                entry("one", tenant="birch", user="ada", tags=("faq", "old"), version="1"),
                entry("two", tenant="birch", user="bob", version="1"),
                entry("three", tenant="larkfield", user="ada", tags=("faq",)),
                entry("four", version="2", tags=("old",)),
                entry("five", expires=1_700_000_060.0),
            ]
        )
    return path


def questions(file: Path, *words: object) -> list[str]:
    return [one["query"] for one in told("list", file, *words)["entries"]]


def test_list_says_what_is_kept(file: Path) -> None:
    listed = told("list", file)
    assert [one["query"] for one in listed["entries"]] == ["one", "two", "three", "four", "five"]
    assert (listed["kept"], listed["cursor"]) == (5, None)
    first, *_, last = listed["entries"]
    assert (first["tenant"], first["user"], first["version"], first["tags"]) == ("birch", "ada", "1", ["faq", "old"])
    assert (first["answer"], first["expires"], first["expired"], first["hits"]) == ("About: one", None, False, 0)
    assert (last["expires"], last["expired"]) == (1_700_000_060.0, True)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--tenant", "birch"], ["one", "two"]),
        (["--user", "ada"], ["one", "three"]),
        (["--tenant", "birch", "--user", "ada"], ["one"]),
        (["--version", "1"], ["one", "two"]),
        (["--tag", "faq"], ["one", "three"]),
        (["--tag", "faq", "--tag", "old"], ["one", "three", "four"]),
        (["--tenant", "nobody"], []),
    ],
)
def test_list_filters(file: Path, words: list[str], found: list[str]) -> None:
    assert questions(file, *words) == found


def test_list_goes_page_by_page(file: Path) -> None:
    found, cursor = [], None
    for _ in range(3):
        page = told("list", file, "--limit", "2", *(["--cursor", cursor] if cursor else []))
        found.append([one["query"] for one in page["entries"]])
        cursor = page["cursor"]
    assert found == [["one", "two"], ["three", "four"], ["five"]]
    assert cursor is None


def test_list_for_people(file: Path) -> None:
    with SQLiteStore(file) as store:
        store.put(entry("a \x1b[2J [b]c", user="a user of a long name"))
    text = run("list", file, "--limit", "6").stdout
    assert text.splitlines()[0].split() == ["entry", "age", "left", "hits", "wrong", "tenant/user", "question"]
    assert max(map(len, text.splitlines())) <= 80
    assert "birch/ada" in text
    assert "expired" in text
    assert "a \\x1b[2J [b]c" in text
    assert "-/a user of a…" in text
    assert "\x1b" not in text
    assert "6 shown; 6 kept" in text
    assert "more: --cursor" in text
    assert "0 shown" in run("list", file, "--tenant", "nobody").stdout


def test_show_tells_all_of_one_answer(file: Path) -> None:
    name = told("list", file, "--user", "bob")["entries"][0]["entry"]
    with SQLiteStore(file) as store:
        store.feedback(name, wrong=True)
        store.touch(name, 1_700_000_600.0)
    shown = told("show", file, name)
    assert told("show", file, name[:8])["entry"] == name
    assert (shown["query"], shown["text"], shown["answer"]) == ("two", "two", "About: two")
    assert (shown["hits"], shown["used"], shown["confirmed"], shown["wrong"]) == (1, 1_700_000_600.0, 0, 1)
    assert (shown["tokens"], shown["finish"], shown["scope"], shown["by_meaning"]) == ([10, 4], "stop", "5c", False)
    text = run("show", file, name).stdout
    for part in (name, "About: two", "0 right, 1 wrong; not served any more", "2023-11-14 22:13:20+00:00", "never"):
        assert part in text


def test_show_of_an_answer_that_nobody_can_read(file: Path) -> None:
    with SQLiteStore(file) as store:
        store.put(entry("odd", answer="{"))
        name = store.page(Filter()).entries[-1].id
    assert told("show", file, name)["answer"] is None
    assert "cannot be read" in run("show", file, name).stdout


def test_a_name_that_fits_none_or_several(file: Path) -> None:
    assert refused("show", file, "zz") == "no entry 'zz'"
    with SQLiteStore(file) as store:
        for place in "ab":
            store.put(Entry(f"ffff{place}", "5c", place, "q", "{}", None, 1.0))
    assert refused("show", file, "ffff") == "2 entries begin with 'ffff'; give more of it"
    assert refused("show", file, "") == "no entry ''"


def test_forgetting_a_user_leaves_no_trace(file: Path) -> None:
    with SQLiteStore(file) as store:
        store.put(entry("a secret of Ada's", user="ada"))
    assert told("forget", file, "--user", "ada", "--yes") == {"removed": 3, "secure": True}
    assert questions(file) == ["two", "four", "five"]
    left = b"".join(path.read_bytes() for path in file.parent.glob("answers.db*"))
    assert b"a secret of Ada" not in left


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--tag", "old"], ["two", "three", "five"]),
        (["--version", "1"], ["three", "four", "five"]),
        (["--version", "1", "--tag", "faq"], ["two", "three", "four", "five"]),
    ],
)
def test_retiring_by_tag_or_version(file: Path, words: list[str], left: list[str]) -> None:
    assert told("forget", file, *words, "--yes")["secure"] is False
    assert questions(file) == left


def test_forgetting_one_entry(file: Path) -> None:
    name = told("list", file, "--user", "bob")["entries"][0]["entry"]
    assert told("forget", file, "--entry", name[:9], "--secure", "--yes") == {"removed": 1, "secure": True}
    assert questions(file) == ["one", "three", "four", "five"]


def test_forget_asks_first(file: Path) -> None:
    no = run("forget", file, "--tenant", "birch", answer="n\n")
    assert no.exit_code == 0
    assert no.stdout.endswith("\n0 answers removed\n")
    assert "Remove 2 answers, without a trace in the file? [y/N]" in no.stderr
    assert len(questions(file)) == 5
    yes = run("forget", file, "--version", "2", answer="y\n")
    assert yes.exit_code == 0
    assert yes.stdout.endswith("\n1 answer removed\n")
    assert "Remove 1 answer? [y/N]" in yes.stderr
    assert questions(file) == ["one", "two", "three", "five"]


def test_forget_with_nobody_to_ask_removes_nothing(file: Path) -> None:
    result = run("forget", file, "--tenant", "birch")
    assert result.exit_code == 2
    assert "nothing was removed; --yes does not ask" in result.stderr
    assert len(questions(file)) == 5


def test_forget_needs_to_be_told_which(file: Path) -> None:
    assert refused("forget", file, "--yes").startswith("say which answers: --user")
    assert len(questions(file)) == 5


def test_forgetting_what_is_not_there_is_done(file: Path) -> None:
    assert told("forget", file, "--user", "nobody") == {"removed": 0, "secure": True}


# ---- import


class Shop:
    """A chain over a dict, and how often it ran."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, given: Any) -> str:
        self.asked.append(given["question"] if isinstance(given, dict) else given)
        return "asked the model"

    def message(self, given: Any) -> AIMessage:
        return AIMessage(self.answer(given))


def write(folder: Path, rows: Sequence[object], name: str = "faq.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


FAQ = [{"question": RESET, "answer": "Press reset."}, {"question": HOURS, "answer": "At nine."}]


def test_imported_answers_are_hit_by_a_named_chain(tmp_path: Path) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ)
    done = told("import", file, faq, "--name", "faq", "--query", "question")
    assert done == {"imported": 2, "kept": 0, "exact_only": []}
    shop = Shop()
    with SemanticCache(file) as cache:
        chain = cached(RunnableLambda(shop.answer), cache=cache, query="question", name="faq")
        assert chain.invoke({"question": RESET}) == "Press reset."
        assert chain.invoke({"question": RESET_TOO}) == "Press reset."
        assert chain.invoke({"question": HOURS}) == "At nine."
        assert cache.metrics().hits == {"exact": 2, "semantic": 1}
        assert shop.asked == []
        # another chain, another input field, another question: the chain is asked
        other = cached(RunnableLambda(shop.answer), cache=cache, query="question", name="other")
        assert other.invoke({"question": RESET}) == "asked the model"
        assert chain.invoke({"question": RESET, "country": "PL"}) == "asked the model"
        assert chain.invoke({"question": "How do I close my account?"}) == "asked the model"


def test_a_chain_whose_input_is_the_question_itself(tmp_path: Path) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ)
    told("import", file, faq, "--name", "faq")
    shop = Shop()
    with SemanticCache(file) as cache:
        chain = cached(RunnableLambda(shop.answer), cache=cache, query=None, name="faq")
        assert [chain.invoke(RESET), chain.invoke(RESET_TOO)] == ["Press reset."] * 2
        assert shop.asked == []


def test_a_chain_that_returns_a_message(tmp_path: Path) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ)
    told("import", file, faq, "--name", "faq", "--message")
    with SemanticCache(file) as cache:
        reply = cached(RunnableLambda(Shop().message), cache=cache, query=None, name="faq").invoke(RESET)
    assert isinstance(reply, AIMessage)
    assert reply.content == "Press reset."
    assert reply.response_metadata["headstay"]["tier"] == "exact"


def test_tenant_and_version_of_imported_answers(tmp_path: Path) -> None:
    rows = [
        {"question": RESET, "answer": "the old way"},
        {"question": RESET, "answer": "the new way", "version": "2"},
    ]
    file, faq = tmp_path / "answers.db", write(tmp_path, rows)
    told("import", file, faq, "--name", "faq", "--tenant", "birch", "--version", "1")
    shop = Shop()
    with SemanticCache(file) as cache:

        def asks(tenant: str, version: str) -> str:
            chain = cached(
                RunnableLambda(shop.answer), cache=cache, query=None, name="faq", tenant=tenant, version=version
            )
            return str(chain.invoke(RESET_TOO))

        assert asks("birch", "1") == "the old way"
        assert asks("birch", "2") == "the new way"
        assert asks("larkfield", "1") == "asked the model"


def fake(answer: str, cache: SemanticCache) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(answer)] * 9), cache=cache)


def test_answers_beside_one_of_a_model(tmp_path: Path) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ[1:])
    rules = SystemMessage("You are the desk of Larkfield.")
    with SemanticCache(file, tenant="birch", version="7") as cache:
        fake("from the model", cache).invoke([rules, HumanMessage(RESET)])
    name = told("list", file)["entries"][0]["entry"]
    assert told("import", file, faq, "--like", name[:10], "--tag", "faq")["imported"] == 1
    with SemanticCache(file, tenant="birch", version="7") as cache:
        model = fake("from the model", cache)
        assert model.invoke([rules, HumanMessage("when does your office open?")]).content == "At nine."
        hit = model.invoke([rules, HumanMessage(HOURS)])
        assert (hit.content, hit.response_metadata["headstay"]["cache"]) == ("At nine.", "hit")
        assert model.invoke([SystemMessage("You are a pirate."), HumanMessage(HOURS)]).content == "from the model"
    (made,) = told("list", file, "--tag", "faq")["entries"]
    assert (made["tenant"], made["version"], made["by_meaning"]) == ("birch", "7", True)


def test_answers_beside_one_of_a_template(tmp_path: Path) -> None:
    """The place is found also where the question is only a part of the last message."""
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ[1:])

    def asked(question: str) -> HumanMessage:
        return HumanMessage(
            f"Context: we sell tents.\n\n{question}", additional_kwargs={"headstay": {"query": question}}
        )

    with SemanticCache(file) as cache:
        fake("from the model", cache).invoke([asked(RESET)])
    told("import", file, faq, "--like", told("list", file)["entries"][0]["entry"])
    with SemanticCache(file) as cache:
        model = fake("from the model", cache)
        assert model.invoke([asked("At what time does your office open?")]).content == "At nine."
        assert model.invoke([asked(HOURS)]).content == "At nine."


def test_answers_beside_one_that_holds_more_than_a_text(tmp_path: Path) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, FAQ)
    with SemanticCache(file) as cache:
        chain = cached(RunnableLambda(lambda given: {"answer": "a", "sources": ["b"]}), cache=cache, query=None)
        chain.invoke("Which tents do you sell?")
    name = told("list", file)["entries"][0]["entry"]
    assert "holds more than a text" in refused("import", file, faq, "--like", name)
    assert told("list", file)["kept"] == 1


def test_answers_that_only_identical_questions_get_are_named(tmp_path: Path) -> None:
    faq = write(tmp_path, [FAQ[0], {"question": "Gdzie jest moja przesyłka?", "answer": "W drodze."}])
    done = told("import", tmp_path / "answers.db", faq, "--name", "faq")
    assert done["imported"] == 2
    (limited,) = done["exact_only"]
    assert (limited["line"], limited["reason"]) == (2, "unsupported_script")
    text = run("import", tmp_path / "answers.db", faq, "--name", "faq", "--keep").stdout
    assert "0 answers imported, 2 were there already" in text
    assert f"{faq}:2: the embedder does not read this script" in text


def test_imported_answers_replace_what_is_there_unless_told_to_keep_it(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    told("import", file, write(tmp_path, FAQ), "--name", "faq")
    changed = write(tmp_path, [{"question": RESET, "answer": "Ring us."}], "new.jsonl")
    assert told("import", file, changed, "--name", "faq", "--keep") == {"imported": 0, "kept": 1, "exact_only": []}
    assert [one["answer"] for one in told("list", file)["entries"]] == ["Press reset.", "At nine."]
    told("import", file, changed, "--name", "faq")
    assert sorted(one["answer"] for one in told("list", file)["entries"]) == ["At nine.", "Ring us."]


def test_time_to_live_and_tags(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    rows = 'question,answer,tags\n"Where is it, then?",Here.,"a; b"\n'
    told("import", file, write(tmp_path, [rows], "faq.csv"), "--name", "faq", "--ttl", "60", "--tag", "b", "--tag", "c")
    (made,) = told("list", file)["entries"]
    assert made["expires"] == made["created"] + 60
    assert sorted(made["tags"]) == ["a", "b", "c"]


def test_csv_with_quotes_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    faq = tmp_path / "faq.csv"
    faq.write_bytes('\ufeffAnswer,Question\r\n"One, two\r\nthree.",What is "this"?\r\n\r\nYes.,Is it?\r\n'.encode())
    told("import", tmp_path / "answers.db", faq, "--name", "faq")
    found = [(one["query"], one["answer"]) for one in told("list", tmp_path / "answers.db")["entries"]]
    assert sorted(found) == [("Is it?", "Yes."), ('What is "this"?', "One, two\r\nthree.")]


BAD = [
    ("faq.csv", ["question,answer", "q,a", "only a question"], "3: 1 cells under 2 columns"),
    ("faq.csv", ["question,answer", '"a\nb",c', ",no question"], "4: the question is empty"),
    ("faq.csv", ["question,reply", "q,a"], "1: no answer; question and answer are needed"),
    ("faq.csv", ["question,answer,tag", "q,a,t"], "1: 'tag' is not known"),
    ("faq.csv", ["question,answer,answer", "q,a,a"], "1: a column is there twice"),
    ("faq.csv", ["question,answer", '"never closed,a'], "2: this is no CSV"),
    ("faq.csv", ["question,answer", "q,a", "r,b", " q ,c"], "4: the question of line 2 again"),
    ("faq.csv", ["question,answer,version", "q,a,1", "q,a,"], None),
    ("faq.jsonl", ['{"question": "q", "answer": "a"}', "", "{"], "3: this is no JSON"),
    ("faq.jsonl", ["[1]"], "1: not an object"),
    ("faq.jsonl", ['{"question": "q", "answer": 7}'], "1: the answer is no text"),
    ("faq.jsonl", ['{"question": "q", "answer": "\\ud800"}'], "1: the answer holds half a surrogate pair"),
    ("faq.jsonl", ['{"question": "q", "answer": "a", "tags": [1]}'], "1: tags is no list of names"),
    ("faq.jsonl", ['{"question": "q", "answer": "a", "tags": {"a": 1}}'], "1: tags is no list of names"),
    ("faq.jsonl", ['{"question": "q", "answer": "a", "version": 2}'], "1: the version is no text"),
    (
        "faq.jsonl",
        ['{"question": "q", "answer": "a"}', '{"question": "q", "answer": "b"}'],
        "2: the question of line 1",
    ),
]


@pytest.mark.parametrize(("name", "lines", "message"), BAD)
def test_a_bad_row_is_named_and_nothing_is_imported(
    tmp_path: Path, name: str, lines: list[str], message: str | None
) -> None:
    file, faq = tmp_path / "answers.db", write(tmp_path, lines, name)
    told("import", file, write(tmp_path, FAQ, "good.jsonl"), "--name", "faq")
    if message is None:  # the same question for two versions is fine
        assert told("import", file, faq, "--name", "faq")["imported"] == 2
        return
    said = refused("import", file, faq, "--name", "faq")
    assert said.startswith(f"{faq}:{message}")
    assert told("list", file)["kept"] == 2


def test_the_same_question_twice_by_a_version_that_was_named(tmp_path: Path) -> None:
    lines = [{"question": "q", "answer": "a"}, {"question": "q", "answer": "b", "version": "1"}]
    faq = write(tmp_path, lines)
    said = refused("import", tmp_path / "a.db", faq, "--name", "faq", "--version", "1")
    assert said == f"{faq}:2: the question of line 1 again; nothing was imported"


def test_a_chain_has_a_name(tmp_path: Path) -> None:
    said = refused("import", tmp_path / "a.db", write(tmp_path, FAQ), "--name", "")
    assert said == "--name is empty: give the name that the chain has in cached(..., name=NAME)"
    assert not (tmp_path / "a.db").exists()


def test_files_that_hold_no_faq(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    nothing, latin, other = tmp_path / "nothing.csv", tmp_path / "latin.csv", tmp_path / "faq.xlsx"
    nothing.write_text("question,answer\n")
    latin.write_bytes("question,answer\nq,a\nWo?,überall\n".encode("latin-1"))
    other.write_bytes(b"PK")
    assert refused("import", file, nothing, "--name", "faq") == f"{nothing}: there is no question in it"
    assert refused("import", file, latin, "--name", "faq").startswith(f"{latin}:3: this is no UTF-8")
    assert refused("import", file, other, "--name", "faq").startswith(f"{other}: a FAQ is read from a .csv")
    assert refused("import", file, tmp_path / "no.csv", "--name", "faq").startswith(f"cannot read {tmp_path}/no.csv")
    assert not file.exists()


def test_where_the_answers_belong_has_to_be_said_once(file: Path, tmp_path: Path) -> None:
    faq = write(tmp_path, FAQ)
    assert refused("import", file, faq).startswith("say where the answers belong")
    assert refused("import", file, faq, "--name", "faq", "--like", "00").startswith("say where the answers belong")
    assert refused("import", file, faq, "--like", "00", "--tenant", "t").startswith("--query, --tenant")
    assert refused("import", file, faq, "--like", "00", "--message").startswith("--query, --tenant")
    assert len(questions(file)) == 5


def test_a_row_of_another_version_than_the_entry_beside_it(file: Path, tmp_path: Path) -> None:
    faq = write(tmp_path, [{"question": "q", "answer": "a", "version": "2"}])
    name = told("list", file, "--user", "bob")["entries"][0]["entry"]
    assert refused("import", file, faq, "--like", name).startswith(f"{faq}:1: it is for version '2', and entry {name}")


def test_another_embedder_than_that_of_the_entry(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    with SemanticCache(file, embedder=_Odd()) as cache:
        cached(RunnableLambda(Shop().answer), cache=cache, query=None, name="faq").invoke(RESET)
    name = told("list", file)["entries"][0]["entry"]
    said = refused("import", file, write(tmp_path, FAQ), "--like", name)
    assert said == f"entry {name} was made with another embedder; name it with --embedder"


class _Odd:
    """An embedder as wide as the bundled one, of another space."""

    fingerprint = "odd"
    dimension = 384
    window = None

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.zeros((len(texts), 384), dtype=np.float32)
        rows[:, 0] = 1
        return rows

    def tokens(self, text: str) -> None:
        return None


def test_import_pushes_nothing_out(tmp_path: Path) -> None:
    """The limits of the application's cache are not known to the command line."""
    file = tmp_path / "answers.db"
    with SQLiteStore(file, max_entries=3) as store:
        store.put_many([entry(str(number)) for number in range(3)])
    told("import", file, write(tmp_path, FAQ), "--name", "faq")
    assert told("list", file)["kept"] == 5
