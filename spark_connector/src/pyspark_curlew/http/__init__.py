"""HTTP: what is asked of the service, over connections that are kept, and tried again."""  # noqa: A005 - a folder of a package, imported by its whole name
