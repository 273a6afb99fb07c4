"""The HTTP side: routes, limits, headers. Every answer comes from a worker; nothing is computed here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi import Path as PathValue
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from meshwright._version import __version__
from meshwright.api.reporting import SCALES
from meshwright.errors import MeshwrightError
from meshwright.service.loopback import NAMES
from meshwright.service.pool import Limits, Pool
from meshwright.web import questions as ask
from meshwright.web import schema
from meshwright.web.answers import WORK
from meshwright.web.assets import assets
from meshwright.web.guard import BodyLimit, SafeHeaders
from meshwright.web.jobs import Jobs

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schema.ErrorAnswer, "description": "the request is no JSON"},
    409: {"model": schema.ErrorAnswer, "description": "the answer is no: it cannot start or does not fit"},
    413: {"model": schema.ErrorAnswer, "description": "the request is too large"},
    415: {"model": schema.ErrorAnswer, "description": "the request is not application/json"},
    422: {"model": schema.ErrorAnswer, "description": "the question is wrong"},
    503: {"model": schema.ErrorAnswer, "description": "too many questions wait"},
    504: {"model": schema.ErrorAnswer, "description": "this took too long"},
}

Pattern = Annotated[str, Query(max_length=120, description="show only names that contain this")]


def create_app(
    limits: Limits | None = None, hosts: Sequence[str] = NAMES, *, verifies: bool = False
) -> FastAPI:
    """The application.

    hosts     the names it answers to; ("*",) for any
    verifies  run verifications here, one at a time; else only their command is told
    """
    limits = limits or Limits()
    pool, jobs = Pool(WORK, limits), Jobs() if verifies else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(pool.warm())
        yield
        warming.cancel()
        await pool.stop()
        if jobs is not None:
            await jobs.stop()

    app = FastAPI(
        title="Meshwright", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json",
        description="Plans the parallel layout of large-model training. The same answers as `--json`.",
    )  # fmt: skip
    app.include_router(_api(pool, limits), prefix="/api")
    app.include_router(_verifying(pool, jobs), prefix="/api")
    _pages(app)
    _say_errors(app)
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)
    app.add_middleware(BodyLimit, most=limits.largest_body)
    app.add_middleware(SafeHeaders)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    return app


def _api(pool: Pool, limits: Limits) -> APIRouter:
    api = APIRouter(tags=["api"])

    @api.get("/limits")
    async def limits_() -> schema.LimitsAnswer:
        """What this server is and allows."""
        import meshwright as mw

        return schema.LimitsAnswer(
            version=__version__, largest_body_bytes=limits.largest_body, seconds_a_request=limits.seconds,
            waiting_requests=limits.waiting, targets=list(mw.framework_names()),
        )  # fmt: skip

    @api.get("/models", responses={422: _ERRORS[422]})
    async def models(pattern: Pattern = "") -> list[schema.ModelRow]:
        """The models that are known by name."""
        import meshwright as mw

        return [schema.ModelRow.model_validate(row) for row in mw.models(pattern)]

    @api.get("/gpus", responses={422: _ERRORS[422]})
    async def gpus(pattern: Pattern = "") -> list[schema.GpuRow]:
        """The GPUs that are known by name."""
        import meshwright as mw

        return [schema.GpuRow.model_validate(row) for row in mw.gpus(pattern)]

    def answers(kind: str, question: type[BaseModel], model: type[BaseModel], words: str) -> None:
        async def endpoint(request: Request, body: BaseModel) -> Response:
            given = body.model_dump(mode="json", exclude_none=True)
            return await _reply(pool, kind, given, request)

        endpoint.__annotations__["body"] = question
        endpoint.__doc__, endpoint.__name__ = words, kind
        api.post(f"/{kind}", responses={200: {"model": model}, **_ERRORS})(endpoint)

    answers("plan", ask.PlanQuestion, schema.PlansAnswer, "The best layouts, fastest first.")
    answers("fit", ask.FitQuestion, schema.PlansAnswer, "The fewest GPUs of a kind that train a model.")
    answers("estimate", ask.EstimateQuestion, schema.EstimateAnswer, "Memory and time of one layout.")
    answers(
        "check", ask.CheckQuestion, schema.CheckAnswer, "What is wrong with a launch script; it is never run."
    )
    answers("compare", ask.CompareQuestion, schema.CompareAnswer, "Two scripts or configs side by side.")
    answers("advise", ask.AdviseQuestion, schema.AdviseAnswer, "The parallelism guide, and what holds.")
    answers("write", ask.WriteQuestion, schema.WrittenAnswer, "One layout in the language of a framework.")
    answers("trace", ask.LayoutQuestion, schema.TraceAnswer, "One step of a layout as a trace for Perfetto.")
    answers("ranks", ask.RanksQuestion, schema.RanksAnswer, "Every rank, its node and its groups.")

    @api.post("/scaling", responses={200: {"model": schema.ScalingAnswer}, **_ERRORS})
    async def scaling(request: Request, body: ask.ScalingQuestion) -> Response:
        """The best layout on several numbers of GPUs, the global batch held; each is a search of its own."""
        given = body.model_dump(mode="json", exclude_none=True)
        width = given.pop("width")
        first = await _reply(pool, "size", {**given, "scale": 1.0}, request)
        if first.status_code != 200:
            return first
        given["global_batch"] = json.loads(bytes(first.body))["global_batch"] or given.get("global_batch", 1)
        others = [_reply(pool, "size", {**given, "scale": one}, request) for one in SCALES if one != 1.0]
        replies = [first, *await asyncio.gather(*others)]
        rows = [json.loads(bytes(one.body)) for one in replies if one.status_code == 200]
        sizes = sorted((row for row in rows if row["fits"]), key=lambda row: int(row["gpus"]))
        return await _reply(pool, "curve", {"sizes": sizes, "width": width}, request)

    @api.post("/report", responses={200: {"content": {"text/html": {}}}, **_ERRORS}, response_class=Response)
    async def report(request: Request, body: ask.ReportQuestion) -> Response:
        """The plan as one self-contained HTML file."""
        reply = await _reply(pool, "report", body.model_dump(mode="json", exclude_none=True), request)
        if reply.status_code != 200:
            return reply
        page = json.loads(bytes(reply.body))["html"]
        headers = {"content-disposition": 'attachment; filename="plan.html"'}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    return api


def _verifying(pool: Pool, jobs: Jobs | None) -> APIRouter:
    """Proving a plan on the engine: the command, and a job where this server runs it."""
    api = APIRouter(tags=["api"])

    @api.post("/verify", responses={200: {"model": schema.VerifyAnswer}, **_ERRORS})
    async def verify(request: Request, body: ask.VerifyQuestion) -> Response:
        """How to prove a layout on Megatron Core: the command, and a job where this server runs jobs."""
        reply = await _reply(pool, "verify", body.model_dump(mode="json", exclude_none=True), request)
        if reply.status_code != 200:
            return reply
        row: dict[str, Any] = json.loads(bytes(reply.body))
        name = jobs.start(row["plan"], body.levels) if jobs is not None else None
        if jobs is not None and name is None:
            return JSONResponse({"error": "too many verifications wait", "kind": "limit"}, 503)
        return JSONResponse({**row, "job": name})

    @api.get("/verify/{job}", responses={404: {"model": schema.ErrorAnswer}, 422: _ERRORS[422]})
    async def verification(job: Annotated[str, PathValue(max_length=60)]) -> schema.JobAnswer:
        """How a verification stands."""
        found = jobs.get(job) if jobs is not None else None
        if found is None:
            raise HTTPException(404)
        return schema.JobAnswer(job=job, status=found.status, answer=found.answer, error=found.error)

    return api


async def _reply(pool: Pool, kind: str, given: Mapping[str, Any], request: Request) -> Response:
    """The answer of a worker; a client that goes away gives up its place."""
    task = asyncio.create_task(pool.ask(kind, given))
    while not task.done():
        await asyncio.wait({task}, timeout=1.0)
        if not task.done() and await request.is_disconnected():
            task.cancel()
            return Response(status_code=503)
    reply = task.result()
    headers = {"retry-after": "2"} if reply.status == 503 else None
    return Response(reply.body, reply.status, headers, media_type="application/json")


def _pages(app: FastAPI) -> None:
    """The page and its parts, from memory: no path of a request ever reaches the file system."""
    files = assets()

    @app.get("/{name:path}", include_in_schema=False)
    async def page(name: str, request: Request) -> Response:
        found = files.get(name or "index.html")
        if found is None:
            raise HTTPException(404)
        headers = {"etag": found.mark, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == found.mark:
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type=found.kind, headers=headers)


def _say_errors(app: FastAPI) -> None:
    """Every error in the one form of `ErrorAnswer`."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        rows = error.errors()
        if any(row["type"] == "json_invalid" for row in rows):
            return JSONResponse({"error": "the request is not JSON", "kind": "question"}, 400)
        if (
            not request.headers.get("content-type", "").startswith("application/json")
            and request.method == "POST"
        ):
            return JSONResponse({"error": "send application/json", "kind": "question"}, 415)
        words = "; ".join(f"{'.'.join(map(str, row['loc'][1:])) or 'body'}: {row['msg']}" for row in rows[:5])
        return JSONResponse({"error": words[:600], "kind": "question"}, 422)

    @app.exception_handler(MeshwrightError)
    async def wrong(request: Request, error: MeshwrightError) -> JSONResponse:
        """A value that its own class refuses, such as an unknown recompute module."""
        return JSONResponse({"error": str(error), "kind": "question"}, 422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        words = "there is no such page" if error.status_code == 404 else str(error.detail)
        return JSONResponse({"error": words, "kind": "question"}, error.status_code, headers=error.headers)
