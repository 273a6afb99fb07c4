"""`ranks`: who sits where."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from meshwright.cli.options import LAYOUT, JsonFlag, with_options

DEGREES = tuple(flag for flag in LAYOUT if flag.name in ("tp", "pp", "vpp", "cp", "ep", "etp"))


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(ranks)


@with_options(DEGREES)
def ranks(
    *,
    world_size: Annotated[int | None, typer.Option("--world-size", help="number of ranks")] = None,
    gpus: Annotated[str, typer.Option("--gpus", help="a cluster in place of --world-size: 64xGB200")] = "",
    order: Annotated[str | None, typer.Option("--order", help="rank order, fastest axis first")] = None,
    mapping: Annotated[bool, typer.Option("--use-tp-pp-dp-mapping", help="the order tp-cp-ep-pp-dp")] = False,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", help="ranks of one node")] = None,
    nvlink_domain: Annotated[int | None, typer.Option("--nvlink-domain", help="ranks NVLink joins")] = None,
    gpus_per_rack: Annotated[int | None, typer.Option("--gpus-per-rack", help="ranks of one rack")] = None,
    hierarchical_cp: Annotated[
        str, typer.Option("--hierarchical-cp", help="sizes of the levels of context parallelism: 2,4")
    ] = "",
    instances: Annotated[
        int, typer.Option("--distributed-optimizer-instances", help="replicas of the sharded optimizer")
    ] = 1,
    gtp: Annotated[int, typer.Option("--gtp", help="weight-sharding degree beyond TP")] = 1,
    egtp: Annotated[int, typer.Option("--egtp", help="weight-sharding degree of the experts")] = 1,
    group: Annotated[str, typer.Option("--group", help="the kind of group that colours the grid")] = "tp",
    rank: Annotated[int | None, typer.Option("--rank", help="show the groups of this rank too")] = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """Who sits where: ranks, groups, nodes."""
    import meshwright as mw
    from meshwright.cli.reading import degrees, one_degree
    from meshwright.cli.show import console
    from meshwright.errors import QuestionError

    if world_size is None and not gpus:
        raise QuestionError("say how many ranks: --world-size 64 (or --gpus 64xH100)")
    if world_size is not None and gpus:
        raise QuestionError("say --world-size or --gpus, not both")
    grid = mw.ranks(
        gpus or world_size or 0,
        {name: one_degree(name, text) for name, text in said.items()},
        order=order,
        use_tp_pp_dp_mapping=mapping,
        gpus_per_node=gpus_per_node,
        nvlink_domain=nvlink_domain,
        gpus_per_rack=gpus_per_rack,
        hierarchical_cp=degrees("hierarchical-cp", hierarchical_cp) if hierarchical_cp else (),
        distributed_optimizer_instances=instances,
        gtp=gtp,
        egtp=egtp,
    )
    if as_json:
        typer.echo(json.dumps(grid.as_json()))
        return
    grid.group_of(group, 0)  # a name that is not known is said before anything is drawn
    from meshwright.report.ranks import ranks_screen

    console().print(ranks_screen(grid, group, rank))
