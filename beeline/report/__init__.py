"""Tables, statistics and reports of runs. Heavy imports happen inside the functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from beeline.report.table import results, runs_table, write_table
from beeline.run.reading import Damage, Note, warn

__all__ = ["build", "results", "runs_table", "serve", "write_table"]


def build(
    runs: Sequence[Path], out: Path, *, overlay: Sequence[str] = (), export: Path | None = None, note: Note = warn
) -> Path:
    """Write one self-contained HTML report of the runs at or below the given folders; return its path.

    `overlay` names published curves that are shown from the start (`source`, `source/algo` or `algo`); all that cover a
    task can be switched on in the page. `export` is a folder for PNG, SVG and CSV of every figure. A run that is damaged is a
    warning on the page and is told to `note`; all others are shown.
    """
    from beeline.errors import RunFolderError
    from beeline.files import write_atomic
    from beeline.report.model import model
    from beeline.report.page import attach_videos, render
    from beeline.report.references import above
    from beeline.report.runs import read_all

    damaged: list[Damage] = []
    found = read_all(runs, damaged.append)
    if not found:
        where = ", ".join(str(path) for path in runs) or "nothing given"
        why = f" that can be read. {damaged[0]}" if damaged else "."
        raise RunFolderError(f"no run folder at or below {where}{why}")
    references = above(((run.path, run.task) for run in found), damaged.append)
    for damage in damaged:
        note(damage)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    data = model(found, overlay, damaged, references)
    attach_videos(data, found, out.parent)
    write_atomic(out, render(data).encode())
    if export is not None:
        from beeline.report.export import export_figures

        export_figures(data, Path(export))
    return out


def serve(runs_root: Path, host: str = "127.0.0.1", port: int = 0, *, overlay: Sequence[str] = ()) -> None:
    """Show the report of the runs below `runs_root` live until interrupted; on this machine only."""
    from beeline.report.live import make_server

    server = make_server(Path(runs_root), host, port, overlay)
    print(f"The report is at http://{host}:{server.server_address[1]}/ and follows the runs. Stop it with Ctrl-C.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
