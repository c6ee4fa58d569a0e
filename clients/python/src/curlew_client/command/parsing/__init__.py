"""From the words of a command to the call of its function.

| Part | What is in it |
|---|---|
| `declared` | how commands and their options are written down; imports nothing of cyclopts |
| `plain` | the words that most people write most of the time, understood without cyclopts |
| `full` | all others, by cyclopts: help, completion, other spellings; `usage` says what is wrong |
"""
