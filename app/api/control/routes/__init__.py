"""Control-plane routes: translate, call broker or metadata, translate back.

A module has the routes of its name; `service` those of the node itself (`/healthz`, `/metrics`,
`/v1/limits`, `/v1/config`, …), `figures` statistics, `scheduled` delayed messages, `positions`
where topics stand.
"""
