"""The command `curlew`: `entry` chooses by the first word, and imports what that one needs.

| Part | What is in it |
|---|---|
| `entry`, `catalog`, `running` | from the first word to a command, and what its failure says |
| `parsing` | from the other words to the call of its function |
| `contexts`, `service` | which node, and requests to it |
| `output`, `asking`, `words` | what people and programs read; questions; numbers, times and sizes |
| `messages`, `resources` | the commands themselves |

The extra `cli` (rich) is for tables on a terminal and for `lag --watch`; nothing outside this
folder imports it.
"""
