"""The command `curlew`: `entry` chooses by the first word, and imports what that one needs.

| Part | What is in it |
|---|---|
| `entry`, `catalog` | from words to a command, and what its failure says |
| `contexts`, `service`, `calls` | which node, and requests to it |
| `output`, `asking`, `words` | what people and programs read; questions; numbers, times and sizes |
| `messages`, `resources` | the commands themselves |

Needs the extra `cli` (cyclopts, rich); nothing outside this folder imports it.
"""
