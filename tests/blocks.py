"""Runs blocks of code one after another, each in a namespace of its own.

The blocks come as JSON on standard input; what each printed goes to standard output as
JSON, with the error that ended it.
"""

import io
import json
import sys
import traceback
from contextlib import redirect_stdout


def printed(code):
    """What a block of code prints, and the error that ended it, or none."""
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
    except Exception:
        return out.getvalue(), traceback.format_exc()
    return out.getvalue(), ""


if __name__ == "__main__":
    print(json.dumps([printed(code) for code in json.load(sys.stdin)]))
