"""Vega, Vega-Lite and Vega-Embed as one script, bundled from the installed package."""

import subprocess
import sys

from pipeline.core.errors import AdaCalibError

BUNDLE = (
    "import sys, vl_convert; "
    "sys.stdout.write(vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;'))"
)


def start_bundle() -> subprocess.Popen[bytes]:
    """A process that bundles while this one goes on: it takes seconds and holds the interpreter."""
    return subprocess.Popen([sys.executable, "-c", BUNDLE], stdout=subprocess.PIPE)


def bundled(started: subprocess.Popen[bytes]) -> str:
    """The script, once the process is done.

    Raises:
        AdaCalibError: the process failed; what it said is on stderr.
    """
    script, _ = started.communicate()
    if started.returncode:
        raise AdaCalibError("the page's script could not be bundled; install vl-convert-python")
    return script.decode()
