"""`headstay cache`: look into a semantic cache's file, remove answers, and put in your own."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headstay import cache_table
from headstay.cli_format import Format, FormatOption, as_json, bad_input, load
from headstay.errors import ConfigError
from headstay.semantic.entry import Entry, Filter
from headstay.semantic.faq import read_faq
from headstay.semantic.importing import Chain, Like, entries_of
from headstay.semantic.sqlite_store import SQLiteStore

if TYPE_CHECKING:
    from headstay.semantic.embedder_vectors import Embedder

app = typer.Typer(help="Look into a semantic cache's file, remove answers, and put in your own.", no_args_is_help=True)

_ROOM = 1 << 60  # the application's own limits are not known here, so nothing is pushed out
_PAGE = 500

File = Annotated[Path, typer.Argument(help="the cache's file, as given to SemanticCache", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="of this tenant", show_default=False)]
User = Annotated[str | None, typer.Option(help="of this user", show_default=False)]
Version = Annotated[str | None, typer.Option(help="of this version", show_default=False)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="with this tag, or one of several", show_default=False)]


@app.command("list")
def list_entries(
    file: File,
    *,
    tenant: Tenant = None,
    user: User = None,
    version: Version = None,
    tag: Tags = None,
    limit: Annotated[int, typer.Option(min=1, help="most entries")] = 50,
    cursor: Annotated[str | None, typer.Option(help="where the page before ended", show_default=False)] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """List what is kept, expired answers included."""
    where = Filter(tenant=tenant, user=user, version=version, tags=tuple(tag) if tag else None)
    with _opened(file) as store:
        page = store.page(where, limit=limit, cursor=cursor)
        usage = store.usage()
    now = time.time()
    if form is Format.JSON:
        told = [cache_table.as_json(entry, now) for entry in page.entries]
        _print({"entries": told, "cursor": page.cursor, "kept": usage.entries, "bytes": usage.size})
    else:
        cache_table.show_list(page, usage, now)


@app.command()
def show(
    file: File,
    entry: Annotated[str, typer.Argument(help="the entry's name, or how it begins", show_default=False)],
    *,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show one answer and all that is known about it."""
    with _opened(file) as store:
        found = _find(store, entry)
    if form is Format.JSON:
        _print(cache_table.as_json(found, time.time(), whole=True))
    else:
        cache_table.show_entry(found, time.time())


