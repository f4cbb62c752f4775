"""The run file: options, COMMAND and environment of a run in TOML or YAML.

Read by `text` and `values`, written by `write`, described to editors by `schema`, begun by `first`.
"""
