"""Errors about what belongs to the cluster: namespaces, settings. Part of the tree of `errors`."""

from app.domain.errors import NotFound, StateConflict


class NamespaceNotFound(NotFound):
    """No such namespace."""

    code = "NAMESPACE_NOT_FOUND"
    title = "The namespace does not exist"


class SettingFixed(StateConflict):
    """A setting that is read at the start of a node only."""

    code = "SETTING_FIXED"
    title = "The setting cannot be changed while nodes run"


class NamespaceNotEmpty(StateConflict):
    """A namespace with topics, groups or schedules is not deleted."""

    code = "NAMESPACE_NOT_EMPTY"
    title = "The namespace is not empty"
