"""The server: tools and resources, and errors that say what to change. Workers compute every answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from meshwright._version import __version__
from meshwright.errors import QuestionError
from meshwright.mcp import catalog
from meshwright.mcp.answers import WORK
from meshwright.mcp.questions import QUESTIONS, read_question
from meshwright.service.pool import Limits, Pool

INSTRUCTIONS = """\
Exact answers about parallel layouts of large-model training on Megatron Core (Megatron-LM, Megatron Bridge, \
NeMo). Ask instead of guessing: advise for questions about degrees (fewest GPUs, DP sizes, what the guide \
says); plan for the best layout; fit for the fewest GPUs in memory; estimate for one layout; check for \
somebody's script; ranks for groups; write for a config; explain for a rule. The fewest GPUs that can start \
a layout are PP*lcm(TP*CP, EP*ETP), never the product of all degrees."""
LIMITS = Limits(searchers=2, quick=1, seconds=60.0, waiting=64)

Context = ServerRequestContext[Pool]


def create_server(limits: Limits = LIMITS) -> Server[Pool]:
    """A server with its own workers; a question that takes longer than the limit is told so."""

    @asynccontextmanager
    async def lifespan(_: Server[Pool]) -> AsyncIterator[Pool]:
        pool = Pool(WORK, limits)
        try:
            yield pool
        finally:
            await pool.stop()

    return Server(
        "meshwright",
        version=__version__,
        title="Meshwright",
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
    )


async def _list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_tool(name) for name in QUESTIONS])


def _tool(name: str) -> types.Tool:
    schema = QUESTIONS[name].model_json_schema(by_alias=True)
    words = schema.pop("description", "")
    schema["properties"] = {key: _plain(row) for key, row in schema["properties"].items()}
    return types.Tool(
        name=name,
        title=f"Meshwright {name}",
        description=" ".join(words.split()),
        input_schema={key: value for key, value in schema.items() if key != "title"},
        output_schema={"type": "object"},
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A property without what says nothing: titles, and null as a choice and a default."""
    kept = {key: value for key, value in row.items() if key not in ("title", "anyOf")}
    choices = [one for one in row.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        kept |= choices[0]
    elif choices:
        kept["anyOf"] = choices
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


async def _call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    try:
        given = read_question(params.name, params.arguments or {})
    except QuestionError as error:
        return _failed(str(error))
    reply = await ctx.lifespan_context.ask(params.name, given)
    row = json.loads(reply.body)
    if reply.status != 200:
        return _failed(row["error"])
    text = types.TextContent(type="text", text=reply.body.decode())
    return types.CallToolResult(content=[text], structured_content=row)


def _failed(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], is_error=True)


async def _list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    rows = [
        types.Resource(
            uri=f"{catalog.SCHEME}{shelf.name}", name=shelf.name, title=shelf.title,
            mime_type="application/json",
        )
        for shelf in catalog.SHELVES.values()
    ]  # fmt: skip
    return types.ListResourcesResult(resources=rows)


async def _list_templates(
    _: Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    rows = [
        types.ResourceTemplate(
            uri_template=f"{catalog.SCHEME}{shelf.name}/{{{shelf.key}}}", name=shelf.name.removesuffix("s"),
            description=shelf.one, mime_type=shelf.kind,
        )
        for shelf in catalog.SHELVES.values()
    ]  # fmt: skip
    return types.ListResourceTemplatesResult(resource_templates=rows)


async def _read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    try:
        text, kind = catalog.read(uri)
    except QuestionError as error:
        raise MCPError(code=types.INVALID_PARAMS, message=str(error), data={"uri": uri[:200]}) from None
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])
