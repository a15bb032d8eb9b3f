"""Which node held up a job again and again, and how to have the scheduler leave it out.

A proposal: a rank that hangs because of its own data hangs on its node each time, too. The names of
nodes are not written to the journal, so that no report has them.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rocsteady.model import Blame
from rocsteady.run.hosts.job_verdict import HostPart

OFTEN = 2  # times that a node was to blame before it is proposed to leave it out
NAMES = ("SLURMD_NODENAME", "NODE_NAME")  # as the scheduler calls this node; Kubernetes' by habit
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")  # it becomes a word of a command


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    name = next((environment[each] for each in NAMES if environment.get(each)), platform.node())
    return name if _NAME.fullmatch(name) else ""


class BlamedNodes:
    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._hangs = 0
        self._times: Counter[str] = Counter()

    def count(self, hosts: Sequence[HostPart], blame: Blame) -> str:
        """Take a hang into account, and return what to do about a node; "" as a rule."""
        self._hangs += 1
        names = {str(host.host): host.node for host in hosts}
        blamed = {names.get(record.host, "") for record in blame.ranks}
        node = blamed.pop() if len(blamed) == 1 else ""  # several: it is none of them alone
        if not node or not _NAME.fullmatch(node) or len(names) == 1:
            return ""
        self._times[node] += 1
        if self._times[node] < OFTEN:
            return ""
        ranks = ", ".join(str(record.rank) for record in blame.ranks)
        return (
            f"{self._times[node]} of {self._hangs} hangs began on {node} (now rank {ranks})."
            f" To train without it: {self._command(node)}"
        )

    def _command(self, node: str) -> str:
        if job := self._environment.get("SLURM_JOB_ID"):
            again = f"scontrol update JobId={job} ExcNodeList={node}"
            return f"sbatch --exclude={node} ..., or before a requeue: {again}"
        if "KUBERNETES_SERVICE_HOST" in self._environment:
            return f"kubectl taint nodes {node} rocsteady=held-up-others:NoSchedule"
        return "leave it out of the hosts of the job"
