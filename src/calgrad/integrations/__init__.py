"""Where people already work: callbacks and adapters for other libraries, each imported by its own name.

`calgrad.integrations.lightning`, `calgrad.integrations.huggingface` and `calgrad.integrations.tracking`; nothing of them
is imported here, so that what is not installed is not missed. docs/integrations.md shows each in use.
"""
