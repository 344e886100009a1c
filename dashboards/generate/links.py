"""Links of panels: another dashboard, the trace of an op, the traces of a finding."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from grafana_foundation_sdk.builders.dashboard import DashboardLink

TAG: Final = "distdbg"
#: Of the data source in provisioning/datasources; where exemplars lead too.
TEMPO_UID: Final = "distdbg-tempo"

#: Variables and time go along. Grafana fills these in, `quote` must leave them alone.
_SAME: Final = "${datasource:queryparam}&${run:queryparam}&${__url_time_range}"
OVERVIEW_UID: Final = "distdbg-overview"
RANKS_UID: Final = "distdbg-ranks"
GROUPS_UID: Final = "distdbg-groups"
STRAGGLERS_UID: Final = "distdbg-stragglers"
AGENT_UID: Final = "distdbg-agent"

#: For the column `Rank` of a table.
TO_RANK: Final = (
    "Details of rank ${__value.text}",
    f"/d/{RANKS_UID}?{_SAME}&var-rank=${{__value.text}}",
)


def traces(query: str) -> str:
    """The address of Grafana's Explore with a query of Tempo over the time that is shown."""
    panes = {
        "distdbg": {
            "datasource": TEMPO_UID,
            "queries": [
                {
                    "refId": "A",
                    "datasource": {"type": "tempo", "uid": TEMPO_UID},
                    "queryType": "traceql",
                    "query": query,
                    "limit": 20,
                }
            ],
            "range": {"from": "${__from}", "to": "${__to}"},
        }
    }
    text = quote(json.dumps(panes, separators=(",", ":")), safe="${}_")
    return f"/explore?schemaVersion=1&orgId=1&panes={text}"


def link(to: tuple[str, str]) -> DashboardLink:
    title, url = to
    return DashboardLink(title).url(url)
