"""Report results as one page that needs no network, with its pictures and tables. Needs the ``report`` extra.

Example::

    result = hmmjax.stabilize.read_results("results/")
    hmmjax.report.write_report(result, "report/")
"""

from hmmjax.report.minutes import Minutes, estimate_minutes
from hmmjax.report.reasons import Change, longest_changes
from hmmjax.report.write import read_costs, write_report

__all__ = ["Change", "Minutes", "estimate_minutes", "longest_changes", "read_costs", "write_report"]
