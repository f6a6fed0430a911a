"""Run the notebook and write what it shows into it: make notebook."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

PATH = Path(__file__).resolve().parents[1] / "notebook.ipynb"


def executed(folder: Path) -> NotebookNode:
    """The notebook with the outputs of a fresh kernel, started in a folder.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    notebook = nbformat.read(PATH, as_version=4)
    run = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, resources=run).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _without_progress(cell.outputs)
    notebook.metadata.pop("language_info", None)
    return notebook


def _without_progress(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """A progress bar as it was in the end, for all that went to standard error."""
    bars = [output for output in outputs if output.get("name") == "stderr"]
    text = "".join(output.text for output in bars).rstrip()
    for output in bars[1:]:
        outputs.remove(output)
    if bars:
        bars[0].text = text.rpartition("\r")[2] + "\n"
    return outputs


if __name__ == "__main__":
    nbformat.write(executed(Path.cwd()), PATH)
    sys.exit(0)