@app.command()
def forget(
    file: File,
    *,
    tenant: Tenant = None,
    user: User = None,
    version: Version = None,
    tag: Tags = None,
    entry: Annotated[
        list[str] | None, typer.Option(help="this entry, or one of several; how its name begins", show_default=False)
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="leave no trace in the file; always so with --user and --tenant")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Remove the answers that match everything given.

    With --user or --tenant every trace of them leaves the file, which rewrites it. Otherwise they are only retired:
    never served again, and overwritten.
    """
    with _opened(file) as store:
        ids = tuple(_find(store, name).id for name in entry) if entry else None
        where = Filter(ids=ids, tenant=tenant, user=user, version=version, tags=tuple(tag) if tag else None)
        if where == Filter():
            raise ConfigError("say which answers: --user, --tenant, --version, --tag or --entry")
        secure = secure or tenant is not None or user is not None
        removed = 0
        if yes or _agreed(sum(1 for _ in _entries(store, where)), secure):
            removed = store.forget(where) if secure else store.remove(where)
    if form is Format.JSON:
        _print({"removed": removed, "secure": secure})
    else:
        typer.echo(f"{removed} {'answer' if removed == 1 else 'answers'} removed")


@app.command("import")
def import_answers(
    file: File,
    faq: Annotated[Path, typer.Argument(help="CSV or JSONL: question, answer, tags, version", show_default=False)],
    *,
    like: Annotated[
        str | None, typer.Option(help="put them beside this entry: same model, system text, tenant", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="for the chain made with cached(..., name=NAME)", show_default=False)
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="the chain's input key, as in cached(query=KEY)", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="with --name: for this tenant", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="with --name: for this user", show_default=False)] = None,
    version: Annotated[
        str | None, typer.Option(help="with --name: of this version; a row's own goes first", show_default=False)
    ] = None,
    message: Annotated[
        bool, typer.Option("--message", help="with --name: the chain returns a message, not a text")
    ] = False,
    tag: Annotated[list[str] | None, typer.Option(help="on each of them", show_default=False)] = None,
    ttl: Annotated[float | None, typer.Option(min=0.001, help="seconds to live", show_default=False)] = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave answers that are there already")] = False,
    embedder: Annotated[
        str | None, typer.Option(help="a sentence-transformers model, if the cache has one", show_default=False)
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Put your own answers in, all of them or none."""
    embedders = load("headstay.semantic.embedder", "semantic")
    given_for_name = [option for option in (query, tenant, user, version) if option is not None]
    with bad_input():
        if (like is None) == (name is None):
            raise ConfigError("say where the answers belong: either --like ENTRY or --name NAME")
        if name == "":
            raise ConfigError("--name is empty: give the name that the chain has in cached(..., name=NAME)")
        if like is not None and (given_for_name or message):
            raise ConfigError("--query, --tenant, --user, --version and --message go with --name; --like has its own")
        rows = read_faq(faq)
        reader: Embedder = embedders.as_embedder(embedder)
    with _opened(file, new=name is not None) as store:
        place: Chain | Like = Chain(name or "", query, tenant, user, version, message)
        if like is not None:
            beside = Like(_find(store, like))
            beside.check_space(reader)
            place = beside
        entries, limited = entries_of(rows, place, embedder=reader, made=time.time(), ttl=ttl, tags=tag or ())
        outcomes = store.put_many(entries, replace=not keep)
    exact = [{"line": row.line, "reason": str(reason), "text": reason.text} for row, reason in limited]
    stored = outcomes.count("stored")
    if form is Format.JSON:
        _print({"imported": stored, "kept": outcomes.count("kept"), "exact_only": exact})
    else:
        cache_table.show_import(stored, outcomes.count("kept"), exact, faq)


@contextmanager
def _opened(file: Path, *, new: bool = False) -> Generator[SQLiteStore]:
    """Open a cache's file; whatever is wrong with it is bad input."""
    with bad_input():
        if not new and not file.is_file():
            raise ConfigError(f"{file}: there is no such file")
        if not new and not file.stat().st_size:  # opening it would make a cache of it
            raise ConfigError(f"{file}: the file is empty, so it is no cache")
        with SQLiteStore(file, max_entries=_ROOM, max_bytes=_ROOM) as store:
            yield store


def _entries(store: SQLiteStore, where: Filter) -> Iterator[Entry]:
    cursor = None
    while True:
        page = store.page(where, limit=_PAGE, cursor=cursor)
        yield from page.entries
        cursor = page.cursor
        if cursor is None:
            return


def _find(store: SQLiteStore, name: str) -> Entry:
    """Find an entry by its name, or by how that begins.

    Raises:
        ConfigError: There is none, or there are several.
    """
    found = store.show(name)
    if found is not None:
        return found
    like = [entry for entry in _entries(store, Filter()) if name and entry.id.startswith(name)]
    if len(like) == 1:
        return like[0]
    raise ConfigError(f"{len(like)} entries begin with {name!r}; give more of it" if like else f"no entry {name!r}")


def _agreed(count: int, secure: bool) -> bool:
    """Ask before anything is removed.

    Raises:
        ConfigError: Nobody is there to be asked.
    """
    if not count:
        return True  # nothing to lose; a secure removal still cleans the file
    how = ", without a trace in the file" if secure else ""
    try:
        return typer.confirm(f"Remove {count} {'answer' if count == 1 else 'answers'}{how}?", err=True)
    except typer.Abort as problem:
        raise ConfigError("nobody answered, so nothing was removed; --yes does not ask") from problem


def _print(told: object) -> None:
    typer.echo(as_json(told))
