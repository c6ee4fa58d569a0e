"""From the words of a command to the call of its function.

| Part | What is in it |
|---|---|
| `declared` | how commands and their options are written down |
| `signatures` | what a function takes as a command, from its signature |
| `reading` | from words to the call of a function |
| `help`, `usage`, `completing` | help, a wrong word, the tab key; imported only for them |
"""
